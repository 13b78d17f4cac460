# SPDX-License-Identifier: Apache-2.0
"""Tables of a Fluss cluster in the live warehouse: the tail is read from the cluster, and the lake rows that it
replaces are found through the index of their keys. Fluss leases neither the lake's head nor its log to a reader: both
stay for as long as expiry and the log's TTL leave them."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from fastapi import APIRouter
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.noop import NoopCatalog
from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError
from pyiceberg.table import Table
from pyiceberg.typedef import Identifier, Properties

from lakeward.config import Config
from lakeward.errors import CutNotFound, InvalidConfig, InvalidInput, LakewardError, NotFound, TableNotFound
from lakeward.hot.fluss.plugin import FlussPlugin
from lakeward.lake.iceberg.plugin import IcebergLakeStorage
from lakeward.model import Bucket, CutEnds, LakeBase, OffsetMap, SystemClock, TableId, TableInfo, TablePath
from lakeward.protocol.auth import TokenSet
from lakeward.protocol.tables import CutStatus
from lakeward.server.iceberg.catalog import read_only_router
from lakeward.server.iceberg.readonly import ReadOnlyTables
from lakeward.server.live.chunks import LiveTarget
from lakeward.server.live.source import LiveEntry, LiveSource
from lakeward.server.live.warehouse import LiveOptions, LiveWarehouse
from lakeward.spi import LakeStorage, LogBounds

LAKE_NAME = "fluss"


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
    def __init__(self, tables: ClusterTables, info: TableInfo) -> None:
        self._tables, self.info = tables, info

    def check_joined(self) -> None:
        """Fluss stops a table whose lake and log do not join before any round: the read itself finds out."""

    def target(self) -> LiveTarget:
        table = self._tables.store.load_table(self.info.path)
        return LiveTarget(table=table, lake_table=table, lake=self._tables.lake_of(table), lake_name=LAKE_NAME)

    def hold(self, base: LakeBase) -> None:
        """Fluss has no lease for it."""


class FlussSource(LiveSource):
    def __init__(self, plugin: FlussPlugin) -> None:
        self.tables = ClusterTables(plugin)
        self.store = self.tables.store
        self._paths: dict[TableId, TablePath] = {}

    def find(self, path: TablePath) -> LiveEntry | None:
        table = self.tables.find(path)
        if table is None:
            return None
        self._paths[table.table_id] = path
        return ClusterEntry(self.tables, table)

    def find_path(self, table_id: TableId) -> TablePath | None:
        return self._paths.get(table_id)

    def freeze(self, tables: Sequence[TableInfo] | None) -> Mapping[TableId, CutEnds]:
        """One after another, as Fluss freezes one table at a time. Of all tables: those that answer."""
        if tables is not None:
            return {table.table_id: self._ends(table) for table in tables}
        ends: dict[TableId, CutEnds] = {}
        for table in self.tables.all():
            with suppress(LakewardError):
                ends[table.table_id] = self._ends(table)
        return ends

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
        clock, source = SystemClock(), FlussSource(plugin)
        folder = data / f"console-{re.sub('[^A-Za-z0-9.-]+', '_', plugin.servers.bootstrap)}"
        folder.mkdir(parents=True, exist_ok=True)
        try:
            self.warehouse = LiveWarehouse(source, folder, clock, LiveOptions.of(config))
        except sqlite3.OperationalError as error:
            reason = f"another console of the same cluster uses {folder}: give each one a folder of its own ({error})"
            raise InvalidConfig(where="server.data-dir", reason=reason) from error
        self._catalog = ClusterCatalog(source.tables)

    def start(self) -> None:
        """Raises what the cluster raises."""
        self._catalog.adopt_storage()
        self.warehouse.thread.start()

    def router(self, tokens: TokenSet) -> APIRouter:
        read_only = ReadOnlyTables(self._catalog, self.warehouse, _no_cut, instead="to the Fluss cluster")
        return read_only_router(self._catalog, tokens, read_only)


def _no_cut(name: str) -> CutStatus:
    """A cluster has no cuts."""
    raise CutNotFound(cut=name)
