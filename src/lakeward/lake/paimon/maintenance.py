# SPDX-License-Identifier: Apache-2.0
"""Upkeep of one Paimon table: listing, references, fencing, deleting, expiry."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence

from lakeward.errors import SnapshotGone
from lakeward.lake.paimon.commit.snapshotfile import put_tag
from lakeward.lake.paimon.committer import PaimonLakeCommitter
from lakeward.lake.paimon.meta.connection import PaimonConnection, lake_errors
from lakeward.lake.paimon.meta.expiry import expiring, plan_expiry, protected
from lakeward.lake.paimon.meta.history import PaimonHistory, snapshot_path, table_folder, tag_path
from lakeward.lake.paimon.meta.manifests import Manifests
from lakeward.lake.paimon.meta.names import has_prefix, is_ours
from lakeward.lake.s3files import files_of
from lakeward.model.expiry import ExpiringSnapshot
from lakeward.model.faults import fault_point
from lakeward.model.ids import RoundId, SnapshotId
from lakeward.model.round import LakeBase
from lakeward.model.table import TableInfo
from lakeward.spi.commit import CommitProperties, Precondition
from lakeward.spi.lake import PROBE, LakeMaintenance
from lakeward.spi.lakefile import Expired, LakeSnapshot, StoredFile


class PaimonLakeMaintenance(LakeMaintenance):
    def __init__(self, connection: PaimonConnection, table: TableInfo) -> None:
        self._connection, self._info, self._where = connection, table, str(table.path)

    def list_files(self, prefix: str | None = None) -> Iterable[StoredFile]:
        found = self._listed()
        return [f for f in found if prefix is None or has_prefix(f.name, prefix)]

    def list_by_prefix(self, prefixes: Sequence[str]) -> Mapping[str, Sequence[StoredFile]]:
        found = list(self._listed()) if prefixes else []
        return {prefix: [f for f in found if has_prefix(f.name, prefix)] for prefix in prefixes}

    def references(self) -> set[str]:
        lake_table = self._connection.load(self._info.path)
        history = PaimonHistory.of(lake_table, self._info)
        return self._reached(history, Manifests(lake_table))

    def fence(self, base: LakeBase, round_id: RoundId, epoch: int) -> LakeSnapshot:
        committer = PaimonLakeCommitter(self._connection, self._info)
        committable = committer.prepare([], {}, base, CommitProperties.fence(base, round_id, epoch), fence_step=1)
        return committer.commit(committable, Precondition.on(self._info.table_id, base))

    def delete(self, paths: Iterable[str]) -> int:
        freed, files = 0, files_of(self._connection.load(self._info.path))
        for path in paths:
            fault_point("lake.before-delete", path=path)
            with lake_errors(self._where, "delete files of"):
                freed += files.delete(path)
        return freed

    def probe(self) -> bool:
        lake_table = self._connection.load(self._info.path)
        files, path = files_of(lake_table), f"{table_folder(lake_table)}/{PROBE}{uuid.uuid4().hex}"
        with lake_errors(self._where, "write and delete a probe file of"):
            files.put(path, "lakeward doctor --probe")
            files.delete(path)
        return True

    def expirable(self, now_ms: int) -> Sequence[ExpiringSnapshot]:
        lake_table = self._connection.load(self._info.path)
        return plan_expiry(PaimonHistory.of(lake_table, self._info), lake_table.table_schema.options, now_ms)

    def expire(self, snapshots: Sequence[SnapshotId]) -> int:
        history = self._history()
        numbers = sorted({int(s) for s in snapshots} & set(history.numbers) - protected(history))
        going = [s for s in map(history.find, numbers) if s is not None]
        for snapshot in going:
            with lake_errors(self._where, "expire snapshots of"):
                history.files.delete(snapshot_path(history.folder, snapshot.number))
        fault_point("lake.expired-metadata", snapshots=[s.id for s in going])
        return self.delete_expired([expiring(s) for s in going]).bytes

    def tag(self, name: str, snapshot_id: SnapshotId) -> None:
        history = self._history()
        try:
            snapshot = history.get(snapshot_id)
        except SnapshotGone as error:
            raise SnapshotGone.before_tag(table=self._where, snapshot=snapshot_id, tag=name) from error
        with lake_errors(self._where, "tag a snapshot of"):
            put_tag(history.files, history.folder, name, snapshot)

    def untag(self, name: str) -> None:
        """What only it had is left to orphan removal, where others' expiry took the snapshot meanwhile."""
        history = self._history()
        with lake_errors(self._where, "take a tag off"):
            history.files.delete(tag_path(history.folder, name))

    def delete_expired(self, snapshots: Sequence[ExpiringSnapshot]) -> Expired:
        lake_table = self._connection.load(self._info.path)
        history, manifests = PaimonHistory.of(lake_table, self._info), Manifests(lake_table)
        gone = [s for s in snapshots if int(s.snapshot_id) not in history.numbers]
        lists = {name for s in gone for name in json.loads(s.trace or "[]")}
        with lake_errors(self._where, "expire snapshots of"):
            traced = manifests.reach(lists, is_gone_ok=True)
            victims = traced.deletion_order(self._reached(history, manifests)) if lists else []
        return Expired(snapshots=tuple(s.snapshot_id for s in gone), bytes=self.delete(victims))

    def _reached(self, history: PaimonHistory, manifests: Manifests) -> set[str]:
        """Of every snapshot and tag. What cannot be read is raised: nothing may be deleted then."""
        lists = {name for snapshot in [*history.newest_first(), *history.tags()] for name in snapshot.lists}
        with lake_errors(self._where, "read manifests of"):
            return manifests.reach(lists).all

    def _history(self) -> PaimonHistory:
        return PaimonHistory.of(self._connection.load(self._info.path), self._info)

    def _listed(self) -> Iterator[StoredFile]:
        lake_table = self._connection.load(self._info.path)
        with lake_errors(self._where, "list files of"):
            yield from (f for f in files_of(lake_table).walk(table_folder(lake_table)) if is_ours(f.name))
