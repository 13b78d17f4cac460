# SPDX-License-Identifier: Apache-2.0
"""The door of the Delta lake: options in, `LakeStorage` out. The one option is `warehouse`, a local folder; without it
the server keeps the lake in its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from urllib.parse import unquote, urlparse

from lakeward.errors import InvalidConfig, UnknownOption
from lakeward.lake.delta.catalog import DeltaLakeCatalog
from lakeward.lake.delta.committer import DeltaLakeCommitter
from lakeward.lake.delta.log import DeltaLog
from lakeward.lake.delta.maintenance import DeltaLakeMaintenance
from lakeward.lake.delta.reader import DeltaLakeReader
from lakeward.lake.delta.rewrite import rewrite_group
from lakeward.lake.delta.writer import DeltaLakeWriter
from lakeward.model.table import TableInfo, TablePath
from lakeward.spi.capabilities import DeleteEncoding, LakeCapabilities
from lakeward.spi.lake import LakeStorage, WriteTask
from lakeward.spi.lakeplugin import LakePlugin
from lakeward.spi.rewrite import RewriteResult, RewriteTask

_WAREHOUSE = "warehouse"
CAPABILITIES = LakeCapabilities(
    delete_encodings=frozenset({DeleteEncoding.POSITIONS}),
    one_writer_per_bucket=False,
    conditional_commit=True,
    tags=True,
    add_column=True,
    partitions=True,
    composite_bucket_key=True,
    snapshot_expiry=True,
    rewrites=True,
)


class DeltaLakeStorage(LakeStorage):
    name = "delta"
    capabilities = CAPABILITIES

    def __init__(self, warehouse: Path) -> None:
        self.warehouse = warehouse

    def catalog(self) -> DeltaLakeCatalog:
        return DeltaLakeCatalog(self.warehouse, self.log)

    def open_writer(self, task: WriteTask) -> DeltaLakeWriter:
        return DeltaLakeWriter(task)

    def open_committer(self, table: TableInfo) -> DeltaLakeCommitter:
        return DeltaLakeCommitter(self.log(table.path), table)

    def open_reader(self, table: TableInfo) -> DeltaLakeReader:
        return DeltaLakeReader(self.log(table.path), table)

    def open_maintenance(self, table: TableInfo) -> DeltaLakeMaintenance:
        return DeltaLakeMaintenance(self.log(table.path), table)

    def rewrite(self, task: RewriteTask, is_due: Callable[[], bool] = lambda: False) -> RewriteResult | None:
        return rewrite_group(task, is_due)

    def log(self, path: TablePath) -> DeltaLog:
        return DeltaLog(self.warehouse / path.database / path.table, str(path))


class DeltaLakePlugin(LakePlugin):
    def defaults(self, data: Path) -> dict[str, str]:
        return {_WAREHOUSE: str((data / _WAREHOUSE).resolve())}


def open_lake(options: Mapping[str, str]) -> DeltaLakeStorage:
    """Raises `UnknownOption`, `InvalidConfig`."""
    unknown = sorted(set(options) - {_WAREHOUSE})
    if unknown:
        raise UnknownOption(where="datalake.delta", key=unknown[0], nearest=_WAREHOUSE)
    where, given = f"datalake.delta.{_WAREHOUSE}", options.get(_WAREHOUSE, "")
    parsed = urlparse(given)
    if not given or parsed.scheme not in ("", "file"):
        reason = f"{given!r} is no local folder: a commit needs one, to be the first of its version or none"
        raise InvalidConfig(where=where, reason=reason)
    return DeltaLakeStorage(Path(unquote(parsed.path) if parsed.scheme else given).resolve())


load = DeltaLakePlugin("delta", open_lake)
