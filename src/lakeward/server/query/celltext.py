# SPDX-License-Identifier: Apache-2.0
"""Arrow rows as texts for a page: any type, cut where they are long."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

MOST_CHARS = 500
"""Longest text of one cell: a page shows rows, it does not export them."""

MOST_ANSWER_CHARS = 4_000_000


def row_texts(batch: pa.RecordBatch) -> list[list[str | None]]:
    columns = [cell_texts(column) for column in batch.columns]
    return [[column[n] for column in columns] for n in range(batch.num_rows)]


def cell_texts(column: pa.Array) -> list[str | None]:
    """None where there is no value."""
    return [None if text is None else _cut(text) for text in _texts(column)]


def _texts(column: pa.Array) -> list[str | None]:
    if pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type):
        return [None if value is None else value[: MOST_CHARS + 1].hex() for value in column.to_pylist()]
    try:
        texts: list[str | None] = pc.cast(column, pa.string()).to_pylist()
    except pa.ArrowException:  # nested types have no text of Arrow's own
        return [None if value is None else str(value) for value in column.to_pylist()]
    return texts


def _cut(text: str) -> str:
    return text if len(text) <= MOST_CHARS else f"{text[:MOST_CHARS]}…"
