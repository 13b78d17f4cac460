# SPDX-License-Identifier: Apache-2.0
"""The scheduling simulator: arrivals, slots and durations in, worst lags out. It runs the coordinator's own planner,
with compactions in the slots that rounds leave or without, and beside it Fluss's queue and plain
earliest-deadline-first, on the same arrivals. Time is a number; nothing waits."""

from __future__ import annotations

import math
import random
import threading
import time
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush

from lakeward.coordinator.schedule.load import Demand, PoolLoad, Running
from lakeward.coordinator.schedule.planner import backoff_ms, plan_due, plan_starts, spares_slot

COMPACTED_ROUNDS = 8
"""Rounds after which a table's files are worth a compaction: the fan-in."""

STOP_MS = 3_000.0
"""Time that a stopped compaction needs: one heartbeat until it knows, and one row group."""

COMPACTION_SLOTS = 0.5
"""The share of the slots that compactions may take; one at least."""


@dataclass(frozen=True, kw_only=True)
class SimTable:
    """Rows arrive every `every_ms` (0: all the time), the first at `first_ms`; or all the time within
    the spans of `busy_ms`, in order, and never else. `noise`: durations differ by up to this share.
    """

    name: str
    freshness_ms: float
    round_ms: float
    first_ms: float = 0.0
    every_ms: float = 0.0
    busy_ms: tuple[tuple[float, float], ...] | None = None
    priority: int = 0
    fails: bool = False
    """Every round fails."""

    noise: float = 0.0

    @property
    def best_ratio(self) -> float:
        """No schedule gets below: a row that just missed a round waits for it and the next."""
        return max(1.0, 2 * self.round_ms / self.freshness_ms)


@dataclass(kw_only=True)
class TableRun:
    """One table in the simulation. `oldest_ms`: when the oldest waiting row came; None: nothing waits."""

    table: SimTable
    oldest_ms: float | None = None
    frozen_ms: float = -math.inf
    started_ms: float | None = None
    ends_ms: float = 0.0
    worst_lag_ms: float = 0.0
    rounds: int = 0
    misses: int = 0
    failures: int = 0
    not_before_ms: float = 0.0
    queued: bool = False
    finished_ms: float = 0.0
    files: int = 0
    """Rounds since its last compaction."""

    compacted_ms: float | None = None
    """When the compaction in work ends; None: there is none."""

    def next_arrival(self, after_ms: float) -> float:
        table = self.table
        if table.busy_ms is not None:
            index = bisect_left(table.busy_ms, after_ms, key=lambda span: span[1])
            return max(after_ms, table.busy_ms[index][0]) if index < len(table.busy_ms) else math.inf
        if after_ms < table.first_ms:
            return table.first_ms
        if table.every_ms <= 0:
            return after_ms
        steps = math.floor((after_ms - table.first_ms) / table.every_ms) + 1
        return table.first_ms + steps * table.every_ms


@dataclass(frozen=True, kw_only=True)
class SimResult:
    runs: Sequence[TableRun]
    rounds: int
    elapsed_ms: float
    slots: int = 1
    busy_ms: float = 0.0
    compactions: int = 0
    is_partial: bool = False
    """It ended before its time: what is missed is missed, what is not may be later."""

    @property
    def ratios(self) -> dict[str, float]:
        """Worst lag / freshness per table."""
        return {r.table.name: r.worst_lag_ms / r.table.freshness_ms for r in self.runs}

    @property
    def missed(self) -> list[str]:
        """Tables whose worst lag went over the best that any schedule could reach for them alone."""
        return [r.table.name for r in self.runs if r.misses]


Policy = Callable[["Simulation"], list[TableRun]]


@dataclass(kw_only=True)
class Simulation:
    """`policy` says which tables start now; the loop wakes at every end of a round, arrival and moment the policy asked
    for. `compaction_ms`: what a compaction takes; None: there are none. `budget`: ends it early.
    """

    tables: Sequence[SimTable]
    slots: int
    policy: Policy
    until_ms: float
    seed: int = 0
    margin_share: float = 0.0
    margin_ms: float = 0.0
    compaction_ms: float | None = None
    budget: Budget | None = None
    compactions: int = 0
    now_ms: float = 0.0
    wake_ms: float = math.inf
    runs: list[TableRun] = field(default_factory=list)
    queue: list[TableRun] = field(default_factory=list)
    by_name: dict[str, TableRun] = field(default_factory=dict)
    _was_cut: bool = False

    def run(self) -> SimResult:
        rng = random.Random(self.seed)  # noqa: S311 (durations of a simulation)
        self.runs = [TableRun(table=t) for t in self.tables]
        self.by_name = {r.table.name: r for r in self.runs}
        arrivals = sorted((t.next_arrival(-1.0), i) for i, t in enumerate(self.runs))
        ends: list[tuple[float, int]] = []
        rounds, busy = 0, 0.0
        while not self.is_cut:
            self._admit(arrivals)
            self._end(ends, arrivals)
            self._admit(arrivals)
            self._end_compactions()
            self.wake_ms = math.inf
            while (
                (free := self.slots - len(ends) - len(self.compacting)) > 0
                and not self.is_cut
                and (picked := self.policy(self)[:free])
            ):
                # Each start changes what is due: the policy is asked again until it starts nothing.
                self.wake_ms = math.inf
                for run in picked:
                    self._start(run, rng)
                    busy += run.ends_ms - self.now_ms
                    rounds += 1
                    heappush(ends, (run.ends_ms, self.runs.index(run)))
            self._compact()
            soonest = min(
                min((run.compacted_ms or 0.0 for run in self.compacting), default=math.inf),
                ends[0][0] if ends else math.inf,
                arrivals[0][0] if arrivals else math.inf,
                max(self.wake_ms, self.now_ms + 1e-3),
            )
            if soonest > self.until_ms:
                break
            self.now_ms = soonest
        self._count_waiting()
        return SimResult(
            runs=self.runs,
            rounds=rounds,
            elapsed_ms=self.now_ms if self.is_cut else self.until_ms,
            is_partial=self.is_cut,
            slots=self.slots,
            busy_ms=busy,
            compactions=self.compactions,
        )

    @property
    def is_cut(self) -> bool:
        """The budget was spent before the end; once it is, it stays so."""
        self._was_cut = self._was_cut or (self.budget is not None and self.budget.is_spent)
        return self._was_cut

    # ---- compactions ----
    @property
    def compacting(self) -> list[TableRun]:
        return [r for r in self.runs if r.compacted_ms is not None] if self.compaction_ms is not None else []

    def _compact(self) -> None:
        """Compacts as the coordinator does: when slots are idle for long enough, tables with most files first; running
        compactions are stopped when a round is due and no slot is free."""
        if self.compaction_ms is None:
            return
        load, running = _load(self), self.compacting
        if load.free == 0 and running:
            due, later = plan_due(load)
            if due or any(r.queued for r in self.runs):
                for run in running:
                    run.compacted_ms = min(run.compacted_ms or 0.0, self.now_ms + STOP_MS)
            elif later is not None:
                self.wake_at(later)
        room, ends = max(1, int(self.slots * COMPACTION_SLOTS)) - len(running), list[float]()
        due_runs = [r for r in self.runs if r.files >= COMPACTED_ROUNDS and r.compacted_ms is None]
        for run in sorted(due_runs, key=lambda r: -r.files):
            if len(ends) < room and spares_slot(load, self.compaction_ms, ends):
                run.compacted_ms = self.now_ms + self.compaction_ms
                ends.append(run.compacted_ms)
        if len(ends) < len(due_runs):
            self.wake_at(self.now_ms + TICK_MS)

    def _end_compactions(self) -> None:
        """One that was stopped has committed what it had."""
        for run in self.compacting:
            if run.compacted_ms is not None and run.compacted_ms <= self.now_ms:
                run.compacted_ms, run.files = None, 1
                self.compactions += 1

    def _start(self, run: TableRun, rng: random.Random) -> None:
        run.started_ms = run.frozen_ms = self.now_ms
        run.ends_ms = self.now_ms + run.table.round_ms * (1 + run.table.noise * rng.uniform(-1, 1))
        run.queued = False

    def _admit(self, arrivals: list[tuple[float, int]]) -> None:
        while arrivals and arrivals[0][0] <= self.now_ms:
            at, index = heappop(arrivals)
            if self.runs[index].oldest_ms is None:
                self.runs[index].oldest_ms = at

    def _end(self, ends: list[tuple[float, int]], arrivals: list[tuple[float, int]]) -> None:
        while ends and ends[0][0] <= self.now_ms:
            at, index = heappop(ends)
            run = self.runs[index]
            run.started_ms, run.finished_ms = None, at
            if run.table.fails:
                run.failures += 1
                wait = backoff_ms(run.failures, first_s=1, limit_s=300, jitter=0.2, seed=f"{self.seed}/{index}")
                run.not_before_ms = at + wait
                continue
            run.rounds += 1
            run.files += 1
            self._note_lag(run, at)
            run.oldest_ms = None
            heappush(arrivals, (run.next_arrival(run.frozen_ms), index))

    def _note_lag(self, run: TableRun, at_ms: float) -> None:
        assert run.oldest_ms is not None
        lag = at_ms - run.oldest_ms
        run.worst_lag_ms = max(run.worst_lag_ms, lag)
        if lag > run.table.best_ratio * run.table.freshness_ms * (1 + 1e-9) + 1:
            run.misses += 1

    def _count_waiting(self) -> None:
        """Rows that still wait at the end count with the lag they have."""
        for run in self.runs:
            if run.oldest_ms is not None and not run.table.fails:
                self._note_lag(run, self.now_ms)

    def idle(self) -> list[TableRun]:
        """Tables with waiting rows and no round."""
        return [
            r for r in self.runs if r.started_ms is None and r.oldest_ms is not None and r.not_before_ms <= self.now_ms
        ]

    def wake_at(self, at_ms: float) -> None:
        if at_ms > self.now_ms:
            self.wake_ms = min(self.wake_ms, at_ms)


TICK_MS = 1_000.0
"""Tables that were held back are looked at again so often. The coordinator ticks more often still."""


# ---- policies --------------------------------------------------------------------------------------------------------
def lakeward(sim: Simulation) -> list[TableRun]:
    """The planner as the coordinator runs it."""
    load = _load(sim)
    due, later = plan_due(load)
    for run in sim.runs:
        if run.not_before_ms > sim.now_ms:
            sim.wake_at(run.not_before_ms)
    if later is not None:
        sim.wake_at(later)
    for run in sim.runs:
        if run.table.name in due:
            run.queued = True
    if not due and not any(r.queued for r in sim.runs):
        return []
    picked = plan_starts(load, load.free, frozenset(due))
    if load.free:
        sim.wake_at(sim.now_ms + TICK_MS)
    return [sim.by_name[name] for name in picked]


def _load(sim: Simulation) -> PoolLoad:
    return PoolLoad(
        now_ms=sim.now_ms,
        slots=sim.slots,
        demands=[_demand(r) for r in sim.idle()],
        running=[_running(r) for r in sim.runs if r.started_ms is not None],
        others=[r.compacted_ms for r in sim.compacting if r.compacted_ms is not None],
        margin_share=sim.margin_share,
        margin_ms=sim.margin_ms,
    )


def _demand(run: TableRun) -> Demand:
    table = run.table
    assert run.oldest_ms is not None
    return Demand(
        key=table.name,
        deadline_ms=run.oldest_ms + table.freshness_ms,
        round_ms=table.round_ms,
        freshness_ms=table.freshness_ms,
        priority=table.priority,
        queued=run.queued,
        suspect=run.failures > 0,
    )


def _running(run: TableRun) -> Running:
    table = run.table
    assert run.started_ms is not None
    return Running(
        key=table.name,
        started_ms=run.started_ms,
        ends_ms=run.started_ms + table.round_ms,
        round_ms=table.round_ms,
        freshness_ms=table.freshness_ms,
        priority=table.priority,
    )


def fifo(sim: Simulation) -> list[TableRun]:
    """As Fluss publishes it: a table is queued one freshness after its last finish (or creation), first in, first out;
    a failed one goes to the tail at once; a table with nothing new costs a round too."""
    for run in sim.runs:
        if run.started_ms is None and not run.queued:
            fires = run.finished_ms + (0.0 if run.failures and run.table.fails else run.table.freshness_ms)
            if fires <= sim.now_ms:
                run.queued = True
                sim.queue.append(run)
            else:
                sim.wake_at(fires)
    free = sim.slots - sum(r.started_ms is not None for r in sim.runs)
    picked, sim.queue = sim.queue[:free], sim.queue[free:]
    for run in picked:
        if run.oldest_ms is None:
            run.oldest_ms = sim.now_ms
    return picked


def edf(sim: Simulation) -> list[TableRun]:
    """Earliest deadline first, never idle while rows wait: the textbook's baseline without preemption."""
    waiting = sorted(sim.idle(), key=lambda r: (r.oldest_ms or 0) + r.table.freshness_ms)
    for run in sim.runs:
        if run.not_before_ms > sim.now_ms:
            sim.wake_at(run.not_before_ms)
    return waiting[: sim.slots - sum(r.started_ms is not None for r in sim.runs)]


def simulate(
    tables: Sequence[SimTable],
    slots: int,
    policy: Policy,
    *,
    until_ms: float,
    seed: int = 0,
    margin_share: float = 0.0,
    margin_ms: float = 0.0,
    compaction_ms: float | None = None,
    budget: Budget | None = None,
) -> SimResult:
    return Simulation(
        tables=tables,
        slots=slots,
        policy=policy,
        until_ms=until_ms,
        seed=seed,
        margin_share=margin_share,
        margin_ms=margin_ms,
        compaction_ms=compaction_ms,
        budget=budget,
    ).run()


LIMIT_S = 10.0
"""Time limit of one what-if: simulating hundreds of late tables takes minutes; callers wait for 30 seconds."""


class Budget:
    """Asked between steps of the work; a step itself is not interrupted."""

    def __init__(self, limit_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.limit_s = limit_s
        self._clock = clock
        self._until = clock() + limit_s
        self._cancelled = threading.Event()

    def cancel(self) -> None:
        """From any thread: no one reads the answer any more."""
        self._cancelled.set()

    @property
    def is_spent(self) -> bool:
        return self._cancelled.is_set() or self._clock() >= self._until
