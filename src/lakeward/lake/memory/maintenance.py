# SPDX-License-Identifier: Apache-2.0
"""Upkeep of one memory table: listing, references, fencing, deleting, expiry."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

from lakeward.lake.memory.committer import MemoryLakeCommitter
from lakeward.lake.memory.expiry import plan_expiry
from lakeward.lake.memory.table import MemoryLake, MemoryTable
from lakeward.model.expiry import ExpiringSnapshot
from lakeward.model.faults import fault_point
from lakeward.model.ids import RoundId, SnapshotId
from lakeward.model.round import LakeBase
from lakeward.model.table import TableInfo
from lakeward.spi.lake import (
    CommitProperties,
    Expired,
    LakeMaintenance,
    LakeSnapshot,
    Precondition,
    StoredFile,
)


class MemoryLakeMaintenance(LakeMaintenance):
    def __init__(self, lake: MemoryLake, table: TableInfo) -> None:
        self._lake, self._info = lake, table
        lake.table(table.path)

    def list_files(self, prefix: str | None = None) -> Iterable[StoredFile]:
        with self._lake.lock:
            table = self._table()
            under = prefix if prefix is not None else f"{table.location}/data/"
            return [
                StoredFile(path=f.path, size_bytes=f.size_bytes, modified_at_ms=f.modified_at_ms)
                for path, f in sorted(table.files.items())
                if path.startswith(under)
            ]

    def references(self) -> set[str]:
        with self._lake.lock:
            return {path for s in self._table().snapshots.values() for path in (*s.data, *s.deletes)}

    def fence(self, base: LakeBase, round_id: RoundId, epoch: int) -> LakeSnapshot:
        committer = MemoryLakeCommitter(self._lake, self._info)
        committable = committer.prepare([], {}, base, CommitProperties.fence(base, round_id, epoch), fence_step=1)
        return committer.commit(committable, Precondition.on(self._info.table_id, base))

    def delete(self, paths: Iterable[str]) -> int:
        freed = 0
        for path in paths:
            fault_point("lake.before-delete", path=path)
            with self._lake.lock:
                gone = self._table().files.pop(path, None)
            freed += 0 if gone is None else gone.size_bytes
        return freed

    def expirable(self, now_ms: int) -> Sequence[ExpiringSnapshot]:
        with self._lake.lock:
            return plan_expiry(self._table(), now_ms)

    def expire(self, snapshots: Sequence[SnapshotId]) -> int:
        with self._lake.lock:
            table = self._table()
            numbers = {int(s) for s in snapshots} - {table.head, table.tag}
            expired = [s for s in (table.snapshots.pop(n, None) for n in sorted(numbers)) if s is not None]
        fault_point("lake.expired-metadata", snapshots=[s.id for s in expired])
        once = {path for s in expired for path in (*s.data, *s.deletes)}
        return self.delete(sorted(once - self.references()))

    def delete_expired(self, snapshots: Sequence[ExpiringSnapshot]) -> Expired:
        with self._lake.lock:
            gone = [s for s in snapshots if int(s.snapshot_id) not in self._table().snapshots]
        once = {path for s in gone for path in json.loads(s.trace or "[]")}
        return Expired(
            snapshots=tuple(s.snapshot_id for s in gone), bytes=self.delete(sorted(once - self.references()))
        )

    def _table(self) -> MemoryTable:
        return self._lake.table(self._info.path)
