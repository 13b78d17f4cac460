# SPDX-License-Identifier: Apache-2.0
"""Model types to Iceberg types, Iceberg types to the Arrow types that files are written with, and their spelling in a
diff.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pyarrow as pa
from pyiceberg import types as ice
from pyiceberg.schema import Schema

from lakeward.errors import UnsupportedType
from lakeward.model import types as model
from lakeward.model.typetable import spell

FIELD_ID = b"PARQUET:field_id"

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
_PRIMITIVES: dict[str, ice.IcebergType] = {str(kind()): kind() for kind in _ARROW}


def to_iceberg_type(kind: model.DataType, where: str, ids: Iterator[int] | None = None) -> ice.IcebergType:
    """The Iceberg type; ids of nested fields are provisional, the catalog assigns them anew. Raises
    `UnsupportedType`.
    """
    ids = ids if ids is not None else itertools.count(1000)
    if word := spell(kind, "iceberg"):
        _check_precision(kind, where)
        return _PRIMITIVES.get(word) or ice.DecimalType(*map(int, word[len("decimal(") : -1].split(",")))
    match kind:
        case model.ArrayType():
            element = to_iceberg_type(kind.element, f"{where}.element", ids)
            return ice.ListType(element_id=next(ids), element_type=element, element_required=not kind.element.nullable)
        case model.VectorType():
            return to_iceberg_type(kind.as_array, where, ids)
        case model.MapType():
            return _map(kind, where, ids)
        case model.RowType():
            return ice.StructType(*[_row_field(f, where, ids) for f in kind.fields])
    raise UnsupportedType(where=where, type=str(kind), by="Iceberg", reason="no Iceberg type matches")


def _check_precision(kind: model.DataType, where: str) -> None:
    if isinstance(kind, model.TimeType | model.TimestampType | model.TimestampLtzType) and kind.precision > _MICROS:
        reason = "format version 2 keeps 6 fractional digits; declare 6 or fewer"
        raise UnsupportedType(where=where, type=kind.sql, by="Iceberg", reason=reason)


def _map(kind: model.MapType, where: str, ids: Iterator[int]) -> ice.MapType:
    key, value = to_iceberg_type(kind.key, f"{where}.key", ids), to_iceberg_type(kind.value, f"{where}.value", ids)
    return ice.MapType(
        key_id=next(ids), key_type=key, value_id=next(ids), value_type=value, value_required=not kind.value.nullable
    )


def _row_field(field: model.RowField, where: str, ids: Iterator[int]) -> ice.NestedField:
    kind = to_iceberg_type(field.type, f"{where}.{field.name}", ids)
    return ice.NestedField(next(ids), field.name, kind, required=not field.type.nullable, doc=field.comment)


def to_arrow_type(kind: ice.IcebergType) -> pa.DataType:
    """What a column of this type is in files of ours: plain strings and microseconds, field ids on every level."""
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
    return pa.field(
        field.name, to_arrow_type(field.field_type), not field.required, {FIELD_ID: str(field.field_id).encode()}
    )


def to_arrow_schema(schema: Schema) -> pa.Schema:
    return pa.schema([to_arrow_field(f) for f in schema.fields])


def spell_field(field: ice.NestedField) -> str:
    """Name, type and nullability without ids: two fields are the same to us when this is."""
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
