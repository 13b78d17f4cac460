# SPDX-License-Identifier: Apache-2.0
"""Upkeep of one memory table: listing, references, fencing, deleting, expiry."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from lakeward.lake.memory.committer import MemoryLakeCommitter
from lakeward.lake.memory.table import MemoryLake, MemoryTable
from lakeward.model.faults import fault_point
from lakeward.model.ids import RoundId, SnapshotId
from lakeward.model.round import LakeBase
from lakeward.model.table import TableInfo
from lakeward.spi.lake import FENCE_KEY, CommitProperties, LakeMaintenance, LakeSnapshot, Precondition, StoredFile

MAX_AGE_KEY = "history.expire.max-snapshot-age-ms"
MIN_KEPT_KEY = "history.expire.min-snapshots-to-keep"
MAX_AGE_MS = 5 * 24 * 3600 * 1000
"""Five days, as Iceberg's default."""


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
        raised = {FENCE_KEY: str(base.fence + 1)}
        properties = CommitProperties(round_id=round_id, epoch=epoch, job="fence", offsets={}, generation=base.generation, extra=raised)
        committable = committer.prepare([], {}, base, properties)
        precondition = Precondition(table_id=self._info.table_id, token=base.token, starts=dict(base.offsets), fence=base.fence)
        return committer.commit(committable, precondition)

    def delete(self, paths: Iterable[str]) -> int:
        freed = 0
        for path in paths:
            fault_point("lake.before-delete", path=path)
            with self._lake.lock:
                gone = self._table().files.pop(path, None)
            freed += 0 if gone is None else gone.size_bytes
        return freed

    def expirable(self, now_ms: int) -> Sequence[SnapshotId]:
        with self._lake.lock:
            table = self._table()
            oldest = now_ms - int(table.properties.get(MAX_AGE_KEY, MAX_AGE_MS))
            spare = sorted(table.snapshots)[: -max(1, int(table.properties.get(MIN_KEPT_KEY, "1")))]
            old = [table.snapshots[n] for n in spare if table.snapshots[n].committed_at_ms < oldest]
            return [s.id for s in old if s.number not in (table.head, table.tag)]

    def expire(self, snapshots: Sequence[SnapshotId]) -> int:
        with self._lake.lock:
            table = self._table()
            numbers = {int(s) for s in snapshots} - {table.head, table.tag}
            expired = [s for s in (table.snapshots.pop(n, None) for n in sorted(numbers)) if s is not None]
        fault_point("lake.expired-metadata", snapshots=[s.id for s in expired])
        once = {path for s in expired for path in (*s.data, *s.deletes)}
        return self.delete(sorted(once - self.references()))

    def _table(self) -> MemoryTable:
        return self._lake.table(self._info.path)
