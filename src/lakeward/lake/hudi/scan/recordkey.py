# SPDX-License-Identifier: Apache-2.0
"""Hudi's own columns of a row: its key as text, the commit that wrote it, its place."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakeward.bucketing.javatext import TEXT_OF
from lakeward.bucketing.values import KeyColumn
from lakeward.model import BooleanType, DataType, DateType, TimeType

_NULL, _EMPTY = "__null__", "__empty__"


def record_keys(rows: pa.Table, names: Sequence[str], types: Sequence[DataType | None], *, is_named: bool) -> pa.Array:
    """As Hudi's key generators spell them: one field's value alone, or `name:value` of each. A type is None for a
    column of ours, which is a number."""
    parts = []
    for name, kind in zip(names, types, strict=True):
        text = _texts(name, rows.column(name).combine_chunks(), kind)
        filled = pc.if_else(pc.equal(text, ""), _EMPTY, text).fill_null(_NULL)
        parts.append(pc.binary_join_element_wise(f"{name}:", filled, "") if is_named else filled)
    whole = parts[0] if len(parts) == 1 else pc.binary_join_element_wise(*parts, ",")
    return whole.combine_chunks() if isinstance(whole, pa.ChunkedArray) else whole


def _texts(name: str, values: pa.Array, kind: DataType | None) -> pa.Array:
    if pa.types.is_string(values.type):
        return values
    if pa.types.is_integer(values.type):
        return values.cast(pa.string())
    if isinstance(kind, BooleanType):
        return values.cast(pa.string())
    if isinstance(kind, DateType):
        return values.cast(pa.int32()).cast(pa.string())
    assert kind is not None
    column = KeyColumn(name=name, values=values, type=kind)
    if isinstance(kind, TimeType):
        return pa.array(column.time_in("ms")).cast(pa.string())
    encoded = values.dictionary_encode()
    texts = TEXT_OF[type(kind)](KeyColumn(name=name, values=encoded.dictionary, type=kind))
    return pa.array(texts, pa.string()).take(encoded.indices)


def meta_columns(
    keys: pa.Array, *, instant: str, partition: str, file_name: str, number: int, start: int
) -> list[pa.Array]:
    """In their order. `number` and `start` make the sequence number: of the file in its commit, of the first row."""
    count = len(keys)
    rows = pa.array(np.arange(start, start + count, dtype=np.int64)).cast(pa.string())
    sequence = pc.binary_join_element_wise(f"{instant}_{number}_", rows, "")
    return [
        pa.repeat(pa.scalar(instant), count),
        sequence,
        keys,
        pa.repeat(pa.scalar(partition), count),
        pa.repeat(pa.scalar(file_name), count),
    ]
