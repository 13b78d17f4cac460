# SPDX-License-Identifier: Apache-2.0
"""State shared by the coordinator's parts: the records, the lock, the durable store, and the moves between states."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from lakeward.coordinator.options import CoordinatorOptions
from lakeward.coordinator.state.jobs import JobRecord
from lakeward.coordinator.state.record import LagDrop, LakeSide, TableRecord
from lakeward.coordinator.state.statestore import StateStore, StoredSide
from lakeward.coordinator.state.work import Lease, Work
from lakeward.errors import SideNotFound, TableNotFound
from lakeward.model import Clock, JobName, SideId, SideName, TableId, TablePath, TableState, WorkKind, check_transition
from lakeward.protocol.codec import encode
from lakeward.protocol.views import RoundStatus
from lakeward.spi import HotAdmin, LakeStorage

MOST_LAG_DROPS = 10_000
"""Commits between two samples of the page's history."""

STANDS = frozenset({TableState.PAUSED, TableState.QUARANTINED, TableState.DISABLED})
"""Nobody works on a side in one of these."""


class Board:
    """Records in memory, changed under `change()` only; what changed is on disk before `change()` ends.

    The lock is never held while a lake is asked. Calls into the hot store under it are limited to those it answers from
    memory."""

    def __init__(
        self,
        store: StateStore,
        hot: HotAdmin,
        lakes: Callable[[str], LakeStorage],
        clock: Clock,
        options: CoordinatorOptions,
    ) -> None:
        self.store, self.hot, self.lakes, self.clock, self.options = store, hot, lakes, clock, options
        self.lock = threading.RLock()
        self.tables: dict[TableId, TableRecord] = {}
        self.by_path: dict[TablePath, TableId] = {}
        self._sides: dict[SideId, LakeSide] = {}
        self._leased: dict[tuple[SideId, WorkKind], tuple[LakeSide, Work]] = {}
        self.jobs: dict[JobName, JobRecord] = {}
        self._dirty: dict[SideId, LakeSide] = {}
        self._dirty_jobs: dict[JobName, JobRecord] = {}
        self._ended: list[tuple[SideId, RoundStatus]] = []
        self.coordinator_epoch = 0
        self.lag_drops: deque[LagDrop] = deque(maxlen=MOST_LAG_DROPS)

    @contextmanager
    def change(self) -> Iterator[None]:
        """Writes the records touched inside in one transaction. If writing fails they stay dirty and are written with
        the next one; the caller gets the error, so that state that is not on disk never becomes visible."""
        with self.lock:
            try:
                yield
            finally:
                self._flush()

    def _flush(self) -> None:
        """One transaction, so one wait for the disk."""
        if not self._dirty and not self._dirty_jobs and not self._ended:
            return
        with self.store.transaction():
            self.store.save_sides([_stored(s) for s in self._dirty.values()], self.clock.now_ms())
            for job in self._dirty_jobs.values():
                self.store.save_job(job.name, job.to_json())
            for side, ended in self._ended:
                self.store.rounds.append(side, ended.kind, ended.round_id, ended.ended_at_ms, encode(ended))
                self.store.rounds.add_cost(side, ended)
        self._dirty.clear()
        self._dirty_jobs.clear()
        self._ended.clear()

    def touch(self, side: LakeSide) -> None:
        self._dirty[side.id] = side

    def save(self, side: LakeSide) -> None:
        """Inside a transaction of the store: this side goes to disk with it."""
        self.store.save_sides([_stored(side)], self.clock.now_ms())

    def add_round(self, side: LakeSide, ended: RoundStatus) -> None:
        self._ended.append((side.id, ended))

    def touch_job(self, job: JobRecord) -> None:
        self._dirty_jobs[job.name] = job

    def add(self, record: TableRecord, *, is_stored: bool = False) -> None:
        """`is_stored`: its sides are on disk as they are."""
        self.tables[record.table_id] = record
        self.by_path[record.info.path] = record.table_id
        for side in record.sides.values():
            self._sides[side.id] = side
            if not is_stored:
                self.touch(side)

    def add_side(self, side: LakeSide) -> None:
        self._sides[side.id] = side
        self.touch(side)

    def remove_side(self, side: LakeSide) -> None:
        """Removes a side of a table that stays."""
        del self._sides[side.id], side.table.sides[side.name]

    def remove(self, record: TableRecord) -> None:
        del self.tables[record.table_id]
        for side in record.sides.values():
            del self._sides[side.id]
        if self.by_path.get(record.info.path) == record.table_id:
            del self.by_path[record.info.path]

    def find_table(self, path: TablePath) -> TableRecord:
        """Raises `TableNotFound`, `TableLoading`."""
        table_id = self.by_path.get(path)
        if table_id is None:
            if any(load.table.path == path for load in self.hot.loads()):
                self.hot.load_table(path)
            raise TableNotFound(table=str(path))
        return self.tables[table_id]

    def find(self, path: TablePath, name: SideName | None = None) -> LakeSide:
        """The named side, or the table's first. Raises `TableNotFound`, `SideNotFound`."""
        record = self.find_table(path)
        if name is None:
            return record.first
        if name not in record.sides:
            raise SideNotFound(table=str(path), side=str(name), sides=", ".join(map(str, record.sides)))
        return record.sides[name]

    def side(self, side: SideId) -> LakeSide | None:
        return self._sides.get(side)

    def sides(self) -> list[LakeSide]:
        """Sides of every table. The lock may be held or not."""
        return list(self._sides.values())

    def leased(self, job: JobName | None = None) -> list[tuple[LakeSide, Work, Lease]]:
        """Leases of one job, or of all. The lock may be held or not."""
        held = [(side, work, work.lease) for side, work in list(self._leased.values())]
        return [(s, w, lease) for s, w, lease in held if lease is not None and job in (None, lease.job)]

    def lease(self, side: LakeSide, work: Work, lease: Lease) -> None:
        """One of the two places where leases change, so that who holds what is found without a look at every side."""
        work.lease = lease
        self._leased[side.id, work.kind] = (side, work)
        self.touch(side)

    def end_lease(self, side: LakeSide, work: Work) -> None:
        work.lease = None
        self._leased.pop((side.id, work.kind), None)
        self.touch(side)

    def is_current(self, side: LakeSide) -> bool:
        """False once it was dropped, also if its table was created again."""
        return self.side(side.id) is side

    def enter(self, side: LakeSide, target: TableState, reason: str | None = None) -> None:
        """The one place where a state changes. Raises `IllegalTransition` before anything moved."""
        check_transition(side.label, side.state, target)
        side.state, side.reason = target, reason
        for work, _ in side.leases():
            if target in STANDS or target is TableState.DROPPED or work is side.tier:
                self.end_lease(side, work)
        side.pending_since_ms = side.pending_since = None
        if target is TableState.PENDING:
            side.tier.next_epoch()
            side.pending_since_ms, side.pending_since = self.clock.now_ms(), self.clock.monotonic()
            side.tier.retry_at_ms = side.tier.retry_at = None
        self.touch(side)

    def look(self, side: LakeSide) -> None:
        """Asks the hot store what waits."""
        side.see(self.hot.waiting(side.info, side.committed), self.clock.monotonic())

    def look_after_commit(self, side: LakeSide) -> None:
        """As `look`, and notes from where to where the lag fell."""
        now_ms, now = self.clock.now_ms(), self.clock.monotonic()
        before = side.lag_ms(now_ms, now) or 0
        self.look(side)
        after = side.lag_ms(now_ms, now) or 0
        drop = LagDrop(path=side.info.path, side=side.name, at_ms=now_ms, before_ms=before, after_ms=after)
        self.lag_drops.append(drop)

    def retry_after(self, side: LakeSide, work: Work, wait_ms: int) -> None:
        """When work that failed may be tried again."""
        work.retry_at_ms = self.clock.now_ms() + wait_ms
        work.retry_at = self.clock.monotonic() + wait_ms / 1_000
        self.touch(side)

    def lake_of(self, side: LakeSide) -> LakeStorage | None:
        """The lake of a side that is on; None otherwise."""
        if not side.options.enabled or side.options.format is None:
            return None
        return self.lakes(side.options.lake)


def _stored(side: LakeSide) -> StoredSide:
    assert side.state is not None
    return StoredSide(id=side.id, path=str(side.info.path), state=side.state, body=side.to_json())
