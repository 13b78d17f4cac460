# SPDX-License-Identifier: Apache-2.0
"""Columns in a Lance table's schema. A field's metadata records how its column was declared (CHAR, precision)."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import lance
import pyarrow as pa
from lance.schema import LanceSchema

from lakeward.errors import InvalidTable, UnsupportedType
from lakeward.lake.core.columnmap import ColumnMap, StoredColumn, stored_field
from lakeward.model import (
    LAKE_FIELDS,
    LAKE_NAMES,
    TYPE_KEY,
    ArrayType,
    Column,
    DataType,
    MapType,
    RowType,
    Schema,
    VectorType,
    from_arrow_schema,
    parts,
    to_arrow_field,
)

RESERVED = frozenset({"_rowid", "_rowaddr", "_rowoffset", "_row_created_at_version", "_row_last_updated_at_version"})


_NESTING = (
    "Lance writes a row inside an array or map that contains two more levels of arrays and maps, and cannot read it; "
    "remove one of the levels from that row, or store the value as JSON in a STRING"
)
"""Detected with pylance 14.0.2 ("Incorrect number of nulls for StructArray") for some values of such a shape, in a test
of 6,000 random shapes of up to six levels."""


def check_columns(columns: Sequence[Column], table: str) -> None:
    """Raises `InvalidTable`, `UnsupportedType`."""
    for column in columns:
        if _is_unreadable(column.type, is_repeated=False):
            where = f"{table}.{column.name}"
            raise UnsupportedType(where=where, type=str(column.type), by="Lance", reason=_NESTING)
        if reason := _why_not(column.name):
            raise InvalidTable(table=table, field="column", value=column.name, reason=reason)


def _why_not(name: str) -> str | None:
    if "." in name:
        return "in Lance a dot leads to a field inside of a column"
    if "`" in name:
        return "Lance reads no column with a backtick in its name"
    return "this name is Lance's own" if name in RESERVED else None


def _is_unreadable(kind: DataType, *, is_repeated: bool) -> bool:
    """Whether the type has a repeated row that contains two more levels of repetition."""
    if isinstance(kind, RowType) and is_repeated and _repetitions(kind) > 1:
        return True
    repeats = is_repeated or isinstance(kind, ArrayType | MapType)
    return any(_is_unreadable(part, is_repeated=repeats) for part in parts(kind))


def _repetitions(kind: DataType) -> int:
    return isinstance(kind, ArrayType | MapType) + max(map(_repetitions, parts(kind)), default=0)


def table_schema(columns: Sequence[Column]) -> pa.Schema:
    """Arrow schema of the user's columns, then the system columns."""
    return pa.schema([*map(to_lance_field, columns), *LAKE_FIELDS])


def stored_columns(dataset: lance.LanceDataset) -> tuple[StoredColumn, ...]:
    """Returns the user's columns; their keys are the field ids in files. Raises `UnsupportedType`."""
    keys = {name: key for key, name in key_names(dataset.lance_schema).items()}
    columns = from_arrow_schema(pa.schema([f for f in dataset.schema if f.name not in LAKE_NAMES]))
    return tuple(StoredColumn(c, keys[c.name]) for c in columns)


_KEY_PREFIX = "id:"


def key_names(schema: LanceSchema) -> dict[str, str]:
    """Column key -> its name in the schema."""
    return {_key(_leaf_ids(field)): field.name() for field in schema.fields()}


def _key(ids: Sequence[int]) -> str:
    return _KEY_PREFIX + ",".join(map(str, ids))


def ids_of(key: str) -> list[int]:
    return [int(i) for i in key.removeprefix(_KEY_PREFIX).split(",")]


def column_map_of(dataset: lance.LanceDataset) -> ColumnMap:
    """Reads the column map from the schema's own metadata, so that one commit changes both."""
    return ColumnMap.parse({k.decode(): v.decode() for k, v in (dataset.schema.metadata or {}).items()})


def view_of(dataset: lance.LanceDataset, planned: Schema) -> list[StoredColumn]:
    return column_map_of(dataset).view(stored_columns(dataset), planned)


def scan_schema(columns: Sequence[StoredColumn], fields: Callable[[Column], pa.Field]) -> pa.Schema:
    """Schema of rows with these columns and the system columns; field metadata has the key that files use."""
    return pa.schema([*(stored_field(fields(c.column), c.key) for c in columns), *LAKE_FIELDS])


def to_lance_field(column: Column) -> pa.Field:
    """Converts a column to a Lance field. A vector's elements have no name in Lance."""
    field = to_arrow_field(column)
    if isinstance(column.type, VectorType):
        field = field.with_type(pa.list_(pa.float32(), column.type.length))
    return field.with_metadata({**(field.metadata or {}), TYPE_KEY: column.type.sql.encode()})


def leaf_ids(schema: LanceSchema) -> list[int]:
    """Returns the field ids of the columns in a data file, in its order: those of values, not of their parents."""
    return [i for field in schema.fields() for i in _leaf_ids(field)]


def _leaf_ids(field: Any) -> list[int]:
    children = field.children()
    return [i for child in children for i in _leaf_ids(child)] if children else [field.id()]


def reordered(schema: LanceSchema, names: Sequence[str] | None = None, column_map: ColumnMap | None = None) -> Any:
    """Returns the same fields with the same ids, only those in `names` (default: all), the system columns last; the
    library adds columns at the end. `column_map`: stored in the schema's metadata from now on."""
    rebuild, (metadata, *protos) = schema.__reduce__()
    groups, at = {}, 0
    for field in schema.fields():
        size = _count(field)
        groups[field.name()] = protos[at : at + size]
        at += size
    if column_map is not None:
        spelled = {k: list(v.encode()) for k, v in column_map.to_properties().items()}
        metadata = json.dumps({**json.loads(metadata), **spelled})
    order = [n for n in (groups if names is None else names) if n not in LAKE_NAMES]
    order += [n for n in LAKE_NAMES if n in groups]
    return rebuild(metadata, *(proto for name in order for proto in groups[name]))


def _count(field: Any) -> int:
    return 1 + sum(_count(child) for child in field.children())
