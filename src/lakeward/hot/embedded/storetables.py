# SPDX-License-Identifier: Apache-2.0
"""The tables of an embedded store: opened, made, altered, loaded, dropped, with their partitions."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

from lakeward.errors import InvalidTable, TableAlreadyExists, TableLoading, TableNotFound
from lakeward.hot.embedded.alter import check_altered
from lakeward.hot.embedded.cuts import OpenCuts
from lakeward.hot.embedded.datafolder import DataFolder
from lakeward.hot.embedded.hottable import HotTable
from lakeward.hot.embedded.load import EmbeddedLoad
from lakeward.hot.embedded.metadb import HotTableState, StoredLoad
from lakeward.hot.embedded.options import StoreOptions
from lakeward.hot.embedded.services import StoreServices
from lakeward.hot.embedded.upkeep import StoreUpkeep
from lakeward.model import Ballast, Bucket, Clock, SystemClock, TableId, TableInfo, TablePath, usable
from lakeward.spi import HotAdmin, HotLoad, HotStore

_OF = "of"
"""In the note of a load: about how many rows there are."""


class StoreTables(HotAdmin, HotStore):
    """Thread-safe. A `TableInfo` argument means that very life of the table: a dropped one is a `TableNotFound`."""

    has_prev_offset = True

    def __init__(self, services: StoreServices) -> None:
        self._services = services
        self._lock = threading.RLock()
        self._tables: dict[TableId, HotTable] = {}
        self._by_path: dict[TablePath, HotTable] = {}
        self._closed = False
        self.together = threading.RLock()
        """Held while the rows of one group of a source are appended to all its tables: readers who take log ends see
        all of them or none."""

        self.group_commits = threading.Lock()
        """Held from the first row of a group until its position is stored; a backup holds it too."""

        self._cuts = OpenCuts()
        for stored in services.meta.load_tables():
            self._add(HotTable(stored, services))
        for table in self._tables.values():
            table.open_existing()
        self._loads = {s.table.info.path: EmbeddedLoad(s, services) for s in services.meta.load_loads()}
        self.upkeep = StoreUpkeep(self.hot_tables, services)

    @classmethod
    def open(cls, folder: Path, options: StoreOptions | None = None, clock: Clock | None = None) -> Self:
        """Locks the folder, recovers every log, completes drops that a crash cut off, starts upkeep.

        Raises `DataFolderLocked`, `DataFolderVersion`, `DiskFull`. A damaged bucket stops alone and says so."""
        options = options or StoreOptions()
        ballast = Ballast(Path(folder), options.ballast_bytes)
        with usable(Path(folder)):
            Path(folder).mkdir(mode=0o700, parents=True, exist_ok=True)
        with usable(Path(folder)), ballast.writing():
            store = cls._open(Path(folder), options, clock or SystemClock(), ballast)
        ballast.restore(options.reserve_bytes)
        return store

    @classmethod
    def _open(cls, folder: Path, options: StoreOptions, clock: Clock, ballast: Ballast) -> Self:
        data = DataFolder.open(folder)
        try:
            store = cls(StoreServices.open(data, options, clock, ballast))
        except BaseException:
            data.close()
            raise
        try:
            store.upkeep.finish_drops()
            if options.upkeep:
                store.upkeep.start()
        except BaseException:
            store.close()
            raise
        return store

    @property
    def ballast(self) -> Ballast:
        """For other components that keep state in the data folder."""
        return self._services.ballast

    def close(self) -> None:
        """Everything to disk; the next start is fast. Safe to repeat. Whatever fails on the way, the folder is free
        afterwards.
        """
        with self._lock:
            if self._closed:
                return
            self._closed = True
        with ExitStack() as last_first:
            last_first.callback(self._services.folder.close)
            last_first.callback(self._services.meta.close)
            for load in self.loads():
                last_first.callback(load.close)
            for table in self.hot_tables():
                last_first.callback(table.close)
            self.upkeep.stop()

    def hot_tables(self) -> list[HotTable]:
        with self._lock:
            return list(self._tables.values())

    def hot_table(self, table: TableInfo) -> HotTable:
        hot_table = self._tables.get(table.table_id)
        if hot_table is None:
            raise TableNotFound(table=str(table.path))
        return hot_table

    # ---- tables ----
    def check_table(self, table: TableInfo) -> None:
        """Also against the limit of open files: a table that is written to as a whole has two open in each bucket."""
        self._services.options.table(table)
        most = self._services.open_files.budget // 2
        if table.descriptor.bucket_count > most:
            reason = (
                f"this server may keep files of {most} buckets open: let it open more (`ulimit -n`, LimitNOFILE), "
                f"or make fewer buckets"
            )
            raise InvalidTable(
                table=str(table.path), field="bucket count", value=str(table.descriptor.bucket_count), reason=reason
            )

    def create_table(self, table: TableInfo) -> None:
        with self._lock:
            self._add(HotTable(self._store_new(table), self._services))

    def _store_new(self, table: TableInfo, note: Mapping[str, Any] | None = None) -> HotTableState:
        self.check_table(table)
        self._check_loading(table.path)
        folder = None if table.path in self._by_path else self._services.meta.add_table(table, note)
        if folder is None:
            raise TableAlreadyExists(table=str(table.path))
        return HotTableState(info=table, folder=folder, schemas=(table.schema,), partitions={}, stopped={}, ends={})

    def _add(self, hot: HotTable) -> None:
        self._tables[hot.info.table_id] = self._by_path[hot.info.path] = hot

    def alter_table(self, table: TableInfo) -> None:
        with self._lock:
            hot = self.hot_table(table)
            check_altered(hot.info, table)
            self._services.options.table(table)
            self._services.meta.alter_table(table)
            hot.alter(table)

    def drop_table(self, path: TablePath) -> None:
        with self._lock:  # until its files are closed: `finish_drops` of another thread waits for that
            hot = self.hot_table(self.load_table(path))
            self._services.meta.mark_table_dropping(hot.info.table_id)
            del self._tables[hot.info.table_id], self._by_path[path]
            hot.abandon()
        self.upkeep.finish_drops()

    def load_table(self, path: TablePath) -> TableInfo:
        table = self._by_path.get(path)
        if table is None:
            self._check_loading(path)
            raise TableNotFound(table=str(path))
        return table.info

    # ---- tables that are loaded ----
    def begin_load(self, table: TableInfo, note: Mapping[str, Any], of: int) -> HotLoad:
        kept = {**note, _OF: of}
        with self._lock:
            stored = StoredLoad(table=self._store_new(table, kept), note=kept, progress={})
            self._loads[table.path] = EmbeddedLoad(stored, self._services)
            return self._loads[table.path]

    def loads(self) -> Sequence[EmbeddedLoad]:
        with self._lock:
            return list(self._loads.values())

    def publish_load(self, load: HotLoad, ends: Mapping[Bucket, int]) -> None:
        with self._lock:
            hot = self._loads[load.table.path].hot
            load.close()
            self._services.meta.publish(load.table.table_id, ends)
            for bucket, end in ends.items():
                hot.raise_end(bucket, end)
            hot.open_existing()
            del self._loads[load.table.path]
            self._add(hot)

    def drop_load(self, load: HotLoad) -> None:
        with self._lock:
            load.close()
            self._services.meta.mark_table_dropping(load.table.table_id)
            self._loads.pop(load.table.path, None)
        self.upkeep.finish_drops()

    def _check_loading(self, path: TablePath) -> None:
        load = self._loads.get(path)
        if load is not None:
            raise TableLoading(table=str(path), rows=load.rows, of=int(load.note[_OF]))

    # ---- lists ----
    def left_out(self) -> Sequence[str]:
        return self._services.meta.left_out.lines

    def list_tables(self) -> Sequence[TablePath]:
        return [table.path for table in self.load_tables()]

    def load_tables(self) -> Sequence[TableInfo]:
        return sorted((t.info for t in self.hot_tables()), key=lambda info: (info.path.database, info.path.table))

    # ---- partitions ----
    def partitions(self, table: TableInfo) -> Sequence[str]:
        return self.hot_table(table).partitions

    def create_partition(self, table: TableInfo, name: str) -> None:
        """Safe to repeat. Raises `InvalidRequest`, `PartitionExpired`."""
        self.hot_table(table).create_partition(name)

    def drop_partition(self, table: TableInfo, name: str) -> None:
        """Removes the hot side of it, whatever the lake has. Raises `PartitionNotFound`."""
        self.hot_table(table).drop_partition(name)
        self.upkeep.finish_drops()
