# SPDX-License-Identifier: Apache-2.0
"""DDL on the memory lake's tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lakeward.bucketing import check_bucket_keys
from lakeward.errors import InvalidAlter, LakeMismatch
from lakeward.lake.core.reconcile import find_owner
from lakeward.lake.memory.log import MemorySnapshotLog
from lakeward.lake.memory.table import MemoryLake, MemoryTable, spec_of, table_of
from lakeward.lake.owner import check_owner
from lakeward.model.ids import TableId
from lakeward.model.schema import Column
from lakeward.model.table import TableDescriptor, TableInfo, TablePath
from lakeward.spi.lake import LakeCatalog, is_own

FORMAT_PREFIX = "memory."


class MemoryLakeCatalog(LakeCatalog):
    def __init__(self, lake: MemoryLake) -> None:
        self._lake = lake

    def check(self) -> None:
        """Memory always answers."""

    def check_descriptor(self, path: TablePath, descriptor: TableDescriptor) -> None:
        check_bucket_keys(descriptor)

    def create(self, table: TableInfo, *, adopt: bool = False) -> bool:
        self.check_descriptor(table.path, table.descriptor)
        with self._lake.lock:
            lake_table = self._lake.tables.get(table.path)
            if lake_table is None:
                properties = map_properties(table.descriptor.properties)
                self._lake.tables[table.path] = table_of(table.path, table.descriptor, properties)
                return True
            self.check_create(table, adopt=adopt)
            return False

    def check_create(self, table: TableInfo, *, adopt: bool = False) -> None:
        with self._lake.lock:
            lake_table = self._lake.tables.get(table.path)
            if lake_table is not None:
                _check_match(lake_table, table.descriptor)
            if lake_table is not None and lake_table.snapshots:
                check_owner(table, self._owner(table.path), has_snapshots=True, adopt=adopt)

    def validate(self, table: TableInfo) -> None:
        with self._lake.lock:
            _check_match(self._lake.table(table.path), table.descriptor)

    def check_alter(self, table: TableInfo, columns: Sequence[Column], changes: Mapping[str, str | None]) -> None:
        with self._lake.lock:
            _missing(self._lake.table(table.path), columns)

    def add_columns(self, table: TableInfo, columns: Sequence[Column]) -> None:
        with self._lake.lock:
            lake_table = self._lake.table(table.path)
            lake_table.columns = (*lake_table.columns, *_missing(lake_table, columns))

    def set_properties(self, table: TableInfo, changes: Mapping[str, str | None]) -> None:
        with self._lake.lock:
            lake_table = self._lake.table(table.path)
            for key, value in changes.items():
                lake_table.properties.pop(_property_key(key), None)
                if value is not None:
                    lake_table.properties[_property_key(key)] = value

    def exists(self, path: TablePath) -> bool:
        return path in self._lake.tables

    def location(self, path: TablePath) -> str:
        return f"memory:{id(self._lake)}"

    def drop(self, path: TablePath) -> None:
        with self._lake.lock:
            self._lake.tables.pop(path, None)

    def is_own_and_empty(self, path: TablePath) -> bool:
        with self._lake.lock:
            lake_table = self._lake.table(path)
            return is_own(lake_table.properties) and not lake_table.snapshots

    def table_id(self, path: TablePath) -> TableId | None:
        with self._lake.lock:
            return self._owner(path) if path in self._lake.tables else None

    def _owner(self, path: TablePath) -> TableId | None:
        log = MemorySnapshotLog(self._lake, path)
        return find_owner(log, log.load())


def map_properties(properties: Mapping[str, str]) -> dict[str, str]:
    return {_property_key(key): value for key, value in properties.items()}


def _property_key(key: str) -> str:
    """`memory.X` is the lake's own X; anything else is kept for the hot side's eyes."""
    return key.removeprefix(FORMAT_PREFIX) if key.startswith(FORMAT_PREFIX) else f"fluss.{key}"


def _check_match(lake_table: MemoryTable, wanted: TableDescriptor) -> None:
    diff = [*_column_diff(lake_table.columns, wanted.schema.columns)]
    pairs = (("primary key", lake_table.primary_key, wanted.primary_key), ("layout", lake_table.spec, spec_of(wanted)))
    diff += [
        f"{what}: lake {', '.join(a) or 'none'}, wanted {', '.join(b) or 'none'}" for what, a, b in pairs if a != b
    ]
    if diff:
        raise LakeMismatch(table=str(lake_table.path), diff="; ".join(diff))


def _missing(lake_table: MemoryTable, columns: Sequence[Column]) -> list[Column]:
    """Those that the lake table has not yet. Raises `InvalidAlter`, `LakeMismatch`."""
    have, table = {c.name: c for c in lake_table.columns}, str(lake_table.path)
    for column in columns:
        there = have.get(column.name)
        if there is None and not column.type.nullable:
            raise InvalidAlter(table=table, change=f"add {column.name}", reason="an added column must be nullable")
        if there is not None and there.type != column.type:
            raise LakeMismatch(table=table, diff=f"column {column.name}: lake {there.type}, wanted {column.type}")
    return [c for c in columns if c.name not in have]


def _column_diff(lake_columns: Sequence[Column], wanted: Sequence[Column]) -> list[str]:
    there, due = {c.name: str(c.type) for c in lake_columns}, {c.name: str(c.type) for c in wanted}
    diff = [
        f"column {name}: lake {there.get(name, 'has none')}, wanted {due.get(name, 'none')}"
        for name in dict.fromkeys((*there, *due))
        if there.get(name) != due.get(name)
    ]
    if not diff and list(there) != list(due):
        diff.append(f"column order: lake {', '.join(there)}, wanted {', '.join(due)}")
    return diff
