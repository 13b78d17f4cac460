# SPDX-License-Identifier: Apache-2.0
"""The scheduling tick: reads backlogs, sweeps leases that ran out, queues what is due, and picks what a job gets."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from lakeward.coordinator.schedule.kind import Kind
from lakeward.coordinator.schedule.load import Demand, PoolLoad, Running
from lakeward.coordinator.schedule.planner import plan_due, plan_joins, plan_starts
from lakeward.coordinator.state.board import Board
from lakeward.coordinator.state.estimate import unknown_round_ms
from lakeward.coordinator.state.jobs import JobRecord
from lakeward.coordinator.state.record import LakeSide
from lakeward.coordinator.state.work import Lease
from lakeward.model import TIER, OffsetMap, SideId, TableState, WorkKind
from lakeward.protocol.heartbeat import busy_slots
from lakeward.spi import Waiting

_S = TableState
_LOOKED_AT = frozenset({_S.SCHEDULED, _S.PENDING, _S.FAILED, _S.TIERING, _S.PAUSED, _S.QUARANTINED})
"""Sides in these states are checked. Rows also wait for a paused table: its lag and waiting rows are reported."""


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

LEADS_AT_ONCE = 4
"""Tables whose other sides are looked at in one beat: each look is a plan."""

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
    def __init__(self, board: Board, kinds: Iterable[type[Kind]]) -> None:
        self._board = board
        self.kinds = {kind.name: kind(board, self) for kind in kinds}
        """Kinds of work, most urgent first."""

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
            pools = {s.options.pool for s in self._board.sides()}
            for pool, plan in {pool: _plan(self.load(pool)) for pool in pools}.items():
                self._apply(pool, plan, pause_s=BREATH_S)

    def _look(self) -> None:
        board = self._board
        self._ticked_at = board.clock.monotonic()
        with board.lock:
            asked = [(s, s.info, s.committed) for s in board.sides() if s.state in _LOOKED_AT]
        for first in range(0, len(asked), LOOKED_AT_ONCE):
            if first:
                time.sleep(BREATH_S)
            part = asked[first : first + LOOKED_AT_ONCE]
            self._see([(s, board.hot.waiting(info, committed), committed) for s, info, committed in part])
        seen = {s.id for s, _, _ in asked}
        with board.change():
            for side in board.sides():
                if side.id not in seen:
                    self._count_miss(side)
            self._sweep()
            self._retry_failed()

    def _see(self, fresh: Sequence[tuple[LakeSide, Waiting, OffsetMap]]) -> None:
        with self._board.change():
            for side, waiting, committed in fresh:
                if side.committed is committed:
                    side.see(waiting, self._ticked_at)
                self._count_miss(side)

    def _count_miss(self, side: LakeSide) -> None:
        """Once for each oldest row that waited too long, whatever state the table is in."""
        oldest = side.waiting.oldest_at_ms
        if oldest is None or side.counted_oldest_ms == oldest:
            return
        deadline = self.deadline_ms(side)
        if deadline is not None and deadline < self._board.clock.now_ms():
            side.counted_oldest_ms = oldest
            side.misses += 1
            self._board.touch(side)

    def deadline_ms(self, side: LakeSide) -> int | None:
        """When the oldest waiting row breaks the freshness, in today's wall time; None: nothing waits, or the lake is
        off.
        """
        if side.waiting.oldest_at_ms is None or not side.options.enabled:
            return None
        now_ms = self._board.clock.now_ms()
        lag = side.lag_ms(now_ms, self._board.clock.monotonic())
        return None if lag is None else now_ms - lag + side.options.freshness_ms

    def _sweep(self) -> None:
        """Leases that ran out are given back."""
        now = self._board.clock.monotonic()
        if now - self._swept_at < self._board.options.sweep_s:
            return
        self._swept_at = now
        for side, work, lease in self._board.leased():
            if now >= lease.until:
                kind = self.kinds[work.kind]
                kind.give_back(side, work, f"job {lease.job} was silent for {kind.lease_s:g} s")

    def _retry_failed(self) -> None:
        now = self._board.clock.monotonic()
        for side in self._board.sides():
            retry_at = side.tier.retry_at
            if side.state is _S.FAILED and side.lake_seen and (retry_at is None or retry_at <= now):
                self._board.enter(side, _S.PENDING, side.reason)

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
            side = self._board.side(SideId.parse(key))
            if side is not None and side.state is _S.SCHEDULED:
                self._board.enter(side, _S.PENDING)

    # ---- what the planner sees ----
    def load(self, pool: str) -> PoolLoad:
        """The lock may be held or not: a side that changes meanwhile is seen as it was or as it is."""
        board = self._board
        sides = [s for s in board.sides() if s.options.pool == pool]
        slots = sum(j.slots for j in self.live_jobs(pool))
        leased = [row for row in board.leased() if row[0].options.pool == pool]
        leased = sorted(leased, key=lambda row: bool(row[2].progress.trouble))
        leased = leased[: busy_slots([lease.progress for _, _, lease in leased], slots)]
        return PoolLoad(
            now_ms=board.clock.now_ms(),
            slots=slots,
            demands=[self._demand(s) for s in sides if self._is_demand(s)],
            running=[self._running(s, lease) for s, work, lease in leased if work.kind == TIER],
            others=[
                self._started_ms(lease) + self.kinds[work.kind].expected_ms(s)
                for s, work, lease in leased
                if work.kind != TIER and self.takes_rounds(lease)
            ],
            margin_share=board.options.margin_share,
            margin_ms=1_000 * board.options.margin_s,
        )

    def takes_rounds(self, lease: Lease) -> bool:
        """Whether a round could have the slot."""
        job = self._board.jobs.get(lease.job)
        return job is None or job.takes_rounds

    def live_jobs(self, pool: str | None = None, kind: WorkKind = TIER) -> list[JobRecord]:
        """Those that take work of this kind."""
        now, lease_s = self._board.clock.monotonic(), self._board.options.lease_s
        jobs = [j for j in list(self._board.jobs.values()) if j.is_live(now, lease_s) and kind in j.kinds]
        return [j for j in jobs if pool in (None, j.pool)]

    def _is_demand(self, side: LakeSide) -> bool:
        if side.held:
            return False
        if side.state is _S.PENDING:
            return True
        if side.state is not _S.SCHEDULED or not side.lake_seen:
            return False
        return side.asked is not None or side.resync is not None or side.waiting.oldest_at_ms is not None

    def _demand(self, side: LakeSide) -> Demand:
        return Demand(
            key=str(side.id),
            deadline_ms=self.deadline_ms(side),
            round_ms=self.round_ms(side),
            freshness_ms=side.options.freshness_ms,
            priority=side.options.priority,
            queued=side.state is _S.PENDING,
            urgent=side.asked is not None or side.resync is not None,
            suspect=side.tier.failures_in_a_row > 0,
        )

    def _running(self, side: LakeSide, lease: Lease) -> Running:
        round_ms = side.tier.estimate.round_ms(lease.backlog_bytes, unknown_round_ms(side.options.freshness_ms))
        started = self._started_ms(lease)
        return Running(
            key=str(side.id),
            started_ms=started,
            ends_ms=started + round_ms,
            round_ms=round_ms,
            freshness_ms=side.options.freshness_ms,
        )

    def _started_ms(self, lease: Lease) -> float:
        return self._board.clock.now_ms() - 1_000 * (self._board.clock.monotonic() - lease.granted_at)

    def round_ms(self, side: LakeSide) -> float:
        return side.tier.estimate.round_ms(side.waiting.bytes, unknown_round_ms(side.options.freshness_ms))

    # ---- handing out ----
    def take_ready(self, pool: str) -> Iterator[LakeSide]:
        """Under `change()`: sides to start next, in order, as planned; one that was looked at is not shown again."""
        self._replan_if_needed(pool)
        ready = self._ready.get(pool, [])
        while ready:
            side = self._board.side(SideId.parse(ready.pop(0)))
            if side is not None:
                yield side

    def find_joins(self, waiting: Mapping[LakeSide, Sequence[LakeSide]], chosen: Sequence[LakeSide]) -> list[LakeSide]:
        """Under `change()`: sides that start beside the one that they are listed for; all those are `chosen`, of one
        pool."""
        if not waiting:
            return []
        load, joined = self.load(chosen[0].options.pool), list[LakeSide]()
        for lead, others in list(waiting.items())[:LEADS_AT_ONCE]:
            by_key, starting = {str(s.id): s for s in others}, [str(s.id) for s in (*chosen, *joined)]
            keys = [key for key in by_key if key not in starting]
            joined += [by_key[key] for key in plan_joins(load, str(lead.id), keys, starting)]
        return joined

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
        queued = (s.options.pool == pool for s in self._board.sides() if s.state is _S.PENDING)
        if self._is_stale(pool) or any(queued):
            return 1_000 * max(RETRY_S, self._board.options.tick_s)
        due = self.next_due_ms.get(pool)
        return math.inf if due is None else due - self._board.clock.now_ms() + 1
