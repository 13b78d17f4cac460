# SPDX-License-Identifier: Apache-2.0
"""Column changes of a Paimon table as Paimon's own schema changes, by field ids; and the table at an older schema:
Paimon retains every schema version, and reads files of any of them by field ids.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from pypaimon.schema.schema_change import Move, MoveType, SchemaChange

from lakeward.errors import InvalidAlter, InvalidTable
from lakeward.lake.core.columnmap import SCHEMA_ID, ColumnMap, StoredColumn, keep_dropped, plan_columns
from lakeward.lake.core.columns import SYSTEM
from lakeward.lake.paimon.meta.layout import is_clean
from lakeward.lake.paimon.meta.mapping import paimon_type_of
from lakeward.model import BUCKET, Column, DataType, DateType, Schema, StringType, TableInfo, parse_type


def at_schema(lake_table: Any, schema: Schema) -> Any:
    """Returns the table under the names of one of its schemas, an older one while an ALTER is under way."""
    if _schema_id(lake_table.table_schema) <= schema.schema_id:
        return lake_table
    versions = sorted(lake_table.schema_manager.list_all(), key=lambda s: -s.id)
    planned = next((v for v in versions if _schema_id(v) <= schema.schema_id), lake_table.table_schema)
    return type(lake_table)(
        lake_table.file_io, lake_table.identifier, lake_table.table_path, planned, lake_table.catalog_environment
    )


def is_ahead(lake_table: Any, table: TableInfo) -> bool:
    return _schema_id(lake_table.table_schema) > table.schema.schema_id


def _schema_id(version: Any) -> int:
    return int(version.options.get(SCHEMA_ID, "0"))


def stored_columns(lake_table: Any, table: TableInfo) -> list[StoredColumn]:
    """Returns the user's columns with their field ids as keys. Types are those of the table's columns if they are
    equivalent."""
    column_map_now, by_id = ColumnMap.parse(lake_table.table_schema.options), table.schema.by_id
    ids = {key: column_id for column_id, key in column_map_now.keys.items()}
    by_name = {c.name: c for c in table.schema.columns}
    fields = [f for f in lake_table.table_schema.fields if f.name not in SYSTEM]
    return [_stored(f, by_id.get(ids.get(str(f.id), 0)) or by_name.get(f.name), table) for f in fields]


def _stored(field: Any, column: Column | None, table: TableInfo) -> StoredColumn:
    kind = _type_of(field, column, str(table.path)).with_nullable(bool(field.type.nullable))
    return StoredColumn(Column(name=field.name, type=kind, comment=field.description), str(field.id))


def _type_of(field: Any, column: Column | None, where: str) -> DataType:
    if column is not None and _text(paimon_type_of(column, where)) == _text(field.type):
        return column.type
    try:
        return parse_type(_text(field.type))
    except InvalidTable:  # another engine's column, which is passed through
        return StringType()


def _text(kind: Any) -> str:
    return str(kind).removesuffix(" NOT NULL")


def plan_evolution(before: TableInfo, after: TableInfo, lake_table: Any) -> list[Any]:
    """Plans the schema changes of the next commit; none if the lake table has the columns of `after`. A dropped column
    stays under another name until the hot store has dropped it: its field id could not be restored. Added columns get
    their ids with the first commit, and are in the map with the second. Raises `InvalidAlter`, `LakeMismatch`,
    `UnsupportedType`."""
    stored, options = stored_columns(lake_table, before), lake_table.table_schema.options
    column_map_now = ColumnMap.parse(options)
    columns, column_map = plan_columns(before, after, stored, column_map_now)
    columns = keep_dropped(columns, stored, column_map_now, before, after)
    is_placed = not any(_moves(stored, columns, lake_table))
    if columns == stored and is_placed and (column_map == column_map_now or not column_map_now.keys):
        return []
    _check_keys(before, columns, stored, lake_table)
    _check_types(before, columns, stored)
    return [*_columns(stored, columns, lake_table, str(after.path)), *_options(options, column_map)]


def _options(options: Mapping[str, str], column_map: ColumnMap) -> Iterator[Any]:
    for key, value in column_map.to_properties().items():
        if options.get(key) != value:
            yield SchemaChange.set_option(key, value)


def _check_keys(
    table: TableInfo, columns: Iterable[StoredColumn], stored: Iterable[StoredColumn], lake_table: Any
) -> None:
    """Checks renames of key columns: the library renames one in a commit. Raises `InvalidAlter`."""
    names, schema = {s.key: s.column.name for s in stored}, lake_table.table_schema
    for one in columns:
        old, new = names.get(one.key), one.column.name
        if old in schema.partition_keys and old != new:
            raise _wrong(
                table, f"rename column {old}", "its lake is in Paimon, whose partition columns keep their names"
            )
        if old in schema.primary_keys and old != new and new in schema.primary_keys:
            reason = "its lake is in Paimon, where keys cannot swap names in one call; rename one of them first"
            raise _wrong(table, f"rename column {old} to {new}", reason)


def _check_types(table: TableInfo, columns: Iterable[StoredColumn], stored: Iterable[StoredColumn]) -> None:
    """Raises `InvalidAlter`."""
    old = {s.key: s.column for s in stored}
    for new, was in ((c.column, old[c.key]) for c in columns if c.key):
        if isinstance(was.type, DateType) and not isinstance(new.type, DateType):
            reason = "its lake is in Paimon, whose readers do not agree on dates read as timestamps; add a column"
            raise _wrong(table, f"widen column {was.name} to {new.type.sql}", reason)


def _wrong(table: TableInfo, change: str, reason: str) -> InvalidAlter:
    return InvalidAlter(table=str(table.path), change=change, reason=reason)


def _columns(
    stored: Sequence[StoredColumn], columns: Sequence[StoredColumn], lake_table: Any, where: str
) -> Iterator[Any]:
    """Orders changes: drops, renames through unused names, then additions, types, comments, and positions last."""
    old, keys_to_keep = {s.key: s.column for s in stored}, {c.key for c in columns}
    yield from (SchemaChange.drop_column(s.column.name) for s in stored if s.key not in keys_to_keep)
    renamed = [c for c in columns if c.key and old[c.key].name != c.column.name]
    keys = set(lake_table.table_schema.primary_keys)
    others = [c for c in renamed if old[c.key].name not in keys]
    yield from (SchemaChange.rename_column(old[c.key].name, f"#{c.key}") for c in others)
    yield from (SchemaChange.rename_column(old[c.key].name, c.column.name) for c in renamed if c not in others)
    yield from (SchemaChange.rename_column(f"#{c.key}", c.column.name) for c in others)
    for column in (c.column for c in columns if not c.key):
        place = None if is_clean(lake_table) else Move(column.name, BUCKET, MoveType.BEFORE)
        yield SchemaChange.add_column(column.name, paimon_type_of(column, where), column.comment, place)
    for one in (c for c in columns if c.key):
        yield from _changed(old[one.key], one.column, where)
    yield from _moves(stored, columns, lake_table)


def _changed(old: Column, new: Column, where: str) -> Iterator[Any]:
    if old.type.sql != new.type.sql:
        yield SchemaChange.update_column_type(new.name, paimon_type_of(new, where), True)
    if old.type.nullable != new.type.nullable:
        yield SchemaChange.update_column_nullability(new.name, new.type.nullable)
    if old.comment != new.comment:
        yield SchemaChange.update_column_comment(new.name, new.comment or "")


def _moves(stored: Sequence[StoredColumn], columns: Sequence[StoredColumn], lake_table: Any) -> Iterator[Any]:
    new_names = {c.key: c.column.name for c in columns if c.key}
    names = {s.column.name: new_names.get(s.key) for s in stored}
    fields = [f.name for f in lake_table.table_schema.fields]
    system = [] if is_clean(lake_table) else [name for name in fields if name in SYSTEM]
    order = [name for name in (names.get(f, f if f in system else None) for f in fields) if name is not None]
    first_system = order.index(system[0]) if system else len(order)
    order[first_system:first_system] = [c.column.name for c in columns if not c.key]
    due = [*(c.column.name for c in columns), *system]
    for before, name in zip([None, *due], due, strict=False):
        at = 0 if before is None else order.index(before) + 1
        if order[at] == name:
            continue
        order.remove(name)
        order.insert(at, name)
        kind = MoveType.FIRST if before is None else MoveType.AFTER
        yield SchemaChange.update_column_position(Move(name, before, kind))


def spelled_for_rest(change: Any) -> Any:
    """Encodes a column move, whose kind pypaimon cannot serialise for a REST catalog."""
    move = getattr(change, "move", None)
    if move is None:
        return change
    return dataclasses.replace(change, move=Move(move.field_name, move.reference_field_name, move.type.value))
