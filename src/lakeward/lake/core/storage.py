# SPDX-License-Identifier: Apache-2.0
"""Opens committers, readers and maintenance of a lake format that is built on the commit protocol."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Generic

from lakeward.errors import CommitConflict, SnapshotGone
from lakeward.lake.core.committer import CoreCommitter
from lakeward.lake.core.log import G, plan_expiry
from lakeward.lake.core.reader import PositionReader
from lakeward.lake.core.table import LakeTable, PositionTable
from lakeward.model import ExpiringSnapshot, LakeBase, RoundId, SnapshotId, TableInfo, fault_point
from lakeward.spi import (
    CommitProperties,
    Expired,
    LakeCommitter,
    LakeMaintenance,
    LakeReader,
    LakeSnapshot,
    LakeStorage,
    Precondition,
    StoredFile,
    SupportsSnapshotNames,
)

_ATTEMPTS = 3


class CoreMaintenance(LakeMaintenance, Generic[G]):
    def __init__(self, table: LakeTable[G]) -> None:
        self._table, self._info, self._log = table, table.info, table.log

    def list_files(self, prefix: str | None = None) -> Iterable[StoredFile]:
        return self._table.files.list_files(prefix)

    def list_by_prefix(self, prefixes: Sequence[str]) -> Mapping[str, Sequence[StoredFile]]:
        return self._table.files.list_by_prefix(prefixes)

    def references(self) -> set[str]:
        return self._log.references(self._log.load())

    def fence(self, base: LakeBase, round_id: RoundId, epoch: int) -> LakeSnapshot:
        committer = self._open_committer()
        committable = committer.prepare([], {}, base, CommitProperties.fence(base, round_id, epoch), fence_step=1)
        return committer.commit(committable, Precondition.on(self._info.table_id, base))

    def _open_committer(self) -> CoreCommitter[G]:
        return CoreCommitter(self._table)

    def delete(self, paths: Iterable[str]) -> int:
        freed = 0
        for path in paths:
            fault_point("lake.before-delete", path=path)
            freed += self._table.files.delete(path)
        return freed

    def probe(self) -> None:
        self._table.files.probe()

    def expirable(self, now_ms: int) -> Sequence[ExpiringSnapshot]:
        return plan_expiry(self._log, self._log.load(), now_ms)

    def expire(self, snapshots: Sequence[SnapshotId]) -> int:
        """Tries again when a round commits meanwhile; the caller decided which snapshots expire."""
        for _ in range(_ATTEMPTS):
            ground = self._log.load()
            protected = self._log.protected(ground)
            asked = [s for s in snapshots if s not in protected and self._log.has(ground, s)]
            leaving = [self._log.expiring(ground, s) for s in asked]
            fault_point("lake.before-expire", table=self._log.table)
            if self._log.forget(ground, asked):
                fault_point("lake.after-expire", table=self._log.table)
                unexpired = [s for s in snapshots if s not in asked]
                return self.delete_expired([*leaving, *(ExpiringSnapshot(snapshot_id=s) for s in unexpired)]).bytes
        raise CommitConflict(
            table=self._log.table, round_id="expiry", reason="other commits kept landing; run it again"
        )

    def delete_expired(self, snapshots: Sequence[ExpiringSnapshot]) -> Expired:
        """Deletes files first and the metadata that names them last: an interrupted deletion can be repeated."""
        ground = self._log.load()
        expired = [s for s in snapshots if not self._log.is_retained(ground, s.snapshot_id)]
        if not expired:
            return Expired()
        freed = self.delete(self._log.only_in(ground, expired))
        self.delete(self._log.clean(ground, expired))
        return Expired(snapshots=tuple(s.snapshot_id for s in expired), bytes=freed)


class NamingMaintenance(CoreMaintenance[G]):
    """Maintenance of a format whose log can name snapshots."""

    def __init__(self, table: LakeTable[G], names: SupportsSnapshotNames) -> None:
        super().__init__(table)
        self._names = names

    def tag(self, name: str, snapshot_id: SnapshotId) -> None:
        try:
            self._log.get(self._log.load(), snapshot_id)
            self._names.tag(name, snapshot_id)
        except SnapshotGone as error:
            raise SnapshotGone.before_tag(table=self._log.table, snapshot=snapshot_id, tag=name) from error

    def untag(self, name: str) -> None:
        self._names.untag(name)


class CoreStorage(LakeStorage, Generic[G]):
    @abstractmethod
    def open_table(self, table: TableInfo) -> LakeTable[G]:
        """Opens a table. Cheap: loads nothing."""

    def open_committer(self, table: TableInfo) -> LakeCommitter:
        return CoreCommitter(self.open_table(table))

    def open_maintenance(self, table: TableInfo) -> LakeMaintenance:
        opened = self.open_table(table)
        names = opened.log
        return NamingMaintenance(opened, names) if isinstance(names, SupportsSnapshotNames) else CoreMaintenance(opened)


class PositionStorage(CoreStorage[G]):
    """Storage of a format whose rows are deleted by position."""

    @abstractmethod
    def open_table(self, table: TableInfo) -> PositionTable[G]: ...

    def open_reader(self, table: TableInfo) -> LakeReader:
        return PositionReader(self.open_table(table))
