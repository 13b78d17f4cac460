# SPDX-License-Identifier: Apache-2.0
"""DDL on Lance tables: each is a folder below the warehouse, with columns and properties in its newest version."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import lance
import pyarrow as pa

from lakeward.lake.core.catalog import HISTORY, NUMBER
from lakeward.lake.core.columnmap import ColumnMap, MappedCatalog, StoredColumn
from lakeward.lake.lance.columns import (
    check_columns,
    column_map_of,
    key_names,
    reordered,
    stored_columns,
    table_schema,
    to_lance_field,
)
from lakeward.lake.lance.log import LanceGround, LanceSnapshotLog
from lakeward.lake.lance.table import ALTER_KEY, LanceTable, apply, fragments_of
from lakeward.lake.warehouse import Warehouse
from lakeward.model import LAKE_NAMES, Column, TableInfo, TablePath

_PRIMARY_KEY, _PARTITION_KEYS = "lakeward.primary-key", "lakeward.partition-keys"
_RESERVED = (_PRIMARY_KEY, _PARTITION_KEYS, "lance.auto_cleanup.")
"""Lake properties that users may not change: rounds rely on them, and our own properties decide about history."""

_ALLOWED = {**HISTORY, "write.target-file-size-bytes": NUMBER}
_FILE_VERSION = "2.2"
"""The data file format that the library writes by default since 14, and that its other readers support."""


class LanceLakeCatalog(MappedCatalog[LanceGround]):
    lake, allowed, has_time_partitions, drops_late = "lance", _ALLOWED, True, True

    def __init__(self, warehouse: Warehouse, table_of: Callable[[TablePath], LanceTable]) -> None:
        super().__init__(warehouse)
        self._table_of = table_of

    def check_columns(self, columns: Sequence[Column], table: str) -> None:
        check_columns(columns, table)

    def why_not(self, lake_key: str) -> str | None:
        return "rounds rely on it" if lake_key.startswith(_RESERVED) else None

    def exists(self, path: TablePath) -> bool:
        return bool(self._table_of(path).versions())

    def open_log(self, path: TablePath) -> LanceSnapshotLog:
        return LanceSnapshotLog(self._table_of(path))

    def stored(self, ground: LanceGround) -> Sequence[StoredColumn]:
        return stored_columns(ground.dataset)

    def column_map(self, ground: LanceGround) -> ColumnMap:
        return column_map_of(ground.dataset)

    def properties(self, ground: LanceGround) -> Mapping[str, str]:
        return ground.properties

    def layout(self, ground: LanceGround) -> Mapping[str, str]:
        config = ground.properties
        return {"primary key": config.get(_PRIMARY_KEY, ""), "partitions": config.get(_PARTITION_KEYS, "")}

    def make(self, table: TableInfo, properties: Mapping[str, str]) -> bool:
        """Creates the table in two versions: the first has no properties, the second is the first visible one."""
        descriptor = table.descriptor
        schema = table_schema(descriptor.schema.columns)
        update = lance.LanceOperation.UpdateMap({**properties, **_own_properties(table)})
        with tempfile.TemporaryDirectory(prefix="lakeward-lance-") as folder:
            lance.write_dataset(schema.empty_table(), folder, schema=schema, data_storage_version=_FILE_VERSION)
            apply(folder, 1, lance.LanceOperation.UpdateConfig(config_updates=update), {ALTER_KEY: "true"})
            return self._table_of(table.path).publish(folder, 2)

    def put_evolved(
        self, ground: LanceGround, table: TableInfo, columns: Sequence[StoredColumn], column_map: ColumnMap
    ) -> bool:
        """Makes one step of the change, as the library has no commit for all of it; false asks for the next. Renamed
        columns make room for new ones, which are added last and then moved. No file is written: old rows are null
        there."""
        named, new = _own_properties(table), [c.column for c in columns if not c.key]
        if any(ground.properties.get(k) != v for k, v in named.items()):
            return self.put_properties(ground, table, named) and False
        if new and not {c.name for c in new}.isdisjoint(ground.dataset.schema.names):
            return self._project(ground, table, [c for c in columns if c.key], column_map) and False
        if new:
            return self._add(ground, table, new) and not column_map.schema_id
        return self._project(ground, table, columns, column_map)

    def _add(self, ground: LanceGround, table: TableInfo, columns: Sequence[Column]) -> bool:
        """Lets the library number the new fields, and places them before the system columns."""
        lake_table = self._table_of(table.path)
        with lake_table.stage(ground.version) as staged:
            grown = lance.dataset(staged)
            grown.add_columns(pa.schema([to_lance_field(c) for c in columns]))
            operation = lance.LanceOperation.Merge(
                fragments_of(grown), reordered(grown.lance_schema), preserves_nullability=True
            )
        return lake_table.commit(ground.version, operation, {ALTER_KEY: "true"})

    def _project(
        self, ground: LanceGround, table: TableInfo, columns: Sequence[StoredColumn], column_map: ColumnMap
    ) -> bool:
        """Replaces the schema by these fields alone, in this order, under these names."""
        lake_table, keys = self._table_of(table.path), {c.key for c in columns}
        names = {k: n for k, n in key_names(ground.dataset.lance_schema).items() if n not in LAKE_NAMES}
        fields = {c.column.name: _metadata(c.column) for c in columns}
        with lake_table.stage(ground.version) as staged:
            changed = lance.dataset(staged)
            if dropped := [n for k, n in names.items() if k not in keys]:
                changed.drop_columns(dropped)
            # Renames to the keys first: two columns may swap their names.
            changed.alter_columns(*({"path": names[c.key], "name": c.key} for c in columns))
            changed.alter_columns(*({"path": c.key, **_spell(c.column)} for c in columns))
            changed.update_field_metadata(fields, replace=True)
            schema = reordered(changed.lance_schema, list(fields), column_map)
        return lake_table.commit(ground.version, lance.LanceOperation.Project(schema), {ALTER_KEY: "true"})

    def put_properties(self, ground: LanceGround, table: TableInfo, changes: Mapping[str, str | None]) -> bool:
        update = lance.LanceOperation.UpdateMap(dict(changes))
        operation = lance.LanceOperation.UpdateConfig(config_updates=update)
        return self._table_of(table.path).commit(ground.version, operation, {ALTER_KEY: "true"})


def _own_properties(table: TableInfo) -> dict[str, str]:
    descriptor = table.descriptor
    return {_PRIMARY_KEY: ",".join(descriptor.primary_key), _PARTITION_KEYS: ",".join(descriptor.partition_keys)}


def _spell(column: Column) -> Any:
    return {"name": column.name, "nullable": column.type.nullable}


def _metadata(column: Column) -> dict[str, str]:
    return {k.decode(): v.decode() for k, v in to_lance_field(column).metadata.items()}
