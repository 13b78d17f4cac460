# SPDX-License-Identifier: Apache-2.0
"""The two layouts of a lake table: with the system columns, or *clean*, with the user's columns alone, as Fluss makes
them from 1.0 on.

In a clean table a file's bucket and its first and last offset stand among its bounds in the manifest, under ids that no
column has: every engine meets such bounds wherever a column was dropped, and passes them over. So nobody opens a file
to learn where its rows come from. A row's offset is its file's first one plus the row's position, where the file has no
hole. What is not known is -1, as it is in rows of Fluss's KV snapshots.
"""

from __future__ import annotations

import struct

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.types import IntegerType, LongType, NestedField, TimestamptzType

from lakeward.model.bucket import Bucket
from lakeward.model.schema import BUCKET, OFFSET, TIMESTAMP

SYSTEM = frozenset({BUCKET, OFFSET, TIMESTAMP})
_BUCKET = NestedField(2147480001, BUCKET, IntegerType(), required=False)
_OFFSET = NestedField(2147480002, OFFSET, LongType(), required=False)
_TIMESTAMP = NestedField(2147480003, TIMESTAMP, TimestamptzType(), required=False)
"""Far above a table's own columns, and below Iceberg's reserved ids, which begin at 2147483447."""


def is_clean(schema: Schema) -> bool:
    return SYSTEM.isdisjoint(f.name for f in schema.fields)


def with_address(schema: Schema) -> Schema:
    """With the system columns; those of a clean table are made up while it is read."""
    if not is_clean(schema):
        return schema
    ids = schema.identifier_field_ids
    return Schema(*schema.fields, _BUCKET, _OFFSET, _TIMESTAMP, schema_id=schema.schema_id, identifier_field_ids=ids)


def address_bounds(bucket: int, offset: int) -> dict[int, bytes]:
    return {_BUCKET.field_id: struct.pack("<i", bucket), _OFFSET.field_id: struct.pack("<q", offset)}


def find_bucket_number(bounds: dict[int, bytes] | None) -> int | None:
    raw = (bounds or {}).get(_BUCKET.field_id)
    return None if raw is None else int(struct.unpack("<i", raw)[0])


def fill_address(rows: pa.Table, bucket: Bucket | None, first: int | None, start: int) -> pa.Table:
    """`start`: the position of the table's first row in its file. `first` None: the file does not tell its rows'
    offsets.
    """
    count = rows.num_rows
    values: dict[str, npt.NDArray[np.int64]] = {
        BUCKET: np.full(count, -1 if bucket is None else bucket.number),
        OFFSET: np.full(count, -1) if first is None else np.arange(first + start, first + start + count),
        TIMESTAMP: np.full(count, -1000),
    }
    for name in values.keys() & set(rows.column_names):
        at = rows.column_names.index(name)
        column = pa.array(values[name]) if name == OFFSET else pa.array(values[name]).cast(rows.schema.types[at])
        rows = rows.set_column(at, name, column)
    return rows
