# SPDX-License-Identifier: Apache-2.0
"""Columns in a Delta table's schema, and in its Parquet files.

Delta has no CHAR, no fixed binary and one time precision: a field's metadata records how its column was declared. With
column mapping, which a table has once a column was renamed or dropped, files and the log use the physical name in the
field's metadata.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from lakeward.errors import UnsupportedType
from lakeward.lake.core.columnmap import StoredColumn, stored_field, stored_key
from lakeward.lake.delta.meta.actions import FIELD_ID, PHYSICAL_NAME
from lakeward.model import (
    BUCKET,
    LAKE_FIELDS,
    OFFSET,
    TIMESTAMP,
    ArrayType,
    Column,
    DataType,
    MapType,
    RowField,
    RowType,
    TimestampLtzType,
    TimestampType,
    TypeVisitor,
    map_leaves,
    parse_type,
    plain_types,
    spell,
    to_arrow_field,
)

_TYPE_KEY = "lakeward.type"
_MICROS = 6
_NAMES = plain_types("delta")
SYSTEM = frozenset({BUCKET, OFFSET, TIMESTAMP})
_SYSTEM = [
    {"name": name, "type": kind, "nullable": False, "metadata": {}}
    for name, kind in ((BUCKET, "integer"), (OFFSET, "long"), (TIMESTAMP, "timestamp"))
]


class _ToDelta(TypeVisitor[Any]):
    def plain(self, kind: DataType, path: str) -> Any:
        if isinstance(kind, TimestampType | TimestampLtzType) and kind.precision > _MICROS:
            raise UnsupportedType(where=path, type=str(kind), by="Delta", reason="it keeps microseconds")
        word = spell(kind, "delta")
        if word is None:
            raise UnsupportedType(where=path, type=str(kind), by="Delta", reason="it has no type for it")
        return word

    def array(self, kind: ArrayType, element: Any) -> Any:
        return {"type": "array", "elementType": element, "containsNull": kind.element.nullable}

    def map(self, kind: MapType, key: Any, value: Any) -> Any:
        return {"type": "map", "keyType": key, "valueType": value, "valueContainsNull": kind.value.nullable}

    def row(self, kind: RowType, fields: Sequence[Any], path: str) -> Any:
        return {"type": "struct", "fields": fields}

    def field(self, field: RowField, path: str) -> Any:
        return _field(field.name, field.type, field.comment, path)


_TO_DELTA = _ToDelta()


def to_delta_type(kind: DataType, where: str) -> Any:
    """Returns the type's name, or an object for nested types. Raises `UnsupportedType`."""
    return _TO_DELTA.visit(kind, where)


def to_schema_string(columns: Sequence[Column], where: str) -> str:
    """Spells the schema: the user's columns, then the system columns. Raises `UnsupportedType`."""
    fields = [_field(c.name, c.type, c.comment, f"{where}.{c.name}", spelled=True) for c in columns]
    return json.dumps({"type": "struct", "fields": [*fields, *_SYSTEM]})


def parse_schema_string(text: str) -> tuple[StoredColumn, ...]:
    """Parses the user's columns with their physical names. Raises `UnsupportedType`."""
    return tuple(StoredColumn(_column(f), physical_name(f)) for f in user_fields(text))


def user_fields(text: str) -> list[dict[str, Any]]:
    """Returns the fields of the user's columns in a schema string."""
    return [f for f in json.loads(text)["fields"] if f["name"] not in SYSTEM]


def physical_name(field: Mapping[str, Any]) -> str:
    return str((field.get("metadata") or {}).get(PHYSICAL_NAME, field["name"]))


def spell_view(columns: Sequence[StoredColumn], text: str, where: str) -> str:
    """Spells a schema of these columns for a writer, with the fields that `text` has for them."""
    fields = json.loads(text)["fields"]
    ids = {physical_name(f): (f.get("metadata") or {}).get(FIELD_ID) for f in fields}
    spelled = []
    for one in columns:
        field = new_field(one.column, where)
        mapping = {PHYSICAL_NAME: one.key, FIELD_ID: ids.get(one.key)}
        spelled.append({**field, "metadata": {**field["metadata"], **{k: v for k, v in mapping.items() if v}}})
    return json.dumps({"type": "struct", "fields": [*spelled, *(f for f in fields if f["name"] in SYSTEM)]})


def new_field(column: Column, where: str) -> dict[str, Any]:
    """Builds the schema field of a new column. Raises `UnsupportedType`."""
    return _field(column.name, column.type, column.comment, f"{where}.{column.name}", spelled=True)


def table_schema(columns: Sequence[StoredColumn]) -> pa.Schema:
    """Arrow schema of rows as readers return them. Field metadata has the name that files use."""
    fields = (stored_field(to_arrow_field(c.column), c.key) for c in columns)
    return pa.schema([*fields, *LAKE_FIELDS])


def file_schema(schema: pa.Schema) -> pa.Schema:
    """Schema of our data files under the current names. Includes partition columns, though Delta reads them from its
    log: engines may then scan a file directly. They cost a few bytes."""
    return pa.schema([pa.field(f.name, map_leaves(f.type, _stored), f.nullable) for f in schema])


def physical_schema(schema: pa.Schema, logical: pa.Schema, text: str) -> pa.Schema:
    """Schema of a data file: `schema` with the physical names and field ids that `text` has for its columns."""
    fields = {f["name"]: f for f in json.loads(text)["fields"]}
    return pa.schema([_physical(f, stored_key(logical.field(f.name)), fields.get(f.name, {})) for f in schema])


def _physical(field: pa.Field, name: str, spelled: Mapping[str, Any]) -> pa.Field:
    field_id = (spelled.get("metadata") or {}).get(FIELD_ID)
    return field.with_name(name).with_metadata({} if field_id is None else {"PARQUET:field_id": str(field_id)})


def _field(name: str, kind: DataType, comment: str | None, where: str, *, spelled: bool = False) -> dict[str, Any]:
    metadata = {_TYPE_KEY: kind.sql} if spelled else {}
    if comment is not None:
        metadata["comment"] = comment
    return {"name": name, "type": to_delta_type(kind, where), "nullable": kind.nullable, "metadata": metadata}


def _column(field: dict[str, Any]) -> Column:
    metadata = field.get("metadata") or {}
    kind = _from_delta_type(field["type"], field["name"])
    if _TYPE_KEY in metadata:
        declared = parse_type(metadata[_TYPE_KEY])
        kind = declared if to_delta_type(declared, field["name"]) == field["type"] else kind
    return Column(name=field["name"], type=kind.with_nullable(field["nullable"]), comment=metadata.get("comment"))


def _from_delta_type(kind: Any, where: str) -> DataType:
    if isinstance(kind, str) and kind in _NAMES:
        return _NAMES[kind]
    if isinstance(kind, str) and kind.startswith("decimal"):
        return parse_type(kind.upper())
    match kind:
        case {"type": "array", "elementType": element, "containsNull": nullable}:
            return ArrayType(element=_from_delta_type(element, where).with_nullable(nullable))
        case {"type": "map", "keyType": key, "valueType": value, "valueContainsNull": nullable}:
            return MapType(
                key=_from_delta_type(key, where), value=_from_delta_type(value, where).with_nullable(nullable)
            )
        case {"type": "struct", "fields": fields}:
            return RowType(
                fields=tuple(
                    RowField(name=f["name"], type=_from_delta_type(f["type"], where).with_nullable(f["nullable"]))
                    for f in fields
                )
            )
    raise UnsupportedType(where=where, type=str(kind), by="Lakeward", reason="no column type matches it")


def _stored(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", tz=kind.tz)
    return pa.binary() if pa.types.is_fixed_size_binary(kind) and not pa.types.is_decimal(kind) else kind
