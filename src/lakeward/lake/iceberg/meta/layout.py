# SPDX-License-Identifier: Apache-2.0
"""The two layouts of a lake table: with the system columns, or *clean*, with the user's columns alone, as Fluss makes
them from 1.0 on.

In a clean table a file's bucket and its first and last offset stand among its bounds in the manifest, under ids that no
column has: every engine meets such bounds wherever a column was dropped, and passes them over. So nobody opens a file
to learn where its rows come from (`lakeward.lake.core.columns` says how rows get their own).
"""

from __future__ import annotations

import struct

from pyiceberg.schema import Schema
from pyiceberg.types import IntegerType, LongType, NestedField, TimestamptzType

from lakeward.lake.core.columns import SYSTEM
from lakeward.model import BUCKET, OFFSET, TIMESTAMP

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
