# SPDX-License-Identifier: Apache-2.0
"""Model types to Iceberg types, Iceberg types to the Arrow types that files are written with, and their spelling in a
diff.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Iterator, Sequence
from typing import Any
from uuid import UUID

import pyarrow as pa
from pyiceberg import types as ice
from pyiceberg.conversions import to_json
from pyiceberg.schema import Schema
from pyiceberg.types import IntegerType, LongType, NestedField, TimestamptzType

from lakeward.errors import UnsupportedType
from lakeward.lake.core.columns import SYSTEM
from lakeward.model import (
    BUCKET,
    OFFSET,
    TIMESTAMP,
    Column,
    TypeVisitor,
    default_value,
    spell,
    spell_value,
    with_default,
)
from lakeward.model import types as model

FIELD_ID = b"PARQUET:field_id"

PATH_ID, POSITION_ID = 2147483546, 2147483545
"""Iceberg's reserved field ids of `file_path` and `pos`."""

_MICROS = 6
"""Fractional digits that Iceberg's times have before format version 3."""

_ARROW: dict[type[ice.IcebergType], pa.DataType] = {
    ice.BooleanType: pa.bool_(),
    ice.IntegerType: pa.int32(),
    ice.LongType: pa.int64(),
    ice.FloatType: pa.float32(),
    ice.DoubleType: pa.float64(),
    ice.StringType: pa.string(),
    ice.BinaryType: pa.binary(),
    ice.DateType: pa.date32(),
    ice.TimeType: pa.time64("us"),
    ice.TimestampType: pa.timestamp("us"),
    ice.TimestamptzType: pa.timestamp("us", tz="UTC"),
    ice.TimestampNanoType: pa.timestamp("ns"),
    ice.TimestamptzNanoType: pa.timestamp("ns", tz="UTC"),
    ice.UUIDType: pa.binary(16),
}
PRIMITIVES: dict[str, ice.IcebergType] = {str(kind()): kind() for kind in _ARROW}


class _ToIceberg(TypeVisitor[Any]):
    def __init__(self, ids: Iterator[int]) -> None:
        self._ids = ids

    def plain(self, kind: model.DataType, path: str) -> ice.IcebergType:
        word = spell(kind, "iceberg")
        if word is None:
            raise UnsupportedType(where=path, type=str(kind), by="Iceberg", reason="no Iceberg type matches")
        if isinstance(kind, model.TimeType | model.TimestampType | model.TimestampLtzType) and kind.precision > _MICROS:
            reason = "format version 2 keeps 6 fractional digits; declare 6 or fewer"
            raise UnsupportedType(where=path, type=kind.sql, by="Iceberg", reason=reason)
        return PRIMITIVES.get(word) or ice.DecimalType(*map(int, word[len("decimal(") : -1].split(",")))

    def array(self, kind: model.ArrayType, element: ice.IcebergType) -> ice.IcebergType:
        required = not kind.element.nullable
        return ice.ListType(element_id=next(self._ids), element_type=element, element_required=required)

    def map(self, kind: model.MapType, key: ice.IcebergType, value: ice.IcebergType) -> ice.IcebergType:
        key_id, value_id, required = next(self._ids), next(self._ids), not kind.value.nullable
        return ice.MapType(key_id=key_id, key_type=key, value_id=value_id, value_type=value, value_required=required)

    def field(self, field: model.RowField, path: str) -> ice.NestedField:
        kind = self.visit(field.type, path)
        return ice.NestedField(next(self._ids), field.name, kind, required=not field.type.nullable, doc=field.comment)

    def row(self, kind: model.RowType, fields: Sequence[ice.NestedField], path: str) -> ice.IcebergType:
        return ice.StructType(*fields)


def to_iceberg_type(kind: model.DataType, where: str, ids: Iterator[int] | None = None) -> ice.IcebergType:
    """Converts a type. Ids of nested fields are provisional, the catalog assigns new ones. Raises `UnsupportedType`."""
    iceberg_type: ice.IcebergType = _ToIceberg(itertools.count(1000) if ids is None else ids).visit(kind, where)
    return iceberg_type


def to_arrow_type(kind: ice.IcebergType) -> pa.DataType:
    """Arrow type of a column in our files: plain strings and microseconds, field ids on every level."""
    if type(kind) in _ARROW:
        return _ARROW[type(kind)]
    match kind:
        case ice.DecimalType():
            return pa.decimal128(kind.precision, kind.scale)
        case ice.FixedType():
            return pa.binary(len(kind))
        case ice.ListType():
            return pa.list_(to_arrow_field(kind.element_field))
        case ice.MapType():
            return pa.map_(to_arrow_field(kind.key_field), to_arrow_field(kind.value_field))
        case ice.StructType():
            return pa.struct([to_arrow_field(f) for f in kind.fields])
    raise UnsupportedType(where="lake schema", type=str(kind), by="Lakeward", reason="no Arrow type matches")


def to_arrow_field(field: ice.NestedField) -> pa.Field:
    """With the default of rows that are written without the column."""
    arrow = pa.field(
        field.name, to_arrow_type(field.field_type), not field.required, {FIELD_ID: str(field.field_id).encode()}
    )
    default = find_default(field)
    return arrow if default is None else with_default(arrow, default)


def find_default(field: ice.NestedField) -> str | None:
    """As `Column.default` has it."""
    value = field.initial_default if field.write_default is None else field.write_default
    if value is None or not field.field_type.is_primitive:
        return None
    scalar = pa.scalar(_plain_value(value), to_arrow_type(field.field_type))
    return spell_value(scalar.as_py())


def with_defaults(field: ice.NestedField, column: Column) -> ice.NestedField:
    """Both at once, for good: version 3 forbids to take the second one away where there is the first."""
    assert column.default is not None
    assert isinstance(field.field_type, ice.PrimitiveType)
    value = to_json(field.field_type, default_value(column.default, column.type))
    defaults = ice.NestedField(field.field_id, field.name, field.field_type, initial_default=value)
    update = {"initial_default": defaults.initial_default, "write_default": defaults.initial_default}
    return field.model_copy(update=update)


def missing_scalars(schema: Schema) -> dict[str, pa.Scalar]:
    """Columns whose value is not NULL in files that are older than they are."""
    fields = [f for f in schema.fields if f.initial_default is not None and f.field_type.is_primitive]
    return {f.name: pa.scalar(_plain_value(f.initial_default), to_arrow_type(f.field_type)) for f in fields}


def _plain_value(value: Any) -> Any:
    return value.bytes if isinstance(value, UUID) else value


def to_arrow_schema(schema: Schema) -> pa.Schema:
    return pa.schema([to_arrow_field(f) for f in schema.fields])


def spell_field(field: ice.NestedField) -> str:
    """Spells name, type and nullability without ids: two fields with the same spelling are equal."""
    return f"{field.name} {spell_type(field.field_type)}{' required' if field.required else ''}"


def spell_type(kind: ice.IcebergType) -> str:
    match kind:
        case ice.ListType():
            return f"list<{spell_field(kind.element_field)}>"
        case ice.MapType():
            return f"map<{spell_field(kind.key_field)}, {spell_field(kind.value_field)}>"
        case ice.StructType():
            return f"struct<{', '.join(map(spell_field, kind.fields))}>"
    return str(kind)


_BUCKET = NestedField(2147480001, BUCKET, IntegerType(), required=False)
_OFFSET = NestedField(2147480002, OFFSET, LongType(), required=False)
_TIMESTAMP = NestedField(2147480003, TIMESTAMP, TimestamptzType(), required=False)
"""Far above a table's own columns, and below Iceberg's reserved ids, which begin at 2147483447."""


def is_clean(schema: Schema) -> bool:
    return SYSTEM.isdisjoint(f.name for f in schema.fields)


def with_address(schema: Schema) -> Schema:
    """Adds the system columns; for a clean table they are computed when it is read."""
    if not is_clean(schema):
        return schema
    ids = schema.identifier_field_ids
    return Schema(*schema.fields, _BUCKET, _OFFSET, _TIMESTAMP, schema_id=schema.schema_id, identifier_field_ids=ids)


def address_bounds(bucket: int, offset: int) -> dict[int, bytes]:
    return {_BUCKET.field_id: struct.pack("<i", bucket), _OFFSET.field_id: struct.pack("<q", offset)}


def find_bucket_number(bounds: dict[int, bytes] | None) -> int | None:
    raw = (bounds or {}).get(_BUCKET.field_id)
    return None if raw is None else int(struct.unpack("<i", raw)[0])
