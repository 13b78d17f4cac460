# SPDX-License-Identifier: Apache-2.0
"""The scheduling tick: reads backlogs, sweeps leases that ran out, queues what is due, and picks what a job gets."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from lakeward.coordinator.schedule.estimate import unknown_round_ms
from lakeward.coordinator.schedule.load import Demand, PoolLoad, Running
from lakeward.coordinator.schedule.planner import plan_due, plan_starts
from lakeward.coordinator.state.board import Board
from lakeward.coordinator.state.jobs import JobRecord
from lakeward.coordinator.state.record import Lease, TableRecord
from lakeward.model.ids import TableId
from lakeward.model.offsets import OffsetMap
from lakeward.model.state import TableState
from lakeward.protocol.heartbeat import HandedOut
from lakeward.spi.hotadmin import Waiting

_S = TableState
_WAITS = frozenset({_S.SCHEDULED, _S.PENDING, _S.FAILED})


REPLANNED_TABLES = 200
"""A plan of so many tables takes a few milliseconds."""

QUEUED_AT_ONCE = 50
"""Tables queued in one transaction. A heartbeat waits for one such transaction at most, however many tables fall due at
once.
"""

RETRY_S = 0.5
"""When a job with room should ask again while tables are queued and none is planned to start: a tick has passed by
then.
"""

LOOKED_AT_ONCE = 100
"""Tables whose backlogs are taken over while the lock is held once."""

BREATH_S = 0.0005
"""Between two of them, so that who waits for the lock gets it."""


@dataclass(frozen=True, kw_only=True)
class PoolPlan:
    due: tuple[str, ...]
    next_due_ms: float | None
    starts: tuple[str, ...]
    slots: int


def _plan(load: PoolLoad) -> PoolPlan:
    due, later = plan_due(load)
    starts = plan_starts(load, load.free, frozenset(due))
    return PoolPlan(due=tuple(due), next_due_ms=later, starts=tuple(starts), slots=load.slots)


class Schedule:
    def __init__(self, board: Board) -> None:
        self._board = board
        self._ticking = threading.Lock()
        self.has_thread = False
        """Ticks come by themselves, so no heartbeat has to make one."""

        self._ticked_at = float("-inf")
        self._swept_at = float("-inf")
        self.next_due_ms: dict[str, float] = {}
        """Pool -> when its next table falls due."""

        self._ready: dict[str, list[str]] = {}
        """Pool -> tables to hand out next, in order, as last planned."""

        self._planned_slots: dict[str, int] = {}

    # ---- the tick ----
    def tick_if_due(self) -> None:
        if not self.has_thread and self._board.clock.monotonic() - self._ticked_at >= self._board.options.tick_s:
            self.tick()

    def tick(self) -> None:
        """Heartbeats go on meanwhile: backlogs are asked and plans are made without the board's lock."""
        with self._ticking:
            self._look()
            pools = {r.options.pool for r in list(self._board.tables.values())}
            for pool, plan in {pool: _plan(self.load(pool)) for pool in pools}.items():
                self._apply(pool, plan, pause_s=BREATH_S)

    def _look(self) -> None:
        board = self._board
        self._ticked_at = board.clock.monotonic()
        with board.lock:
            asked = [
                (r, r.info, r.committed) for r in board.tables.values() if r.state in _WAITS or r.state is _S.TIERING
            ]
        for first in range(0, len(asked), LOOKED_AT_ONCE):
            if first:
                time.sleep(BREATH_S)
            part = asked[first : first + LOOKED_AT_ONCE]
            self._see([(r, board.hot.waiting(info, committed), committed) for r, info, committed in part])
        seen = {r.table_id for r, _, _ in asked}
        with board.change():
            for record in board.tables.values():
                if record.table_id not in seen:
                    self._count_miss(record)
            self._sweep()
            self._retry_failed()

    def _see(self, fresh: Sequence[tuple[TableRecord, Waiting, OffsetMap]]) -> None:
        with self._board.change():
            for record, waiting, committed in fresh:
                if record.committed is committed:
                    record.see(waiting, self._ticked_at)
                self._count_miss(record)

    def _count_miss(self, record: TableRecord) -> None:
        """Once for each oldest row that waited too long, whatever state the table is in."""
        oldest = record.waiting.oldest_at_ms
        if oldest is None or record.counted_oldest_ms == oldest:
            return
        deadline = self.deadline_ms(record)
        if deadline is not None and deadline < self._board.clock.now_ms():
            record.counted_oldest_ms = oldest
            record.misses += 1
            self._board.touch(record)

    def deadline_ms(self, record: TableRecord) -> int | None:
        """When the oldest waiting row breaks the freshness, in today's wall time; None: nothing waits, or the lake is
        off.
        """
        if record.waiting.oldest_at_ms is None or not record.options.enabled:
            return None
        now_ms = self._board.clock.now_ms()
        lag = record.lag_ms(now_ms, self._board.clock.monotonic())
        return None if lag is None else now_ms - lag + record.options.freshness_ms

    def _sweep(self) -> None:
        now = self._board.clock.monotonic()
        if now - self._swept_at < self._board.options.sweep_s:
            return
        self._swept_at = now
        for record in self._board.tables.values():
            if record.state is _S.TIERING and record.lease is not None and now >= record.lease.until:
                self._board.enter(
                    record, _S.PENDING, f"job {record.lease.job} was silent for {self._board.options.lease_s:g} s"
                )

    def _retry_failed(self) -> None:
        now = self._board.clock.monotonic()
        for record in self._board.tables.values():
            if record.state is _S.FAILED and record.lake_seen and (record.retry_at is None or record.retry_at <= now):
                self._board.enter(record, _S.PENDING, record.reason)

    def _apply(self, pool: str, plan: PoolPlan, *, pause_s: float = 0.0) -> None:
        """A plan is made without the lock: what changed meanwhile is left alone."""
        for first in range(0, len(plan.due), QUEUED_AT_ONCE):
            if first:
                time.sleep(pause_s)
            with self._board.change():
                self._queue(plan.due[first : first + QUEUED_AT_ONCE])
        with self._board.lock:
            self.next_due_ms.pop(pool, None)
            if plan.next_due_ms is not None:
                self.next_due_ms[pool] = plan.next_due_ms
            self._ready[pool] = list(plan.starts)
            self._planned_slots[pool] = plan.slots

    def _queue(self, due: Iterable[str]) -> None:
        for key in due:
            record = self._board.tables.get(TableId(key))
            if record is not None and record.state is _S.SCHEDULED:
                self._board.enter(record, _S.PENDING)

    # ---- what the planner sees ----
    def load(self, pool: str) -> PoolLoad:
        """The lock may be held or not: a record that changes meanwhile is seen as it was or as it is."""
        board, now_ms = self._board, self._board.clock.now_ms()
        records = [r for r in list(board.tables.values()) if r.options.pool == pool]
        return PoolLoad(
            now_ms=now_ms,
            slots=sum(j.slots for j in self.live_jobs(pool)),
            demands=[self._demand(r) for r in records if self._is_demand(r)],
            running=[self._running(r, lease) for r in records if (lease := r.lease) is not None],
            margin_share=board.options.margin_share,
            margin_ms=1_000 * board.options.margin_s,
        )

    def live_jobs(self, pool: str | None = None) -> Iterable[JobRecord]:
        now, lease_s = self._board.clock.monotonic(), self._board.options.lease_s
        return [j for j in list(self._board.jobs.values()) if j.is_live(now, lease_s) and pool in (None, j.pool)]

    def _is_demand(self, record: TableRecord) -> bool:
        if record.held:
            return False
        if record.state is _S.PENDING:
            return True
        if record.state is not _S.SCHEDULED or not record.lake_seen:
            return False
        return record.asked_now or record.repair is not None or record.waiting.oldest_at_ms is not None

    def _demand(self, record: TableRecord) -> Demand:
        return Demand(
            key=record.table_id,
            deadline_ms=self.deadline_ms(record),
            round_ms=self.round_ms(record),
            freshness_ms=record.options.freshness_ms,
            priority=record.options.priority,
            queued=record.state is _S.PENDING,
            urgent=record.asked_now or record.repair is not None,
            suspect=record.failures_in_a_row > 0,
        )

    def _running(self, record: TableRecord, lease: Lease) -> Running:
        round_ms = record.estimate.round_ms(lease.backlog_bytes, unknown_round_ms(record.options.freshness_ms))
        started = self._board.clock.now_ms() - 1_000 * (self._board.clock.monotonic() - lease.granted_at)
        return Running(
            key=record.table_id,
            started_ms=started,
            ends_ms=started + round_ms,
            round_ms=round_ms,
            freshness_ms=record.options.freshness_ms,
        )

    def round_ms(self, record: TableRecord) -> float:
        return record.estimate.round_ms(record.waiting.bytes, unknown_round_ms(record.options.freshness_ms))

    # ---- handing out ----
    def hand_out(self, job: JobRecord, room: int) -> list[HandedOut]:
        """Under `change()`: the tables this job gets now, leased to it."""
        self._replan_if_needed(job.pool)
        ready, granted = self._ready.get(job.pool, []), list[HandedOut]()
        while ready and len(granted) < room:
            record = self._board.tables.get(TableId(ready.pop(0)))
            if record is not None and record.state is _S.PENDING and not record.held:
                granted.append(self._grant(record, job))
        return granted

    def _replan_if_needed(self, pool: str) -> None:
        """Each hand-out changes what is best next. Planning a thousand tables at every beat would be all that is done,
        so with many tables what the tick planned stands until the next tick; where no thread ticks, until jobs come or
        go."""
        if len(self._board.tables) <= REPLANNED_TABLES or (not self.has_thread and self._is_stale(pool)):
            self._apply(pool, _plan(self.load(pool)))

    def _is_stale(self, pool: str) -> bool:
        """Jobs came or went since it was planned."""
        return sum(j.slots for j in self.live_jobs(pool)) != self._planned_slots.get(pool)

    def next_ms(self, pool: str) -> float:
        """How long until there may be something for a job that has room left; infinite when nothing is in sight."""
        records = self._board.tables.values()
        if self._is_stale(pool) or any(r.state is _S.PENDING and r.options.pool == pool for r in records):
            return 1_000 * max(RETRY_S, self._board.options.tick_s)
        due = self.next_due_ms.get(pool)
        return math.inf if due is None else due - self._board.clock.now_ms() + 1

    def _grant(self, record: TableRecord, job: JobRecord) -> HandedOut:
        board = self._board
        now_ms, now = board.clock.now_ms(), board.clock.monotonic()
        waited = 0 if record.pending_since is None else int(1_000 * (now - record.pending_since))
        board.enter(record, _S.TIERING)
        record.lease = Lease(
            job=job.name,
            instance=job.instance,
            granted_at_ms=now_ms,
            waited_ms=waited,
            backlog_bytes=record.waiting.bytes,
            until=now + board.options.lease_s,
            granted_at=now,
        )
        return HandedOut(
            table_id=record.table_id,
            path=record.info.path,
            epoch=record.epoch,
            freshness_ms=record.options.freshness_ms,
            deadline_at_ms=self.deadline_ms(record),
            limit_ms=record.options.round_limit_ms,
            waited_s=waited / 1_000,
            resync=record.repair is not None,
            generation=record.generation + (record.repair is not None),
        )
