# SPDX-License-Identifier: Apache-2.0
"""Entry point of the memory lake: storages with the same `name` option share one lake within a process."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import replace

from lakeward.errors import InvalidConfig, UnknownOption
from lakeward.lake.core.storage import PositionStorage
from lakeward.lake.core.table import PositionTable
from lakeward.lake.memory.catalog import MemoryLakeCatalog
from lakeward.lake.memory.files import MemoryFiles, rewrite
from lakeward.lake.memory.log import MemoryGround, MemorySnapshotLog
from lakeward.lake.memory.table import MemoryLake
from lakeward.lake.memory.writer import MemoryLakeWriter
from lakeward.model import ColumnChange, TableInfo
from lakeward.spi import (
    DeleteEncoding,
    LakeCapabilities,
    LakeCatalog,
    LakeStorage,
    LakeWriter,
    RewriteResult,
    RewriteTask,
    WriteTask,
)

NAME = "memory"
CAPABILITIES = LakeCapabilities(
    delete_encodings=frozenset({DeleteEncoding.POSITIONS, DeleteEncoding.EQUALITY}),
    one_writer_per_bucket=False,
    time_partitions=True,
    column_changes=frozenset(ColumnChange) - {ColumnChange.FIELDS},
)

NATIVE = replace(CAPABILITIES, delete_encodings=frozenset({DeleteEncoding.NATIVE}), one_writer_per_bucket=True)
"""Capabilities with option `deletes = native`: the lake merges by key itself, as Paimon does."""

_lakes: dict[str, MemoryLake] = {}
_lock = threading.Lock()


class MemoryLakeStorage(PositionStorage[MemoryGround]):
    name = NAME

    def __init__(self, lake: MemoryLake, capabilities: LakeCapabilities = CAPABILITIES) -> None:
        self.lake, self.capabilities = lake, capabilities

    def catalog(self) -> LakeCatalog:
        return MemoryLakeCatalog(self.lake)

    def open_writer(self, task: WriteTask) -> LakeWriter:
        return MemoryLakeWriter(self.lake, task, self.capabilities.delete_encodings)

    def open_table(self, table: TableInfo) -> PositionTable[MemoryGround]:
        self.lake.table(table.path)
        log, files = MemorySnapshotLog(self.lake, table.path), MemoryFiles(self.lake, table)
        return PositionTable.of(table, log, files, self.capabilities.delete_encodings)

    def rewrite(self, task: RewriteTask, is_due: Callable[[], bool] = lambda: False) -> RewriteResult | None:
        return rewrite(self.lake, task, is_due)


def load(options: Mapping[str, str]) -> LakeStorage:
    """Opens the lake. `name` (default `default`) selects the lake, `deletes = native` how it takes changes."""
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
    """Removes a shared lake, at the end of a test."""
    with _lock:
        _lakes.pop(name, None)
