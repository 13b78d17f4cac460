# SPDX-License-Identifier: Apache-2.0
"""Upkeep of one Delta table: listing, references, fencing, deleting, expiry, clean-up of the log."""

from __future__ import annotations

import json
import os
import uuid
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from contextlib import suppress

from lakeward.errors import CommitConflict
from lakeward.lake.delta.commit.expiry import plan_expiry
from lakeward.lake.delta.commit.reconcile import DeltaGround
from lakeward.lake.delta.committer import DeltaLakeCommitter
from lakeward.lake.delta.meta.actions import EXPIRED_KEY, VERSION_KEY, AddFile, commit_info, key_of, say
from lakeward.lake.delta.meta.failures import lake_errors
from lakeward.lake.delta.meta.log import DeltaLog
from lakeward.lake.delta.meta.vector import vector_path
from lakeward.lake.delta.writer import is_round_folder
from lakeward.model.expiry import ExpiringSnapshot
from lakeward.model.faults import fault_point
from lakeward.model.ids import RoundId, SnapshotId
from lakeward.model.round import LakeBase
from lakeward.model.table import TableInfo
from lakeward.spi.lake import PROBE, CommitProperties, Expired, LakeMaintenance, LakeSnapshot, Precondition, StoredFile

_ATTEMPTS = 3


class DeltaLakeMaintenance(LakeMaintenance):
    def __init__(self, log: DeltaLog, table: TableInfo) -> None:
        self._log, self._info = log, table

    def list_files(self, prefix: str | None = None) -> Iterable[StoredFile]:
        """Of rounds' folders. A prefix names one, or begins the names in it."""
        root = f"{self._log.root}/"
        folder = self._log.root if prefix is None else prefix.rpartition("/")[0]
        with lake_errors(self._log.table, "list files of"):
            ours = (f for f in self._log.files.walk(folder) if is_round_folder(f.path.removeprefix(root)))
            return [f for f in ours if prefix is None or f.path.startswith(prefix)]

    def references(self) -> set[str]:
        return self._seen()[0]

    def fence(self, base: LakeBase, round_id: RoundId, epoch: int) -> LakeSnapshot:
        committer = DeltaLakeCommitter(self._log, self._info)
        committable = committer.prepare([], {}, base, CommitProperties.fence(base, round_id, epoch), fence_step=1)
        return committer.commit(committable, Precondition.on(self._info.table_id, base))

    def delete(self, paths: Iterable[str]) -> int:
        freed = 0
        for path in paths:
            fault_point("lake.before-delete", path=path)
            with lake_errors(self._log.table, "delete a file of"):
                freed += self._delete(path)
        return freed

    def _delete(self, path: str) -> int:
        """Bytes freed; 0 when the file is gone already. A round's folder goes with its last file."""
        freed = self._log.files.delete(path)
        with suppress(OSError):
            if is_round_folder(path.removeprefix(f"{self._log.root}/")):
                os.rmdir(path.rpartition("/")[0])
        return freed

    def probe(self) -> bool:
        path = f"{self._log.root}/{PROBE}{uuid.uuid4().hex}"
        with lake_errors(self._log.table, "write and delete a probe file of"):
            self._log.files.put(path, "lakeward doctor --probe")
            self._log.files.delete(path)
        return True

    def expirable(self, now_ms: int) -> Sequence[ExpiringSnapshot]:
        return plan_expiry(self._log, DeltaGround.load(self._log), now_ms)

    def expire(self, snapshots: Sequence[SnapshotId]) -> int:
        """Tried again when a round commits meanwhile: what may go was decided by the caller."""
        for _ in range(_ATTEMPTS):
            ground = DeltaGround.load(self._log)
            kept = {ground.head_id, ground.state.keys.get(VERSION_KEY)}
            asked = {int(s) for s in snapshots if s.isdigit() and s not in kept} & set(ground.listing.versions)
            fault_point("lake.before-expire", table=self._log.table)
            if asked <= ground.state.expired or self._forget(ground, asked):
                fault_point("lake.after-expire", table=self._log.table)
                return self.delete_expired([ExpiringSnapshot(snapshot_id=s) for s in snapshots]).bytes
        raise CommitConflict(table=self._log.table, round_id="expiry", reason="others kept committing; run it again")

    def _forget(self, ground: DeltaGround, versions: set[int]) -> bool:
        expired = sorted(v for v in ground.state.expired | versions if v >= ground.listing.versions[0])
        info = {"commitInfo": commit_info("EXPIRE")}
        said = {**ground.state.said, EXPIRED_KEY: json.dumps(expired)}
        return self._log.append(ground.state.version + 1, [info, say(said)])

    def delete_expired(self, snapshots: Sequence[ExpiringSnapshot]) -> Expired:
        listing = self._log.listing()
        retained = {e.version for e in self._log.snapshots(listing)}
        gone = [s for s in snapshots if int(s.snapshot_id) not in retained]
        if not gone:
            return Expired()
        referenced, seen = self._seen()
        freed = self.delete(sorted(seen - referenced))
        self._log.clean(min(retained, default=listing.versions[-1]))
        return Expired(snapshots=tuple(s.snapshot_id for s in gone), bytes=freed)

    def _seen(self) -> tuple[set[str], set[str]]:
        """Files that a retained snapshot has, and all that the log tells of, below the table's folder."""
        listing = self._log.listing()
        oldest = self._log.load(listing.versions[0] if listing.versions else None, listing)
        retained = [e.version for e in self._log.snapshots(listing)]
        live = {key: (oldest.version, file) for key, file in oldest.files.items()}
        seen, referenced = self._paths(oldest.files.values()), set[str]()
        for version in listing.versions[1:]:
            actions = self._log.actions(version)
            for key in (key_of(a["remove"]) for a in actions if a.get("remove") is not None):
                since, file = live.pop(key, (version, None))
                at = bisect_left(retained, since)
                if file is not None and at < len(retained) and retained[at] < version:
                    referenced |= self._paths([file])
            added = [AddFile(a["add"]) for a in actions if a.get("add") is not None]
            live.update((f.key, (version, f)) for f in added if f.key not in live)
            seen |= self._paths(added)
        return referenced | self._paths(file for _, file in live.values()), seen

    def _paths(self, files: Iterable[AddFile]) -> set[str]:
        root, paths = self._log.root, set[str]()
        for file in files:
            vector = None if file.vector is None else vector_path(root, file.vector)
            paths |= {file.location(root), *([] if vector is None else [vector])}
        return {path for path in paths if path.startswith(f"{root}/")}
