# SPDX-License-Identifier: Apache-2.0
"""Upkeep of one Lance table: listing, references, fencing, deleting, expiry."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Sequence

import lance

from lakeward.errors import CommitConflict, SnapshotGone
from lakeward.lake.lance.committer import LanceLakeCommitter
from lakeward.lake.lance.datafile import PREFIX, is_ours
from lakeward.lake.lance.deletions import is_deletion_of
from lakeward.lake.lance.expiry import kept_versions, plan_expiry
from lakeward.lake.lance.failures import lake_errors
from lakeward.lake.lance.reconcile import LanceGround
from lakeward.lake.lance.table import DATA, DELETIONS, LanceTable
from lakeward.lake.lance.versions import EXPIRED_KEY
from lakeward.model.expiry import ExpiringSnapshot
from lakeward.model.faults import fault_point
from lakeward.model.ids import RoundId, SnapshotId
from lakeward.model.round import LakeBase
from lakeward.model.table import TableInfo
from lakeward.spi.lake import PROBE, CommitProperties, Expired, LakeMaintenance, LakeSnapshot, Precondition, StoredFile

_ATTEMPTS = 3


class LanceLakeMaintenance(LakeMaintenance):
    def __init__(self, table: LanceTable, info: TableInfo) -> None:
        self._table, self._info = table, info

    def list_files(self, prefix: str | None = None) -> Iterable[StoredFile]:
        """Data files by their names, deletion files by their ids. A prefix that ends with a round names both."""
        root = self._table.root
        data, name = f"{root}/{DATA}/", (prefix or "").removeprefix(f"{root}/{DATA}/{PREFIX}")
        round_id = RoundId(name.removesuffix("-")) if name.endswith("-") else None
        with lake_errors(self._table.name, "list files of"):
            files = [f for f in self._table.files.walk(f"{root}/{DATA}") if is_ours(f.path.removeprefix(data))]
            files = [f for f in files if prefix is None or f.path.startswith(prefix)]
            if prefix is None or round_id is not None:
                deletions = self._table.files.walk(f"{root}/{DELETIONS}")
                files += [f for f in deletions if is_deletion_of(f.path, root, round_id)]
        return files

    def references(self) -> set[str]:
        ground = LanceGround.load(self._table)
        return self._paths(v for v in ground.versions if v not in ground.expired)

    def fence(self, base: LakeBase, round_id: RoundId, epoch: int) -> LakeSnapshot:
        committer = LanceLakeCommitter(self._table, self._info)
        committable = committer.prepare([], {}, base, CommitProperties.fence(base, round_id, epoch), fence_step=1)
        return committer.commit(committable, Precondition.on(self._info.table_id, base))

    def delete(self, paths: Iterable[str]) -> int:
        freed = 0
        for path in paths:
            fault_point("lake.before-delete", path=path)
            with lake_errors(self._table.name, "delete a file of"):
                freed += self._table.files.delete(path)
        return freed

    def probe(self) -> bool:
        path = f"{self._table.root}/{PROBE}{uuid.uuid4().hex}"
        with lake_errors(self._table.name, "write and delete a probe file of"):
            self._table.files.put(path, "lakeward doctor --probe")
            self._table.files.delete(path)
        return True

    def expirable(self, now_ms: int) -> Sequence[ExpiringSnapshot]:
        return plan_expiry(self._table, LanceGround.load(self._table), now_ms)

    def expire(self, snapshots: Sequence[SnapshotId]) -> int:
        """Tried again when a round commits meanwhile: what may go was decided by the caller."""
        for _ in range(_ATTEMPTS):
            ground = LanceGround.load(self._table)
            asked = {int(s) for s in snapshots if s.isdigit()}.intersection(ground.versions)
            asked -= kept_versions(self._table, ground)
            fault_point("lake.before-expire", table=self._table.name)
            if asked <= ground.expired or self._forget(ground, asked):
                fault_point("lake.after-expire", table=self._table.name)
                return self.delete_expired([ExpiringSnapshot(snapshot_id=s) for s in snapshots]).bytes
        raise CommitConflict(table=self._table.name, round_id="expiry", reason="others kept committing; run it again")

    def _forget(self, ground: LanceGround, versions: set[int]) -> bool:
        update = lance.LanceOperation.UpdateMap({EXPIRED_KEY: json.dumps(sorted(ground.expired | versions))})
        return self._table.commit(ground.version, lance.LanceOperation.UpdateConfig(config_updates=update))

    def tag(self, name: str, snapshot_id: SnapshotId) -> None:
        ground = LanceGround.load(self._table)
        gone = SnapshotGone.before_tag(table=self._table.name, snapshot=snapshot_id, tag=name)
        if int(snapshot_id) not in set(ground.versions) - ground.expired:
            raise gone
        try:
            self._table.tag(name, int(snapshot_id))
        except SnapshotGone as error:
            raise gone from error

    def untag(self, name: str) -> None:
        self._table.tags.delete(name)

    def delete_expired(self, snapshots: Sequence[ExpiringSnapshot]) -> Expired:
        """Files first, the manifests that name them last: what is cut short is found again."""
        ground = LanceGround.load(self._table)
        retained = {v.version for v in ground.snapshots(self._table)}
        gone = [s for s in snapshots if int(s.snapshot_id) not in retained]
        if not gone:
            return Expired()
        oldest = min(retained, default=ground.version)
        kept = {*retained, *kept_versions(self._table, ground)}
        doomed = [v for v in ground.versions if v not in kept and (v in ground.expired or v < oldest)]
        needed = self._paths(v for v in ground.versions if v not in doomed)
        freed = self.delete(sorted(self._paths(doomed) - needed))
        self.delete(self._table.path(v) for v in doomed)
        return Expired(snapshots=tuple(s.snapshot_id for s in gone), bytes=freed)

    def _paths(self, versions: Iterable[int]) -> set[str]:
        return {path for version in versions for path in self._table.paths(version)}
