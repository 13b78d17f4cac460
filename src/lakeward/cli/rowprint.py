# SPDX-License-Identifier: Apache-2.0
"""Rows to standard output: a table for people, JSON lines, CSV, or an Arrow stream."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import TYPE_CHECKING

from lakeward.cli.jsonvalues import to_json
from lakeward.cli.output import print_rows

if TYPE_CHECKING:
    import pyarrow as pa


class ReadFormat(StrEnum):
    TABLE = "table"
    JSON = "json"
    CSV = "csv"
    ARROW = "arrow"


def write_rows(schema: pa.Schema, batches: Iterable[pa.RecordBatch], format: ReadFormat) -> None:
    """All but `table` stream: memory stays constant."""
    if format is ReadFormat.ARROW:
        _write_arrow(schema, batches)
    elif format is ReadFormat.CSV:
        _write_csv(schema, batches)
    elif format is ReadFormat.JSON:
        for batch in batches:
            for row in batch.to_pylist():
                print(json.dumps(row, default=to_json, ensure_ascii=False))
    else:
        print_rows(
            schema.names, (tuple(row.values()) for batch in batches for row in batch.to_pylist()), empty="no rows"
        )


def take(batches: Iterable[pa.RecordBatch], limit: int | None) -> Iterator[pa.RecordBatch]:
    """The first `limit` rows; None takes all."""
    left = limit
    for batch in batches:
        if left is None:
            yield batch
            continue
        if left <= 0:
            return
        yield batch.slice(0, left)
        left -= batch.num_rows


def _write_arrow(schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> None:
    import pyarrow as pa

    with pa.ipc.new_stream(sys.stdout.buffer, schema) as out:
        for batch in batches:
            out.write_batch(batch)


def _write_csv(schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> None:
    import pyarrow as pa
    import pyarrow.csv as csv

    flat = pa.schema([pa.field(f.name, pa.string() if _needs_text(f.type) else f.type) for f in schema])
    with csv.CSVWriter(sys.stdout.buffer, flat) as out:
        for batch in batches:
            columns = [_as_text(c) if _needs_text(c.type) else c for c in batch.columns]
            out.write_batch(pa.record_batch(columns, schema=flat))


def _needs_text(kind: pa.DataType) -> bool:
    """CSV has no lists, maps or bytes: they are written as in JSON."""
    import pyarrow as pa

    return bool(pa.types.is_nested(kind) or pa.types.is_binary(kind) or pa.types.is_fixed_size_binary(kind))


def _as_text(column: pa.Array) -> pa.Array:
    import pyarrow as pa

    texts = [
        None if v is None else v.hex() if isinstance(v, bytes) else json.dumps(v, default=to_json)
        for v in column.to_pylist()
    ]
    return pa.array(texts, pa.string())
