# SPDX-License-Identifier: Apache-2.0
"""The memory lake's plug: storages with the same `name` option share one lake within a process."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import replace

from lakeward.errors import InvalidConfig, UnknownOption
from lakeward.lake.memory.catalog import MemoryLakeCatalog
from lakeward.lake.memory.committer import MemoryLakeCommitter
from lakeward.lake.memory.maintenance import MemoryLakeMaintenance
from lakeward.lake.memory.reader import MemoryLakeReader
from lakeward.lake.memory.rewrite import rewrite_group
from lakeward.lake.memory.table import MemoryLake
from lakeward.lake.memory.writer import MemoryLakeWriter
from lakeward.model.table import TableInfo
from lakeward.spi.capabilities import DeleteEncoding, LakeCapabilities
from lakeward.spi.lake import (
    LakeCatalog,
    LakeCommitter,
    LakeMaintenance,
    LakeReader,
    LakeStorage,
    LakeWriter,
    WriteTask,
)
from lakeward.spi.rewrite import RewriteResult, RewriteTask

NAME = "memory"
CAPABILITIES = LakeCapabilities(
    delete_encodings=frozenset({DeleteEncoding.POSITIONS, DeleteEncoding.EQUALITY}),
    one_writer_per_bucket=False,
    conditional_commit=True,
    tags=True,
    add_column=True,
    partitions=True,
    composite_bucket_key=True,
    snapshot_expiry=True,
    rewrites=True,
)

NATIVE = replace(CAPABILITIES, delete_encodings=frozenset({DeleteEncoding.NATIVE}), one_writer_per_bucket=True)
"""With option `deletes = native`: it merges by key itself, as Paimon does."""

_lakes: dict[str, MemoryLake] = {}
_lock = threading.Lock()


class MemoryLakeStorage(LakeStorage):
    name = NAME

    def __init__(self, lake: MemoryLake, capabilities: LakeCapabilities = CAPABILITIES) -> None:
        self.lake, self.capabilities = lake, capabilities

    def catalog(self) -> LakeCatalog:
        return MemoryLakeCatalog(self.lake)

    def open_writer(self, task: WriteTask) -> LakeWriter:
        return MemoryLakeWriter(self.lake, task, self.capabilities.delete_encodings)

    def open_committer(self, table: TableInfo) -> LakeCommitter:
        return MemoryLakeCommitter(self.lake, table, self.capabilities.delete_encodings)

    def open_reader(self, table: TableInfo) -> LakeReader:
        return MemoryLakeReader(self.lake, table)

    def open_maintenance(self, table: TableInfo) -> LakeMaintenance:
        return MemoryLakeMaintenance(self.lake, table)

    def rewrite(self, task: RewriteTask, is_due: Callable[[], bool] = lambda: False) -> RewriteResult | None:
        return rewrite_group(self.lake, task, is_due)


def load(options: Mapping[str, str]) -> LakeStorage:
    """The entry point. `name` (default `default`) picks the lake, `deletes = native` how it takes changes."""
    unknown = sorted(set(options) - {"name", "deletes"})
    if unknown:
        raise UnknownOption(where="datalake.memory", key=unknown[0], nearest="name")
    deletes = options.get("deletes", "positions")
    if deletes not in ("positions", "native"):
        raise InvalidConfig(where="datalake.memory.deletes", reason=f"{deletes!r} is not one of positions, native")
    lake = shared_lake(options.get("name", "default"))
    return MemoryLakeStorage(lake, NATIVE if deletes == "native" else CAPABILITIES)


def shared_lake(name: str) -> MemoryLake:
    with _lock:
        return _lakes.setdefault(name, MemoryLake())


def forget_lake(name: str) -> None:
    """Lets go of a shared lake: for tests that end."""
    with _lock:
        _lakes.pop(name, None)
