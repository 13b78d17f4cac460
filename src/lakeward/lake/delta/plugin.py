# SPDX-License-Identifier: Apache-2.0
"""Entry point of the Delta lake: opens `LakeStorage` with the configured options. `warehouse` is a folder or an S3
address; without it the server keeps the lake in its own folder.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache

from lakeward.lake.core.storage import PositionStorage
from lakeward.lake.core.table import PositionTable
from lakeward.lake.delta.catalog import DeltaLakeCatalog
from lakeward.lake.delta.files import DeltaFiles, rewrite
from lakeward.lake.delta.log import DeltaGround, DeltaSnapshotLog
from lakeward.lake.delta.meta.log import DeltaLog, LogCache
from lakeward.lake.delta.writer import DeltaLakeWriter
from lakeward.lake.warehouse import Warehouse, WarehousePlugin, parse_warehouse
from lakeward.model import ColumnChange, TableInfo, TablePath
from lakeward.spi import DeleteEncoding, LakeCapabilities, RewriteResult, RewriteTask, WriteTask

_CACHED = 64
"""The most tables whose replayed log is cached in memory."""

CAPABILITIES = LakeCapabilities(
    delete_encodings=frozenset({DeleteEncoding.POSITIONS}),
    one_writer_per_bucket=False,
    column_changes=frozenset(ColumnChange) - {ColumnChange.DEFAULT, ColumnChange.FIELDS},
)


class DeltaLakeStorage(PositionStorage[DeltaGround]):
    name = "delta"
    capabilities = CAPABILITIES

    def __init__(self, warehouse: str, options: Mapping[str, str] | None = None) -> None:
        self.warehouse = Warehouse(self.name, warehouse, options or {})
        self._cache = lru_cache(_CACHED)(lambda _root: LogCache())

    def catalog(self) -> DeltaLakeCatalog:
        return DeltaLakeCatalog(self.warehouse, self.log)

    def open_writer(self, task: WriteTask) -> DeltaLakeWriter:
        return DeltaLakeWriter(self.warehouse.files_of(task.table.path), task)

    def open_table(self, table: TableInfo) -> PositionTable[DeltaGround]:
        log = self.log(table.path)
        return PositionTable.of(table, DeltaSnapshotLog(log), DeltaFiles(log, table))

    def rewrite(self, task: RewriteTask, is_due: Callable[[], bool] = lambda: False) -> RewriteResult | None:
        return rewrite(self.warehouse.files_of(task.table.path), task, is_due)

    def log(self, path: TablePath) -> DeltaLog:
        root = self.warehouse.folder(path)
        return DeltaLog(self.warehouse.files_of(path), root, str(path), self._cache(root))


def open_lake(options: Mapping[str, str]) -> DeltaLakeStorage:
    """Opens the lake. Raises `UnknownOption`, `InvalidConfig`."""
    return DeltaLakeStorage(parse_warehouse("delta", options), options)


load = WarehousePlugin(
    "delta", open_lake, commits=["*/_delta_log/*"], pointers=["*/_delta_log/_last_checkpoint", "*/.lakeward/*"]
)
