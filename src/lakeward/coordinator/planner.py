# SPDX-License-Identifier: Apache-2.0
"""Which tables are due and which start now: pure decisions over deadlines, expected durations and slots.

A round starts as late as still meets its deadline. "Late" is decided for all tables together: the waiting rounds are laid out
backwards from their deadlines over the slots, and a table is due when its place in that layout begins, less a reserve for the
case that the slots are taken just then. Rounds longer than other tables can wait keep off the slots that those tables need, and
start only if the slots left meet every deadline that falls inside them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from heapq import heappop, heappush
from typing import NamedTuple

from lakeward.coordinator.load import Demand, PoolLoad, Running
from lakeward.coordinator.lookahead import Job, worst_miss

__all__ = ["Demand", "PoolLoad", "Running", "plan_due", "plan_latest_starts", "plan_starts"]

FULL = 0.8
"""Reserves may bring the slots to this share of their time; the rest absorbs rounds that take longer than expected."""

MOST_RESERVE = 0.4
"""Of a table's window at most: an early round is one round more for the lake."""


SUSPECT_STEPS = 20
"""A table whose last round failed comes so many steps of priority later."""


class Row(NamedTuple):
    """A table as the planner works on it: its deadline less the margin, its goal as in `lookahead.Job`."""

    key: str
    deadline_ms: float
    round_ms: float
    goal_ms: float
    reserve_ms: float
    demand: Demand

    @property
    def latest_start_ms(self) -> float:
        return self.deadline_ms - self.round_ms

    def as_job(self) -> Job:
        return Job(0.0, self.deadline_ms, self.round_ms, self.goal_ms, self.reserve_ms)


def plan_due(load: PoolLoad) -> tuple[list[str], float | None]:
    """(tables to queue now, when the next one falls due)."""
    due = [d.key for d in load.demands if d.urgent and not d.queued]
    soonest = math.inf
    for key, at in plan_latest_starts(load).items():
        if at <= load.now_ms:
            due.append(key)
        else:
            soonest = min(soonest, at)
    queued = {d.key for d in load.demands if d.queued}
    return [k for k in dict.fromkeys(due) if k not in queued], None if soonest == math.inf else soonest


def plan_latest_starts(load: PoolLoad) -> dict[str, float]:
    """Table -> when its round should start at the latest, all waiting rounds considered together."""
    rows, slots = _rows(load), max(1, load.slots)
    busy = sorted((max(r.ends_ms, load.now_ms) for r in load.running), reverse=True)[:slots]
    begins = [*busy, *[load.now_ms] * (slots - len(busy))]
    until = [math.inf] * slots
    allowed = _slots_allowed(load, slots)
    starts: dict[str, float] = {}
    for row in sorted((r for r in rows if not r.demand.suspect), key=lambda r: -r.deadline_ms):
        slot = _place(row, until, begins, allowed[row.key])
        start = min(row.deadline_ms, until[slot]) - row.round_ms
        until[slot] = max(start, begins[slot])
        starts[row.key] = start - row.reserve_ms
    starts.update({r.key: r.latest_start_ms for r in rows if r.demand.suspect})
    return starts


def _rows(load: PoolLoad) -> list[Row]:
    share = _reserve_share(load)
    found = []
    for demand in load.demands:
        if demand.deadline_ms is None:
            continue
        round_ms = demand.round_ms
        goal = max(demand.freshness_ms, 2 * round_ms)
        deadline = demand.deadline_ms - demand.freshness_ms + goal - load.margin_of(round_ms)
        found.append(Row(demand.key, deadline, round_ms, goal, share * (goal - round_ms), demand))
    return found


def _reserve_share(load: PoolLoad) -> float:
    """Nothing where all rounds are alike and short beside every window: then the layout alone is exact."""
    everything: list[Demand | Running] = [*(d for d in load.demands if not d.suspect), *load.running]
    if len(everything) <= load.slots:
        return 0.0
    longest = max(x.round_ms for x in everything)
    tightest = min(x.window_ms for x in everything)
    needed = longest / tightest
    return max(0.0, min(MOST_RESERVE, needed, 1 - load.utilisation() / FULL))


def _place(row: Row, until: Sequence[float], begins: Sequence[float], allowed: int) -> int:
    """The slot on which this round may begin latest without running into a round that is in work there."""
    best, best_start = 0, -math.inf
    ideal = row.latest_start_ms
    for slot in range(allowed):
        start = min(row.deadline_ms, until[slot]) - row.round_ms
        if start < begins[slot]:
            start -= 1e12  # taken by a round in work; only if there is nothing else
        elif start == ideal:
            return slot
        if start > best_start:
            best, best_start = slot, start
    return best


def _slots_allowed(load: PoolLoad, slots: int) -> dict[str, int]:
    """Table -> how many slots its rounds may use: all but those that tables which cannot wait for it need."""
    everything: list[Demand | Running] = [*(d for d in load.demands if not d.suspect), *load.running]
    by_window = sorted(everything, key=lambda x: x.window_ms)
    work, sums = 0.0, [0.0]
    for item in by_window:
        work += item.round_ms / item.window_ms
        sums.append(work)
    windows = [item.window_ms for item in by_window]
    return {d.key: max(1, slots - math.ceil(sums[_count_below(windows, d.round_ms)] - 1e-9)) for d in load.demands}


def _count_below(values: Sequence[float], limit: float) -> int:
    low, high = 0, len(values)
    while low < high:
        middle = (low + high) // 2
        if values[middle] < limit:
            low = middle + 1
        else:
            high = middle
    return low


# ---- what starts now -------------------------------------------------------------------------------------------------
def plan_starts(load: PoolLoad, room: int) -> list[str]:
    """Queued tables to hand out now, in order, at most `room`. Those that would make others miss wait for a better moment."""
    free = min(room, load.free)
    if free <= 0:
        return []
    rows = _rows(load)
    nothing = [d.key for d in load.demands if d.queued and d.deadline_ms is None]
    if load.slots == 1 and load.utilisation() > 1:
        # Any round keeps all others waiting, and holding one back only wastes the slot.
        return [*[r.key for r in _in_order(load, rows, overloaded=True)], *nothing][:free]
    return [*_pick(load, rows, free), *nothing][:free]


def _pick(load: PoolLoad, rows: list[Row], free: int) -> list[str]:
    waiting = {r.key: r for r in rows}
    ends = [max(r.ends_ms, load.now_ms) for r in load.running]
    share = _reserve_share(load)
    coming = [_next_job(load, r, share) for r in load.running]
    picked: list[str] = []
    for row in _in_order(load, rows, overloaded=load.utilisation() > 1 or is_overloaded(load, rows)):
        if len(picked) == free:
            break
        longest = math.inf if row.demand.suspect else row.round_ms
        shorter = [r.as_job() for r in waiting.values() if r.round_ms < longest and r is not row and not r.demand.suspect]
        shorter += [j for j in coming if j.round_ms < longest]
        if _may_start(load, row, shorter, ends):
            picked.append(row.key)
            del waiting[row.key]
            ends.append(load.now_ms + row.round_ms)
            coming.append(row.as_job().after(load.now_ms))
    return picked


def _in_order(load: PoolLoad, rows: list[Row], *, overloaded: bool) -> list[Row]:
    queued = [r for r in rows if r.demand.queued]
    if overloaded:
        return sorted(queued, key=lambda r: (not r.demand.urgent, -_aged_priority(load, r), -_ratio(load, r), r.key))
    return sorted(queued, key=lambda r: (not r.demand.urgent, r.demand.suspect, r.latest_start_ms, -r.demand.priority, r.key))


def _ratio(load: PoolLoad, row: Row) -> float:
    """The lag at the end of a round that starts now, as a share of the best that this table could have."""
    return 1 + (load.now_ms + row.round_ms - row.deadline_ms) / row.goal_ms


def _aged_priority(load: PoolLoad, row: Row) -> int:
    """Each whole goal that a table is late counts as one step of priority, so that nobody starves."""
    aged = row.demand.priority + max(0, math.floor(_ratio(load, row) - 1))
    return aged - SUSPECT_STEPS if row.demand.suspect else aged


def is_overloaded(load: PoolLoad, rows: Sequence[Row] | None = None) -> bool:
    """Would a waiting round be late even if they all ran now, earliest deadline first?"""
    slots = max(1, load.slots)
    busy = sorted(max(r.ends_ms, load.now_ms) for r in load.running)[:slots]
    ends = [*[load.now_ms] * (slots - len(busy)), *busy]
    rows = _rows(load) if rows is None else rows
    for row in sorted((r for r in rows if not r.demand.suspect), key=lambda r: r.deadline_ms):
        end = heappop(ends) + row.round_ms
        if end > row.deadline_ms:
            return True
        heappush(ends, end)
    return False


def _may_start(load: PoolLoad, row: Row, shorter: list[Job], ends: list[float]) -> bool:
    """False when shorter rounds would miss a deadline inside this one, and by more than this one is late itself."""
    inside = load.now_ms + row.round_ms
    if row.demand.urgent or all(job.latest_start_ms >= inside for job in shorter):
        return True
    slots = max(1, load.slots)
    worst = worst_miss(load.now_ms, slots, [*ends, inside], shorter, inside)
    if worst <= 1:
        return True
    own = _ratio(load, row)
    if own > 1 and own >= worst and not row.demand.suspect:
        return True
    return worst <= worst_miss(load.now_ms, slots, ends, shorter, inside)


def _next_job(load: PoolLoad, running: Running, share: float) -> Job:
    """The round after the one in work: rows that came right after the freeze wait for it."""
    round_ms = running.round_ms
    goal = max(running.freshness_ms, 2 * round_ms)
    deadline, reserve = running.started_ms + goal - load.margin_of(round_ms), share * (goal - round_ms)
    return Job(max(running.ends_ms, deadline - round_ms - reserve), deadline, round_ms, goal, reserve)
