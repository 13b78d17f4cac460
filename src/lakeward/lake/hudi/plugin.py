# SPDX-License-Identifier: Apache-2.0
"""Entry point of the Hudi lake: opens `LakeStorage` with the configured options. `warehouse` is a folder; without it
the server keeps the lake in its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from lakeward.errors import InvalidConfig, UnsafeLake
from lakeward.lake.core.storage import CoreStorage
from lakeward.lake.core.table import LakeTable
from lakeward.lake.hudi.catalog import HudiLakeCatalog
from lakeward.lake.hudi.changes import HudiChanges
from lakeward.lake.hudi.files import HudiFiles
from lakeward.lake.hudi.ground import HudiGround
from lakeward.lake.hudi.log import HudiSnapshotLog
from lakeward.lake.hudi.meta.table import HudiTable
from lakeward.lake.hudi.reader import HudiLakeReader
from lakeward.lake.hudi.rewrite import rewrite_group
from lakeward.lake.hudi.writer import HudiLakeWriter
from lakeward.lake.warehouse import WAREHOUSE, Warehouse, WarehousePlugin, parse_warehouse
from lakeward.model import BucketFunction, ColumnChange, TableInfo, TablePath
from lakeward.spi import DeleteEncoding, LakeCapabilities, RewriteResult, RewriteTask, WriteTask

CAPABILITIES = LakeCapabilities(
    delete_encodings=frozenset({DeleteEncoding.NATIVE}),
    one_writer_per_bucket=False,
    bucket_function=BucketFunction.HUDI,
    bucket_function_needed=True,
    column_changes=frozenset(ColumnChange)
    - {ColumnChange.RENAME, ColumnChange.DROP, ColumnChange.WIDEN, ColumnChange.DEFAULT, ColumnChange.FIELDS},
)


class HudiLakeStorage(CoreStorage[HudiGround]):
    name = "hudi"
    capabilities = CAPABILITIES

    def __init__(self, warehouse: str, options: Mapping[str, str] | None = None) -> None:
        self.warehouse = Warehouse(self.name, warehouse, options or {})

    def catalog(self) -> HudiLakeCatalog:
        return HudiLakeCatalog(self.warehouse, self.table)

    def open_writer(self, task: WriteTask) -> HudiLakeWriter:
        return HudiLakeWriter(self.warehouse.files_of(task.table.path), task)

    def open_table(self, table: TableInfo) -> LakeTable[HudiGround]:
        there, encodings = self.table(table.path), self.capabilities.delete_encodings
        log, files, changes = HudiSnapshotLog(there), HudiFiles(there, table), HudiChanges(there, table)
        return LakeTable(table, log, files, changes, encodings)

    def open_reader(self, table: TableInfo) -> HudiLakeReader:
        return HudiLakeReader(self.open_table(table), self.table(table.path))

    def rewrite(self, task: RewriteTask, is_due: Callable[[], bool] = lambda: False) -> RewriteResult | None:
        return rewrite_group(self.warehouse.files_of(task.table.path), task, is_due)

    def table(self, path: TablePath) -> HudiTable:
        return HudiTable(self.warehouse.files_of(path), self.warehouse.folder(path), str(path))


class HudiLakePlugin(WarehousePlugin):
    def fluss_options(self, options: Mapping[str, str]) -> dict[str, str]:
        reason = (
            "Fluss makes Hudi tables through Flink's catalogs, in a layout that rounds do not write (log tables have a "
            "record key of the user's, and no table that is there is taken); leave this one to Fluss's Flink job"
        )
        raise UnsafeLake(lake=self.name, reason=reason)


def open_lake(options: Mapping[str, str]) -> HudiLakeStorage:
    """Opens the lake. Raises `UnknownOption`, `InvalidConfig`."""
    warehouse = parse_warehouse("hudi", options)
    if "://" in warehouse:
        reason = (
            "Hudi's commits are made under a lock, which is a file in the table's folder: an object store has no such "
            "lock that ends with its holder. Take a folder (a path, or file:), or another format"
        )
        raise InvalidConfig(where=f"datalake.hudi.{WAREHOUSE}", reason=reason)
    return HudiLakeStorage(warehouse, options)


load = HudiLakePlugin("hudi", open_lake, commits=["*/.hoodie/*"], pointers=["*/.lakeward/*"])
