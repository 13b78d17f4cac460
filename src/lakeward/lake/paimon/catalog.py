# SPDX-License-Identifier: Apache-2.0
"""DDL on Paimon tables: create, validate, add columns, set options."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from pypaimon.catalog.catalog_exception import TableAlreadyExistException
from pypaimon.common.identifier import Identifier
from pypaimon.schema.schema_change import Move, MoveType, SchemaChange
from pypaimon.schema.schema_manager import SchemaManager

from lakeward.errors import InvalidAlter, LakeMismatch
from lakeward.lake.core.catalog import check_owner
from lakeward.lake.core.columnmap import ColumnMap, foreign_columns
from lakeward.lake.paimon.evolve import at_schema, plan_evolution, spelled_for_rest, stored_columns
from lakeward.lake.paimon.meta.connection import JDBC, REST, PaimonConnection, identifier
from lakeward.lake.paimon.meta.given import FIXED_OPTIONS, check_given
from lakeward.lake.paimon.meta.history import PaimonHistory
from lakeward.lake.paimon.meta.layout import is_clean
from lakeward.lake.paimon.meta.mapping import (
    check_columns,
    check_descriptor,
    check_schema,
    diff_table,
    lake_key,
    lake_schema,
    paimon_type_of,
    refused_by_paimon,
    spell_options,
    why_not,
    wrong_options,
)
from lakeward.model import BUCKET, Column, TableDescriptor, TableId, TableInfo, TablePath
from lakeward.spi import LakeCatalog, is_own


class PaimonLakeCatalog(LakeCatalog):
    def __init__(self, connection: PaimonConnection) -> None:
        self._connection = connection

    def check(self) -> None:
        self._connection.check_writable()
        with self._connection.catalog("", "list databases") as catalog:
            catalog.list_databases()

    def check_descriptor(self, path: TablePath, descriptor: TableDescriptor) -> None:
        check_descriptor(path, descriptor)

    def create(self, table: TableInfo, *, adopt: bool = False) -> bool:
        check_descriptor(table.path, table.descriptor)
        schema = lake_schema(table.descriptor, str(table.path))
        try:
            with self._connection.catalog(str(table.path), "create table") as catalog:
                catalog.create_database(table.path.database, True)
                self._check_unlisted(table, catalog)
                with refused_by_paimon(table.path, table.descriptor.properties):
                    catalog.create_table(identifier(table.path), schema, False)
            return True
        except TableAlreadyExistException:
            self.check_create(table, adopt=adopt)
            return False

    def _check_unlisted(self, table: TableInfo, catalog: Any) -> None:
        """Checks that the catalog lists the table: a JDBC catalog does so after its folder is created, so a crash in
        between, or another catalog, leaves a folder that it does not list."""
        if self._connection.kind != JDBC or table.path.table in catalog.list_tables(table.path.database):
            return
        folder = catalog.get_table_path(Identifier.from_string(identifier(table.path)))
        if SchemaManager(catalog.file_io, folder).latest() is not None:
            diff = f"{folder} has a schema, and the catalog does not list it; put it into paimon_tables, or remove it"
            raise LakeMismatch(table=str(table.path), diff=diff)

    def check_create(self, table: TableInfo, *, adopt: bool = False) -> None:
        """Accepts an existing table: it must match, and be empty, ours or adopted explicitly."""
        lake_table = self._connection.find(table.path)
        if lake_table is None:
            return
        _check_matches(table, lake_table)
        history = PaimonHistory.load(lake_table, str(table.path))
        check_owner(table, history.owner, has_snapshots=history.head is not None, adopt=adopt)

    def validate(self, table: TableInfo) -> None:
        lake_table = self._connection.load(table.path)
        _check_matches(table, lake_table)
        _check_not_newer(table, lake_table)

    def reconcile_schema(self, table: TableInfo, *, dry_run: bool = False) -> tuple[str, ...]:
        """Resets options to values that rounds rely on; columns and keys must match. Foreign columns stay."""
        lake_table = self._connection.load(table.path)
        options = lake_table.table_schema.options
        due = wrong_options(table.descriptor, options)
        changes = tuple(spell_options(options, due))
        if not dry_run:
            self._set_options(table, due)
            foreign = [c.name for c in self.foreign_columns(table)]
            _check_matches(table, self._connection.load(table.path), foreign)
        return changes

    def check_given(self, path: TablePath, properties: Mapping[str, str], said: Collection[str]) -> None:
        check_given(path, properties, said)

    def check_alter(self, table: TableInfo, columns: Sequence[Column], changes: Mapping[str, str | None]) -> None:
        for key, value in changes.items():
            if reason := why_not(key, value):
                raise InvalidAlter(table=str(table.path), change=f"property {key}", reason=reason)
        properties = {k: v for k, v in {**table.descriptor.properties, **changes}.items() if v is not None}
        check_schema(table.path, replace(table.descriptor, properties=properties))
        self._check_fixed(table, changes)
        self._plan_columns(table, columns)

    def _check_fixed(self, table: TableInfo, changes: Mapping[str, str | None]) -> None:
        """Checks Paimon's own rule for tables that have rows. Raises `InvalidAlter`."""
        lake_table = self._connection.load(table.path)
        have = lake_table.table_schema.options
        fixed = [k for k, v in changes.items() if lake_key(k) in FIXED_OPTIONS and have.get(lake_key(k)) != v]
        if fixed and PaimonHistory.load(lake_table, str(table.path)).head is not None:
            reason = "Paimon does not change it once the table has rows; make a new table"
            raise InvalidAlter(table=str(table.path), change=f"property {fixed[0]}", reason=reason)

    def add_columns(self, table: TableInfo, columns: Sequence[Column]) -> None:
        self._alter(table, self._plan_columns(table, columns))

    def _plan_columns(self, table: TableInfo, columns: Sequence[Column]) -> list[Any]:
        check_columns(str(table.path), columns)
        lake_table = self._connection.load(table.path)
        lake_columns = {f.name: str(f.type) for f in lake_table.table_schema.fields}
        changes = []
        for column in columns:
            kind = paimon_type_of(column, str(table.path))
            if not column.type.nullable:
                change, reason = f"add column {column.name}", "a new column is nullable"
                raise InvalidAlter(table=str(table.path), change=change, reason=reason)
            if lake_columns.get(column.name, str(kind)) != str(kind):
                diff = f"column {column.name}: lake {lake_columns[column.name]}, wanted {kind}"
                raise LakeMismatch(table=str(table.path), diff=diff)
            if column.name not in lake_columns:
                move = None if is_clean(lake_table) else _before_system_columns(column.name, self._connection)
                changes.append(SchemaChange.add_column(column.name, kind, column.comment, move))
        return changes

    def check_evolve(self, table: TableInfo, after: TableInfo) -> None:
        check_columns(str(table.path), [c for c in after.schema.columns if c.column_id not in table.schema.by_id])
        plan_evolution(table, after, self._connection.load(table.path))

    def evolve(self, table: TableInfo, after: TableInfo) -> None:
        while changes := plan_evolution(table, after, self._connection.load(table.path)):
            is_rest = self._connection.kind == REST
            self._alter(table, [spelled_for_rest(c) if is_rest else c for c in changes])

    def foreign_columns(self, table: TableInfo) -> Sequence[Column]:
        lake_table = self._connection.load(table.path)
        known = ColumnMap.parse(lake_table.table_schema.options)
        return foreign_columns(stored_columns(lake_table, table), known, table.schema)

    def finish_evolve(self, table: TableInfo) -> None:
        self.evolve(table, table)

    def set_properties(self, table: TableInfo, changes: Mapping[str, str | None]) -> None:
        self.check_alter(table, (), changes)
        self._set_options(table, {lake_key(k): v for k, v in changes.items()})

    def _set_options(self, table: TableInfo, wanted: Mapping[str, str | None]) -> None:
        have = self._connection.load(table.path).table_schema.options
        put = [SchemaChange.set_option(k, v) for k, v in wanted.items() if v is not None and have.get(k) != v]
        drop = [SchemaChange.remove_option(k) for k, v in wanted.items() if v is None and k in have]
        self._alter(table, [*put, *drop])

    def exists(self, path: TablePath) -> bool:
        return self._connection.find(path) is not None

    def location(self, path: TablePath) -> str:
        return str(self._connection.load(path).table_path)

    def table_id(self, path: TablePath) -> TableId | None:
        return PaimonHistory.load(self._connection.load(path), str(path)).owner

    def drop(self, path: TablePath) -> None:
        with self._connection.catalog(str(path), "drop") as catalog:
            catalog.drop_table(identifier(path), True)

    def is_own_and_empty(self, path: TablePath) -> bool:
        lake_table = self._connection.load(path)
        history = PaimonHistory.load(lake_table, str(path))
        return is_own(lake_table.table_schema.options) and history.head is None

    def _alter(self, table: TableInfo, changes: Sequence[Any]) -> None:
        if changes:
            with self._connection.catalog(str(table.path), "alter") as catalog:
                catalog.alter_table(identifier(table.path), list(changes), False)


def _before_system_columns(name: str, connection: PaimonConnection) -> Move:
    """Encodes a column move, whose kind pypaimon cannot serialise for a REST catalog."""
    kind: Any = MoveType.BEFORE.value if connection.kind == REST else MoveType.BEFORE
    return Move(name, BUCKET, kind)


def _check_matches(table: TableInfo, lake_table: Any, foreign: Collection[str] = ()) -> None:
    if lines := diff_table(table.descriptor, at_schema(lake_table, table.schema), foreign):
        raise LakeMismatch(table=str(table.path), diff="; ".join(lines))


def _check_not_newer(table: TableInfo, lake_table: Any) -> None:
    """Allows reading at an older schema version: the version that `at_schema` selects lacks later columns and types,
    whose values it would not read."""
    older = {f.id: _plain_type(f) for f in at_schema(lake_table, table.schema).table_schema.fields}
    fields = [f for f in lake_table.table_schema.fields if older.get(f.id) != _plain_type(f)]
    if fields:
        lines = [f"column {f.name}: lake {_plain_type(f)}, wanted {older.get(f.id, 'none')}" for f in fields]
        raise LakeMismatch(table=str(table.path), diff="; ".join(lines))


def _plain_type(field: Any) -> str:
    return str(field.type).removesuffix(" NOT NULL")
