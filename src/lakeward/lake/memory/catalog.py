# SPDX-License-Identifier: Apache-2.0
"""DDL on the memory lake's tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lakeward.lake.core.catalog import CoreCatalog, missing_columns
from lakeward.lake.memory.log import MemoryGround, MemorySnapshotLog
from lakeward.lake.memory.table import MemoryLake, spec_of, table_of
from lakeward.model import Column, Schema, TableDescriptor, TableId, TableInfo, TablePath, may_widen, refuse_type

FORMAT_PREFIX = "memory."


class MemoryLakeCatalog(CoreCatalog[MemoryGround]):
    lake = "memory"

    def __init__(self, lake: MemoryLake) -> None:
        self._lake = lake

    def check(self) -> None:
        """Memory always answers."""

    def lake_key(self, key: str) -> str:
        """Maps a table property to a lake property: `memory.X` is the lake's own X; other keys are stored for the hot
        store."""
        own = key.removeprefix(FORMAT_PREFIX)
        return f"lakeward.{own}" if own.startswith("history.") else own if own != key else f"fluss.{key}"

    def exists(self, path: TablePath) -> bool:
        return path in self._lake.tables

    def location(self, path: TablePath) -> str:
        return f"memory:{id(self._lake)}"

    def drop(self, path: TablePath) -> None:
        with self._lake.lock:
            self._lake.tables.pop(path, None)

    def table_id(self, path: TablePath) -> TableId | None:
        return super().table_id(path) if self.exists(path) else None

    def open_log(self, path: TablePath) -> MemorySnapshotLog:
        return MemorySnapshotLog(self._lake, path)

    def columns(self, ground: MemoryGround) -> Sequence[Column]:
        return ground.table.columns

    def properties(self, ground: MemoryGround) -> Mapping[str, str]:
        return ground.table.properties

    def layout(self, ground: MemoryGround) -> Mapping[str, str]:
        return {"primary key": ", ".join(ground.table.primary_key), "layout": ", ".join(ground.table.spec)}

    def expected_layout(self, descriptor: TableDescriptor) -> Mapping[str, str]:
        return {"primary key": ", ".join(descriptor.primary_key), "layout": ", ".join(spec_of(descriptor))}

    def make(self, table: TableInfo, properties: Mapping[str, str]) -> bool:
        with self._lake.lock:
            new = table_of(table.path, table.descriptor, properties)
            return self._lake.tables.setdefault(table.path, new) is new

    def put_columns(self, ground: MemoryGround, table: TableInfo, columns: Sequence[Column]) -> bool:
        with self._lake.lock:
            have = ground.table.columns
            added = missing_columns(table, have, columns)
            ground.table.columns = Schema(columns=(*have, *added)).columns
            ground.table.known |= {c.column_id for c in ground.table.columns}
        return True

    def check_evolve(self, table: TableInfo, after: TableInfo) -> None:
        have = self._lake.table(table.path).columns
        by_id = {c.column_id: c for c in have}
        for column in (c for c in after.schema.columns if c.column_id in table.schema.by_id):
            known = by_id.get(column.column_id, column)
            if not may_widen(known.type, column.type):
                raise refuse_type(table, column, known.type.sql)
        added = [c for c in after.schema.columns if c.column_id not in table.schema.by_id]
        missing_columns(table, [c for c in have if c.column_id not in table.schema.by_id], added)

    def evolve(self, table: TableInfo, after: TableInfo) -> None:
        """Changes columns in one step: files identify their columns by id."""
        self.check_evolve(table, after)
        with self._lake.lock:
            mine, descriptor = self._lake.table(table.path), after.descriptor
            mine.columns, mine.spec = after.schema.columns, spec_of(descriptor)
            mine.primary_key, mine.partition_keys = descriptor.primary_key, descriptor.partition_keys
            mine.known |= after.schema.by_id.keys()

    def put_properties(self, ground: MemoryGround, table: TableInfo, changes: Mapping[str, str | None]) -> bool:
        with self._lake.lock:
            properties = {**ground.table.properties, **changes}
            ground.table.properties = {k: v for k, v in properties.items() if v is not None}
        return True
