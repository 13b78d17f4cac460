# SPDX-License-Identifier: Apache-2.0
"""Storage of the Lance tables of one warehouse."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache

from lakeward.lake.core.storage import PositionStorage
from lakeward.lake.core.table import PositionTable
from lakeward.lake.lance.catalog import LanceLakeCatalog
from lakeward.lake.lance.files import LanceFiles, rewrite
from lakeward.lake.lance.log import LanceGround, LanceSnapshotLog
from lakeward.lake.lance.table import LanceTable, VersionCache
from lakeward.lake.lance.writer import LanceLakeWriter
from lakeward.lake.warehouse import Warehouse
from lakeward.model import ColumnChange, TableInfo, TablePath
from lakeward.spi import DeleteEncoding, LakeCapabilities, RewriteResult, RewriteTask, WriteTask

_CACHED = 64
"""The most tables whose versions are cached in memory."""

_STORAGE_KEYS = {
    "s3.endpoint": "aws_endpoint",
    "s3.region": "aws_region",
    "s3.access-key": "aws_access_key_id",
    "s3.secret-key": "aws_secret_access_key",
    "s3.security-token": "aws_session_token",
}
"""Our options -> the library's."""

CAPABILITIES = LakeCapabilities(
    delete_encodings=frozenset({DeleteEncoding.POSITIONS}),
    one_writer_per_bucket=False,
    time_partitions=True,
    column_changes=frozenset(ColumnChange) - {ColumnChange.WIDEN, ColumnChange.DEFAULT, ColumnChange.FIELDS},
)


class LanceLakeStorage(PositionStorage[LanceGround]):
    name = "lance"
    capabilities = CAPABILITIES

    def __init__(self, warehouse: str, options: Mapping[str, str] | None = None) -> None:
        self.warehouse = Warehouse(self.name, warehouse, options or {}, suffix=".lance")
        """Tables of a warehouse; engines identify a Lance table by its folder's name."""

        self._cache = lru_cache(_CACHED)(lambda _root: VersionCache())

    @property
    def storage_options(self) -> dict[str, str]:
        """Storage options as the library spells them."""
        options = self.warehouse.options
        given = {name: options[key] for key, name in _STORAGE_KEYS.items() if key in options}
        is_plain = given.get("aws_endpoint", "").startswith("http://")
        return {**given, **({"allow_http": "true"} if is_plain else {})}

    def catalog(self) -> LanceLakeCatalog:
        return LanceLakeCatalog(self.warehouse, self.table)

    def open_writer(self, task: WriteTask) -> LanceLakeWriter:
        return LanceLakeWriter(task, self.storage_options)

    def open_table(self, table: TableInfo) -> PositionTable[LanceGround]:
        lake_table = self.table(table.path)
        return PositionTable.of(table, LanceSnapshotLog(lake_table), LanceFiles(lake_table, table))

    def rewrite(self, task: RewriteTask, is_due: Callable[[], bool] = lambda: False) -> RewriteResult | None:
        return rewrite(self.table(task.table.path), task, is_due)

    def table(self, path: TablePath) -> LanceTable:
        root, files = self.warehouse.folder(path), self.warehouse.files_of(path)
        return LanceTable(files, root, str(path), self.storage_options, self._cache(root))
