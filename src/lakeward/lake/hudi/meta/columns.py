# SPDX-License-Identifier: Apache-2.0
"""Columns in Hudi's commits, as Avro, and in its Parquet files.

Avro has no CHAR, no small integers and no vectors: the table's properties record how a column was declared.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa

from lakeward.errors import UnsupportedType
from lakeward.model import (
    BUCKET,
    LAKE_FIELDS,
    OFFSET,
    TIMESTAMP,
    ArrayType,
    Column,
    DataType,
    DecimalType,
    MapType,
    RowField,
    RowType,
    TimestampLtzType,
    TimestampType,
    TypeVisitor,
    map_leaves,
    parse_type,
    parts,
    spell,
    to_arrow_field,
)

COMMIT_TIME, SEQUENCE, RECORD_KEY, PARTITION_PATH, FILE_NAME = META_COLUMNS = (
    "_hoodie_commit_time",
    "_hoodie_commit_seqno",
    "_hoodie_record_key",
    "_hoodie_partition_path",
    "_hoodie_file_name",
)
RESERVED = "_hoodie_"
NAMES = "names in Hudi are those of Avro: letters from a to z, digits and _, no digit first"
_AVRO_NAME = re.compile("[A-Za-z_][A-Za-z0-9_]*")
_MICROS = 6
_SYSTEM = (
    (BUCKET, "int"),
    (OFFSET, "long"),
    (TIMESTAMP, {"type": "long", "logicalType": "timestamp-micros"}),
)


def find_odd_name(columns: Sequence[Column]) -> str | None:
    """Returns the first name, nested ones included, that is not an Avro name: Hudi's readers refuse a table with such a
    name."""
    names = (n for c in columns for n in (c.name, *_inner_names(c.type)))
    return next((n for n in names if not _AVRO_NAME.fullmatch(n)), None)


def _inner_names(kind: DataType) -> Iterator[str]:
    if isinstance(kind, RowType):
        yield from (f.name for f in kind.fields)
    for part in parts(kind):
        yield from _inner_names(part)


class _ToAvro(TypeVisitor[Any]):
    """Converts types; a path is an Avro namespace here, which distinguishes named types."""

    parts = ("array", "key", "map")

    def __init__(self, where: str) -> None:
        self._where = where

    def plain(self, kind: DataType, path: str) -> Any:
        if isinstance(kind, TimestampType | TimestampLtzType) and kind.precision > _MICROS:
            raise self._refused(kind, "it keeps microseconds")
        if isinstance(kind, DecimalType):
            size = next(n for n in range(1, 17) if 10**kind.precision < 1 << (8 * n - 1))
            facts = {"logicalType": "decimal", "precision": kind.precision, "scale": kind.scale}
            return {"type": "fixed", "name": "fixed", "namespace": path, "size": size, **facts}
        word = spell(kind, "avro")
        if word is None:
            raise self._refused(kind, "it has no type for it")
        base, _, logical = word.partition(":")
        return {"type": base, "logicalType": logical} if logical else base

    def array(self, kind: ArrayType, element: Any) -> Any:
        return {"type": "array", "items": _or_null(kind.element, element)}

    def map(self, kind: MapType, key: Any, value: Any) -> Any:
        if key != "string":
            raise self._refused(kind, "keys of its maps are strings")
        return {"type": "map", "values": _or_null(kind.value, value)}

    def row(self, kind: RowType, fields: Sequence[Any], path: str) -> Any:
        space, _, name = path.rpartition(".")
        return {"type": "record", "name": name, "namespace": space, "fields": fields}

    def field(self, field: RowField, path: str) -> Any:
        return _field(field.name, _or_null(field.type, self.visit(field.type, path)))

    def _refused(self, kind: DataType, reason: str) -> UnsupportedType:
        return UnsupportedType(where=self._where, type=str(kind), by="Hudi", reason=reason)


def _or_null(kind: DataType, avro: Any) -> Any:
    return ["null", avro] if kind.nullable else avro


def to_avro_type(kind: DataType, where: str, space: str) -> Any:
    """Converts a type to Avro. `space`: the namespace that distinguishes named types. Raises `UnsupportedType`."""
    return _or_null(kind, _ToAvro(where).visit(kind, space))


def _field(name: str, kind: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, **({"default": None} if isinstance(kind, list) else {})}


def to_avro_schema(columns: Sequence[Column], name: str, *, with_meta: bool = False) -> str:
    """Avro schema of the user's columns, then the system columns. `name`: the table's. Raises `UnsupportedType`."""
    record = re.sub(r"^(?=\d)", "t", name.replace("-", "_")) + "_record"
    space = f"hoodie.{record.removesuffix('_record')}"
    meta = [{"name": n, "type": ["null", "string"], "doc": "", "default": None} for n in META_COLUMNS]
    own = [_field(c.name, to_avro_type(c.type, f"{name}.{c.name}", f"{space}.{record}.{c.name}")) for c in columns]
    fields = [*(meta if with_meta else []), *own, *(_field(n, kind) for n, kind in _SYSTEM)]
    return json.dumps({"type": "record", "name": record, "namespace": space, "fields": fields})


def encode_columns(columns: Sequence[Column]) -> str:
    """Parses columns as they were declared."""
    return json.dumps([[c.name, c.type.sql, c.type.nullable, c.comment] for c in columns])


def decode_columns(text: str) -> tuple[Column, ...]:
    return tuple(
        Column(name=name, type=parse_type(kind).with_nullable(nullable), comment=comment)
        for name, kind, nullable, comment in json.loads(text)
    )


def table_schema(columns: Sequence[Column]) -> pa.Schema:
    """Schema of rows as readers return them."""
    return pa.schema([*(to_arrow_field(c) for c in columns), *LAKE_FIELDS])


def stored_schema(columns: Sequence[Column]) -> pa.Schema:
    """Schema of rows in a file, without Hudi's own columns, which come before them."""
    return pa.schema([pa.field(f.name, map_leaves(f.type, _stored), f.nullable) for f in table_schema(columns)])


def file_schema(columns: Sequence[Column], avro: str) -> pa.Schema:
    """Schema of a complete file, with the Avro schema that Hudi's own readers expect."""
    meta = [pa.field(n, pa.string()) for n in META_COLUMNS]
    return pa.schema([*meta, *stored_schema(columns)], metadata={"parquet.avro.schema": avro})


def _stored(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", tz=kind.tz)
    if pa.types.is_int8(kind) or pa.types.is_int16(kind):
        return pa.int32()
    return pa.binary() if pa.types.is_fixed_size_binary(kind) and not pa.types.is_decimal(kind) else kind


def from_avro_record(
    schema: Mapping[str, Any], rows: Sequence[Mapping[str, Any]], columns: Sequence[str] | None
) -> pa.Table:
    """Converts rows that another engine wrote in Avro to Arrow."""
    fields = [f for f in schema["fields"] if columns is None or f["name"] in columns]
    arrays, kinds = [], []
    for field in fields:
        kind = _arrow_of(field["type"])
        arrays.append(pa.array([_value(row[field["name"]], field["type"]) for row in rows], kind))
        kinds.append(pa.field(field["name"], kind))
    return pa.table(arrays, schema=pa.schema(kinds))


_ARROW: dict[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "bytes": pa.binary(),
    "date": pa.date32(),
    "timestamp-micros": pa.timestamp("us", tz="UTC"),
    "local-timestamp-micros": pa.timestamp("us"),
    "timestamp-millis": pa.timestamp("ms", tz="UTC"),
    "local-timestamp-millis": pa.timestamp("ms"),
}


def _one(kind: Any) -> Any:
    """Returns the other type of a union with null."""
    return next(k for k in kind if k != "null") if isinstance(kind, list) else kind


def _arrow_of(kind: Any) -> pa.DataType:
    kind = _one(kind)
    if isinstance(kind, str):
        return _ARROW[kind]
    if kind.get("logicalType") == "decimal":
        return pa.decimal128(kind["precision"], kind["scale"])
    match kind["type"]:
        case "array":
            return pa.list_(_arrow_of(kind["items"]))
        case "map":
            return pa.map_(pa.string(), _arrow_of(kind["values"]))
        case "record":
            return pa.struct([pa.field(f["name"], _arrow_of(f["type"])) for f in kind["fields"]])
    return _ARROW[kind.get("logicalType", kind["type"])]


def _value(value: Any, kind: Any) -> Any:
    kind = _one(kind)
    if value is None or isinstance(kind, str):
        return value
    if kind.get("logicalType") == "decimal":
        return Decimal(int.from_bytes(value, "big", signed=True)).scaleb(-kind["scale"])
    match kind["type"]:
        case "array":
            return [_value(v, kind["items"]) for v in value]
        case "map":
            return [(k, _value(v, kind["values"])) for k, v in value.items()]
        case "record":
            return {f["name"]: _value(value[f["name"]], f["type"]) for f in kind["fields"]}
    return value
