# SPDX-License-Identifier: Apache-2.0
"""Upkeep of one Hudi table: listing, references, fencing, deleting, expiry."""

from __future__ import annotations

import os
import uuid
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress

from lakeward.lake.hudi.commit.expiry import plan_archive, plan_expiry, protected
from lakeward.lake.hudi.commit.landing import undo_unfinished
from lakeward.lake.hudi.commit.reconcile import HudiGround
from lakeward.lake.hudi.committer import HudiLakeCommitter
from lakeward.lake.hudi.meta.failures import lake_errors
from lakeward.lake.hudi.meta.slices import SeenFile
from lakeward.lake.hudi.meta.table import HudiTable
from lakeward.model.expiry import ExpiringSnapshot
from lakeward.model.faults import fault_point
from lakeward.model.ids import RoundId, SnapshotId
from lakeward.model.round import LakeBase
from lakeward.model.table import TableInfo
from lakeward.spi.lake import PROBE, CommitProperties, Expired, LakeMaintenance, LakeSnapshot, Precondition, StoredFile
from lakeward.spi.snapshotkeys import is_of


class HudiLakeMaintenance(LakeMaintenance):
    def __init__(self, table: HudiTable, info: TableInfo) -> None:
        self._table, self._info = table, info

    def list_files(self, prefix: str | None = None) -> Iterable[StoredFile]:
        """What rounds have written aside, and the data files of those that landed."""
        return self._list(HudiGround.load(self._table), prefix)

    def list_by_prefix(self, prefixes: Sequence[str]) -> Mapping[str, Sequence[StoredFile]]:
        ground = HudiGround.load(self._table) if prefixes else None
        return {} if ground is None else {prefix: self._list(ground, prefix) for prefix in prefixes}

    def references(self) -> set[str]:
        ground = HudiGround.load(self._table)
        return {s.file.path for s in _referenced(ground, self._table.expired())}

    def fence(self, base: LakeBase, round_id: RoundId, epoch: int) -> LakeSnapshot:
        committer = HudiLakeCommitter(self._table, self._info)
        committable = committer.prepare([], {}, base, CommitProperties.fence(base, round_id, epoch), fence_step=1)
        return committer.commit(committable, Precondition.on(self._info.table_id, base))

    def delete(self, paths: Iterable[str]) -> int:
        freed = 0
        for path in paths:
            fault_point("lake.before-delete", path=path)
            with lake_errors(self._table.name, "delete a file of"):
                freed += self._table.files.delete(path)
            folder, name = os.path.split(path)
            with suppress(OSError):
                os.unlink(os.path.join(folder, f".{name}.crc"))
            with suppress(OSError):
                if folder.startswith(self._table.own_folder):
                    os.rmdir(folder)
        return freed

    def probe(self) -> bool:
        path = os.path.join(self._table.own_folder, f"{PROBE}{uuid.uuid4().hex}")
        with lake_errors(self._table.name, "write and delete a probe file of"):
            self._table.files.put(path, "lakeward doctor --probe")
            self._table.files.delete(path)
        return True

    def expirable(self, now_ms: int) -> Sequence[ExpiringSnapshot]:
        return plan_expiry(HudiGround.load(self._table), self._table.expired(), now_ms)

    def expire(self, snapshots: Sequence[SnapshotId]) -> int:
        with self._table.lock():
            undo_unfinished(self._table)
            ground = HudiGround.load(self._table)
            fault_point("lake.before-expire", table=self._table.name)
            self._table.forget(set(map(str, snapshots)) - protected(ground), ground.timeline)
            fault_point("lake.after-expire", table=self._table.name)
        return self.delete_expired([ExpiringSnapshot(snapshot_id=s) for s in snapshots]).bytes

    def delete_expired(self, snapshots: Sequence[ExpiringSnapshot]) -> Expired:
        ground, expired = HudiGround.load(self._table), self._table.expired()
        retained = {i.requested for i in ground.timeline.snapshots} - expired
        gone = [s for s in snapshots if s.snapshot_id not in retained]
        if not gone:
            return Expired()
        kept = {s.file.path for s in _referenced(ground, expired)}
        victims = sorted(s.file.path for s in ground.seen if s.file.path not in kept)
        freed = self.delete(victims)
        self._archive()
        return Expired(snapshots=tuple(s.snapshot_id for s in gone), bytes=freed)

    def _archive(self) -> None:
        """After the files: a group that was taken out must be gone before the instant that says so is."""
        if not plan_archive(HudiGround.load(self._table), self._table.expired()):
            return
        with self._table.lock():
            undo_unfinished(self._table)
            ground = HudiGround.load(self._table)
            if going := plan_archive(ground, self._table.expired()):
                fault_point("hudi.before-archive", table=self._table.name)
                self._table.archive(going)
                self._table.forget((), self._table.load_timeline())

    def _list(self, ground: HudiGround, prefix: str | None) -> list[StoredFile]:
        rounds = self._table.staging("")
        with lake_errors(self._table.name, "list files of"):
            folder = rounds if prefix is None else os.path.dirname(prefix)
            aside = [f for f in self._table.files.walk(folder) if prefix is None or f.path.startswith(prefix)]
        keys = {i.requested: ground.keys_of(i) for i in ground.timeline.snapshots}
        ours = {at: said for at, said in keys.items() if said}
        if prefix is not None:
            name = prefix.removeprefix(rounds).rstrip("/") if prefix.endswith("/") else ""
            ours = {at: said for at, said in ours.items() if name and is_of(said, RoundId(name))}
        return [*aside, *(s.file.stored for s in ground.seen if s.file.instant in ours)]


def _referenced(ground: HudiGround, expired: set[str]) -> list[SeenFile]:
    """Files of every snapshot that is retained. The head's are, whatever is said of it."""
    head = ground.timeline.head
    retained = [i.completed for i in ground.timeline.snapshots if i.requested not in expired or i is head]

    def is_kept(seen: SeenFile) -> bool:
        at = bisect_left(retained, seen.since)
        return at < len(retained) and seen.is_in(retained[at])

    return [s for s in ground.seen if is_kept(s)]
