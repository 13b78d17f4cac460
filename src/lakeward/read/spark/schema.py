# SPDX-License-Identifier: Apache-2.0
"""Spark schemas of a table: what readers see, and what the lake's Parquet files hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.sql import types as st

from lakeward.errors import UnsupportedType
from lakeward.model import BUCKET, CHANGE_TYPE, OFFSET, TIMESTAMP, TableInfo, TypeVisitor, spell
from lakeward.model import types as mt

FIELD_ID = "parquet.field.id"
"""The metadata key by which Spark's Parquet reader resolves columns by id."""

_PRIMITIVES: dict[str, Any] = {
    kind.simpleString(): kind
    for kind in (
        st.BooleanType(), st.ByteType(), st.ShortType(), st.IntegerType(), st.LongType(), st.FloatType(),
        st.DoubleType(), st.StringType(), st.BinaryType(), st.DateType(), st.TimestampType(), st.TimestampNTZType(),
    )
}  # fmt: skip
SYSTEM_TYPES: dict[str, Any] = {
    BUCKET: st.IntegerType(),
    OFFSET: st.LongType(),
    TIMESTAMP: st.TimestampType(),
    CHANGE_TYPE: st.StringType(),
}


class _ToSpark(TypeVisitor[Any]):
    def plain(self, kind: mt.DataType, path: str) -> Any:
        """TIME needs a Spark that has one (4.1 and newer)."""
        if isinstance(kind, mt.TimeType) and hasattr(st, "TimeType"):
            return st.TimeType(min(kind.precision, 6))
        if isinstance(kind, mt.DecimalType):
            return st.DecimalType(kind.precision, kind.scale)
        if (primitive := _PRIMITIVES.get(spell(kind, "spark") or "")) is not None:
            return primitive
        reason = "it has no such type; leave it out"
        raise UnsupportedType(where=f"column {path}", type=str(kind), by="this version of Spark", reason=reason)

    def array(self, kind: mt.ArrayType, element: Any) -> Any:
        return st.ArrayType(element, kind.element.nullable)

    def map(self, kind: mt.MapType, key: Any, value: Any) -> Any:
        return st.MapType(key, value, kind.value.nullable)

    def field(self, field: mt.RowField, path: str) -> Any:
        return st.StructField(field.name, self.visit(field.type, path), field.type.nullable)

    def row(self, kind: mt.RowType, fields: Sequence[Any], path: str) -> Any:
        return st.StructType(list(fields))


_TO_SPARK = _ToSpark()


def spark_type(name: str, kind: mt.DataType) -> Any:
    """The Spark type of a column. Raises `UnsupportedType`."""
    return _TO_SPARK.visit(kind, name)


def table_schema(table: TableInfo, columns: Sequence[str], system: Sequence[str] = ()) -> Any:
    """Schema of these columns as Spark readers see it."""
    fields = [
        st.StructField(n, spark_type(n, table.schema.column(n).type), table.schema.column(n).type.nullable)
        for n in columns
    ]
    return st.StructType([*fields, *(st.StructField(n, SYSTEM_TYPES[n], False) for n in system)])


def parquet_schema(table: TableInfo, columns: Sequence[str], field_ids: Mapping[str, int]) -> Any:
    """Schema to request from the lake's Parquet files: every column nullable, resolved by field id; small integers are
    ints there."""
    fields = []
    for name in columns:
        kind = (
            SYSTEM_TYPES[name] if name in SYSTEM_TYPES else _widened(spark_type(name, table.schema.column(name).type))
        )
        metadata = {FIELD_ID: field_ids[name]} if name in field_ids else {}
        fields.append(st.StructField(name, kind, True, metadata))
    return st.StructType(fields)


def _widened(kind: Any) -> Any:
    if isinstance(kind, st.ByteType | st.ShortType):
        return st.IntegerType()
    if isinstance(kind, st.ArrayType):
        return st.ArrayType(_widened(kind.elementType), True)
    if isinstance(kind, st.MapType):
        return st.MapType(_widened(kind.keyType), _widened(kind.valueType), True)
    if isinstance(kind, st.StructType):
        return st.StructType([st.StructField(f.name, _widened(f.dataType), True) for f in kind.fields])
    return kind
