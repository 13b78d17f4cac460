# SPDX-License-Identifier: Apache-2.0
"""Entry point of the Iceberg lake: opens `LakeStorage` with the configured options, which are PyIceberg's catalog
properties.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from lakeward.lake.core.storage import CoreStorage
from lakeward.lake.core.table import LakeTable
from lakeward.lake.iceberg.catalog import IcebergLakeCatalog
from lakeward.lake.iceberg.commit.ground import IcebergGround
from lakeward.lake.iceberg.connect.connection import IcebergConnection
from lakeward.lake.iceberg.connect.intents import IcebergIntentStore
from lakeward.lake.iceberg.files import ENCODINGS, open_table
from lakeward.lake.iceberg.flussoptions import iceberg_options
from lakeward.lake.iceberg.log import IcebergSnapshotLog
from lakeward.lake.iceberg.maintenance import IcebergLakeMaintenance
from lakeward.lake.iceberg.reader import IcebergLakeReader
from lakeward.lake.iceberg.rewrite import rewrite_group
from lakeward.lake.iceberg.writer import IcebergLakeWriter
from lakeward.model import BucketFunction, ColumnChange, TableInfo
from lakeward.spi import (
    LakeCapabilities,
    LakePlugin,
    RewriteResult,
    RewriteTask,
    WriteTask,
    spell_place,
    without_secrets,
)

_CATALOG_KEYS = ("type", "uri", "catalog-impl", "py-catalog-impl")
CAPABILITIES = LakeCapabilities(
    delete_encodings=ENCODINGS,
    one_writer_per_bucket=False,
    bucket_function=BucketFunction.ICEBERG,
    time_partitions=True,
    column_changes=frozenset(ColumnChange),
    clean_tables=True,
)


class IcebergLakeStorage(CoreStorage[IcebergGround]):
    name = "iceberg"
    capabilities = CAPABILITIES

    def __init__(self, connection: IcebergConnection) -> None:
        self.connection = connection

    def catalog(self) -> IcebergLakeCatalog:
        return IcebergLakeCatalog(self.connection)

    def open_writer(self, task: WriteTask) -> IcebergLakeWriter:
        return IcebergLakeWriter(self.connection, task)

    def open_table(self, table: TableInfo) -> LakeTable[IcebergGround]:
        return open_table(self.connection, IcebergSnapshotLog(self.connection, table), table)

    def open_reader(self, table: TableInfo) -> IcebergLakeReader:
        return IcebergLakeReader(self.connection, table)

    def open_maintenance(self, table: TableInfo) -> IcebergLakeMaintenance:
        return IcebergLakeMaintenance(self.connection, table)

    def rewrite(self, task: RewriteTask, is_due: Callable[[], bool] = lambda: False) -> RewriteResult | None:
        return rewrite_group(self.connection, task, is_due)

    def open_intents(self, table: TableInfo) -> IcebergIntentStore:
        return IcebergIntentStore(self.connection, table)


class IcebergLakePlugin(LakePlugin):
    """Without a catalog in its options the server keeps one in its own folder, and serves it to all clients."""

    def __call__(self, options: Mapping[str, str]) -> IcebergLakeStorage:
        return _load(options)

    def wants_catalog(self, options: Mapping[str, str]) -> bool:
        return not any(key in options for key in _CATALOG_KEYS)

    def server_options(self, options: Mapping[str, str], data: Path) -> dict[str, str]:
        if not self.wants_catalog(options):
            return dict(options)
        folder = data / "iceberg"
        folder.mkdir(parents=True, exist_ok=True)
        return {
            "warehouse": (data / "warehouse").resolve().as_uri(),
            **options,
            "type": "sql",
            "uri": f"sqlite:///{(folder / 'catalog.db').resolve()}",
        }

    def peer_options(self, options: Mapping[str, str], catalog_uri: str) -> dict[str, str]:
        served = {"type": "rest", "uri": catalog_uri} if self.wants_catalog(options) else {}
        return {**without_secrets(options), **served}

    def place(self, options: Mapping[str, str]) -> str:
        """Identifies the catalog: one in a database by its name, whatever its warehouse; a REST catalog may serve
        several."""
        keys = ("uri", "name") if options.get("type") == "sql" else ("uri", "prefix", "warehouse")
        return spell_place(options, keys)

    def fluss_options(self, options: Mapping[str, str]) -> dict[str, str]:
        return iceberg_options(options)


def _load(options: Mapping[str, str]) -> IcebergLakeStorage:
    return IcebergLakeStorage(IcebergConnection(options))


load = IcebergLakePlugin("iceberg", _load, commits=["*.metadata.json"])
