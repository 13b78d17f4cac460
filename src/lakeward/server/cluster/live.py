# SPDX-License-Identifier: Apache-2.0
"""Tables of a Fluss cluster in the live warehouse: the tail is read from the cluster, and the lake rows that it
replaces are found through the index of their keys. Fluss leases nothing to a reader: a lake head that could expire is
held by a tag, and the log's rows are in the answer's own files."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from fastapi import APIRouter
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.noop import NoopCatalog
from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError
from pyiceberg.table import Table
from pyiceberg.typedef import Identifier, Properties

from lakeward.config import Config
from lakeward.errors import (
    CutNotFound,
    InvalidConfig,
    InvalidInput,
    LakewardError,
    NotFound,
    SnapshotGone,
    TableNotFound,
)
from lakeward.hot.fluss.plugin import FlussPlugin
from lakeward.hot.fluss.store import FlussStore
from lakeward.lake.iceberg.headtags import HeadTags
from lakeward.lake.iceberg.plugin import IcebergLakeStorage
from lakeward.model import Bucket, CutEnds, LakeBase, OffsetMap, SystemClock, TableId, TableInfo, TablePath
from lakeward.protocol.auth import TokenSet
from lakeward.protocol.tables import CutStatus
from lakeward.server.iceberg.catalog import read_only_router
from lakeward.server.iceberg.readonly import ReadOnlyTables
from lakeward.server.live.chunks import LiveTarget
from lakeward.server.live.consolenote import ConsoleNote, console_folder, save_note
from lakeward.server.live.source import LiveEntry, LiveSource
from lakeward.server.live.warehouse import LiveOptions, LiveWarehouse
from lakeward.spi import LakeStorage, LogBounds

LAKE_NAME = "fluss"

log = logging.getLogger(__name__)


class ClusterTables:
    """Tables of a cluster that Fluss tiers into Iceberg."""

    def __init__(self, plugin: FlussPlugin) -> None:
        self._plugin, self.store = plugin, plugin.store()

    def find(self, path: TablePath) -> TableInfo | None:
        """None: no such table, or one that is not tiered into Iceberg, or that this version cannot read."""
        try:
            table = self.store.load_table(path)
            self.lake_of(table)
        except (NotFound, InvalidInput):
            return None
        return table

    def lake_of(self, table: TableInfo) -> IcebergLakeStorage:
        """Raises `TableNotFound` for a table of another format; as `FlussPlugin.load_lake`."""
        lake = self._plugin.load_lake(table)
        if not isinstance(lake, IcebergLakeStorage):
            raise TableNotFound(table=f"{table.path} in Iceberg")
        return lake

    def all(self) -> list[TableInfo]:
        tables = map(self.find, self.store.list_tables())
        return [table for table in tables if table is not None]

    def paths(self) -> list[TablePath]:
        return [table.path for table in self.all()]


class ClusterEntry(LiveEntry):
    def __init__(self, tables: ClusterTables, info: TableInfo, tags: HeadTags) -> None:
        self._tables, self.info, self._tags = tables, info, tags

    def check_joined(self) -> None:
        """Fluss stops a table whose lake and log do not join before any round: the read itself finds out."""

    def target(self) -> LiveTarget:
        table = self._tables.store.load_table(self.info.path)
        return LiveTarget(table=table, lake_table=table, lake=self._tables.lake_of(table), lake_name=LAKE_NAME)

    def hold(self, base: LakeBase) -> None:
        """By a tag, for a head that is old enough to expire. Where the console may not write to the lake's catalog, or
        others keep committing, the answer is given without it."""
        if base.head is None:
            return
        try:
            self._tags.hold(self._tables.lake_of(self.info).connection, self.info, base.head)
        except SnapshotGone:
            raise
        except LakewardError as error:
            log.warning("the lake head of %s is not protected from expiry: %s", self.info.path, error)


class FlussSource(LiveSource):
    is_exact = False

    def __init__(self, plugin: FlussPlugin, tags: HeadTags) -> None:
        self.tables, self._tags = ClusterTables(plugin), tags
        self.store: FlussStore = self.tables.store
        self._paths: dict[TableId, TablePath] = {}

    def find(self, path: TablePath) -> LiveEntry | None:
        table = self.tables.find(path)
        if table is None:
            return None
        self._paths[table.table_id] = path
        return ClusterEntry(self.tables, table, self._tags)

    def find_path(self, table_id: TableId) -> TablePath | None:
        return self._paths.get(table_id)

    def freeze(self, tables: Sequence[TableInfo] | None) -> Mapping[TableId, CutEnds]:
        """Fluss answers for one table at a time, so all tables are asked at once. Of all tables: those that answer."""
        if tables is not None and len(tables) == 1:
            return {tables[0].table_id: self._ends(tables[0])}
        ends = self.store.offsets.ends_together(self.tables.all() if tables is None else tables)
        return {table_id: CutEnds(ends=OffsetMap(of_table)) for table_id, of_table in ends.items()}

    def _ends(self, table: TableInfo) -> CutEnds:
        return CutEnds(ends=OffsetMap({bucket: bound.end for bucket, bound in self.bounds(table).items()}))

    def bounds(self, table: TableInfo) -> Mapping[Bucket, LogBounds]:
        return self.tables.store.bounds(table)

    def ask_round(self, table: TableInfo) -> None:
        """Does nothing: Fluss alone decides when a table is handed out, by its freshness."""

    def find_lake(self, table_id: TableId, recorded: TableInfo | None, lake: str) -> tuple[TableInfo, LakeStorage]:
        if recorded is None:
            raise TableNotFound(table=f"of id {table_id}")
        return recorded, self.tables.lake_of(recorded)

    def forget(self, table_id: TableId) -> None:
        self._paths.pop(table_id, None)
        self._tags.forget(table_id)


class ClusterCatalog(NoopCatalog):
    """The cluster's Iceberg tables as a catalog to read: databases and tables are Fluss's, metadata is that of their
    own catalogs. Every call that would change something raises `NotImplementedError`."""

    def __init__(self, tables: ClusterTables) -> None:
        super().__init__("fluss")
        self._tables = tables

    def adopt_storage(self) -> None:
        """Takes the public properties of the storage from the first table's catalog. Raises what the cluster raises."""
        first = next(iter(self._tables.all()), None)
        if first is not None:
            self.properties = dict(self._tables.lake_of(first).connection.catalog.properties)

    def list_namespaces(self, namespace: str | Identifier = ()) -> list[Identifier]:
        return [] if namespace else [(database,) for database in self._databases()]

    def _databases(self) -> Iterable[str]:
        return sorted({path.database for path in self._tables.paths()})

    def load_namespace_properties(self, namespace: str | Identifier) -> Properties:
        if not self.namespace_exists(namespace):
            raise NoSuchNamespaceError(f"there is no database {'.'.join(Catalog.identifier_to_tuple(namespace))}")
        return {}

    def namespace_exists(self, namespace: str | Identifier) -> bool:
        return Catalog.identifier_to_tuple(namespace) in self.list_namespaces()

    def list_tables(self, namespace: str | Identifier) -> list[Identifier]:
        self.load_namespace_properties(namespace)
        (database,) = Catalog.identifier_to_tuple(namespace)
        return [(path.database, path.table) for path in self._tables.paths() if path.database == database]

    def load_table(self, identifier: str | Identifier) -> Table:
        name = Catalog.identifier_to_tuple(identifier)
        table = self._tables.find(TablePath(*name)) if len(name) == 2 else None
        if table is None:
            raise NoSuchTableError(f"the cluster tiers no table {'.'.join(name)} into Iceberg")
        return self._tables.lake_of(table).connection.load(table.path)

    def close(self) -> None:
        """The plugin closes the lakes' catalogs."""


class ClusterLive:
    """Warehouse `live` of a console. `data`: the console's folder; the files of answers are recorded in it, in a folder
    for each cluster. Raises `InvalidConfig` where another console has that folder."""

    def __init__(self, config: Config, data: Path, plugin: FlussPlugin) -> None:
        clock, live_options = SystemClock(), LiveOptions.of(config)
        folder = console_folder(data, plugin.servers.bootstrap)
        folder.mkdir(parents=True, exist_ok=True)
        source = FlussSource(plugin, HeadTags(clock, int(live_options.keep_s * 1_000)))
        self._folder, self._clock, self._keep_s = folder, clock, live_options.keep_s
        try:
            self.warehouse = LiveWarehouse(source, folder, clock, live_options, self._note)
        except sqlite3.OperationalError as error:
            reason = f"another console of the same cluster uses {folder}: give each one a folder of its own ({error})"
            raise InvalidConfig(where="server.data-dir", reason=reason) from error
        self._catalog = ClusterCatalog(source.tables)

    def start(self) -> None:
        """Raises what the cluster raises."""
        self._catalog.adopt_storage()
        self._note()
        self.warehouse.thread.start()

    def _note(self) -> None:
        """For `lakeward doctor --fluss`."""
        files, facts = self.warehouse.files, self.warehouse.facts(lambda path: True)
        note = ConsoleNote(
            at_ms=self._clock.now_ms(), keep_ms=int(self._keep_s * 1_000), answers=files.count(), facts=facts
        )
        try:
            save_note(self._folder, note)
        except OSError as error:
            log.warning("the note for `lakeward doctor --fluss` could not be written: %s", error)

    def router(self, tokens: TokenSet) -> APIRouter:
        read_only = ReadOnlyTables(self._catalog, self.warehouse, _no_cut, instead="to the Fluss cluster")
        return read_only_router(self._catalog, tokens, read_only)


def _no_cut(name: str) -> CutStatus:
    """A cluster has no cuts."""
    raise CutNotFound(cut=name)
