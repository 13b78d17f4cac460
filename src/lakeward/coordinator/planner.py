# SPDX-License-Identifier: Apache-2.0
"""Which tables are due and which start now: pure decisions over deadlines, expected durations and slots.

A round starts as late as still meets its deadline. "Late" is decided for all tables together: the waiting rounds are laid out
backwards from their deadlines over the slots, and a table is due when its place in that layout begins. Rounds that take longer
than other tables can wait are laid out on the slots that those tables leave free.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from heapq import heappop, heappush

from lakeward.coordinator.load import Demand, PoolLoad, Running
from lakeward.coordinator.lookahead import FINE, Job, Outlook, look_ahead

FULL = 0.9
"""Early starts may fill the slots up to this share."""

__all__ = ["Demand", "PoolLoad", "Running", "plan_due", "plan_latest_starts", "plan_starts"]


def plan_due(load: PoolLoad) -> tuple[list[str], float | None]:
    """(tables to queue now, when the next one falls due)."""
    starts = plan_latest_starts(load)
    reserve = plan_reserves(load.padded())
    starts = {k: v - reserve.get(k, 0.0) for k, v in starts.items()}
    due = [d.key for d in load.demands if not d.queued and (d.urgent or starts.get(d.key, math.inf) <= load.now_ms)]
    later = [s for d in load.demands if not d.queued and not d.urgent and (s := starts.get(d.key, math.inf)) > load.now_ms]
    soonest = min(later, default=math.inf)
    return due, None if soonest == math.inf else soonest


def plan_latest_starts(load: PoolLoad) -> dict[str, float]:
    """Table -> when its round must start at the latest, all waiting rounds considered together."""
    load = load.padded()
    slots = max(1, load.slots)
    busy = sorted((r.ends_ms for r in load.running), reverse=True)[:slots]
    # until[k]: slot k is taken from then on. Long rounds may use the first slots only, so those that are busy longest come first.
    until = [math.inf] * slots
    begins = [*busy, *[load.now_ms] * (slots - len(busy))]
    allowed = _slots_allowed(load, slots)
    starts: dict[str, float] = {}
    for demand in sorted((d for d in load.demands if d.deadline_ms is not None), key=lambda d: -(d.deadline_ms or 0)):
        slot = _place(demand, until, begins, allowed[demand.key])
        start = min(demand.deadline_ms or 0, until[slot]) - demand.round_ms
        starts[demand.key] = start
        until[slot] = max(start, begins[slot])
    return starts


def plan_reserves(load: PoolLoad) -> dict[str, float]:
    """Table -> how much earlier than at the last moment it may start, so that a slot that is taken then is free in time: the
    longest round that may be in its way, as far as its slots can bear the extra rounds."""
    return {k: min(spare, longest) for k, (spare, longest) in _spares(load).items()}


def _spares(load: PoolLoad) -> dict[str, tuple[float, float]]:
    """Table -> (how much of its window the slots can give up, longest round that may be in its way). Rounds longer than its
    window are not counted as in its way: they are kept off the slots that it needs."""
    everything: list[Demand | Running] = [*load.demands, *load.running]
    slots = max(1, load.slots)
    by_round = sorted(everything, key=lambda x: x.round_ms)
    durations = [x.round_ms for x in by_round]
    total, sums = 0.0, [0.0]
    for item in by_round:
        total += item.round_ms / item.window_ms
        sums.append(total)
    found = {}
    for item in everything:
        below = _count_below(durations, item.window_ms)
        held = min(slots - 1, math.ceil(total - sums[below] - 1e-9))
        share = sums[below] / (FULL * (slots - held))
        found[item.key] = (max(0.0, 1 - share) * item.window_ms, durations[below - 1] if below else 0.0)
    return found


def _place(demand: Demand, until: Sequence[float], begins: Sequence[float], allowed: int) -> int:
    """The slot on which this round may begin latest without running into a round that is in work there."""
    best, best_start = 0, -math.inf
    for slot in range(allowed):
        start = min(demand.deadline_ms or 0, until[slot]) - demand.round_ms
        if start < begins[slot]:
            start -= 1e12  # taken by a round in work; only if there is nothing else
        if start > best_start:
            best, best_start = slot, start
    return best


def _slots_allowed(load: PoolLoad, slots: int) -> dict[str, int]:
    """Table -> how many slots its rounds may use: all but those that tables which cannot wait for it need."""
    everything: list[Demand | Running] = [*load.demands, *load.running]
    by_window = sorted(everything, key=lambda x: x.window_ms)
    work, sums = 0.0, []
    for item in by_window:
        work += item.round_ms / item.window_ms
        sums.append(work)
    windows = [item.window_ms for item in by_window]
    allowed = {}
    for demand in load.demands:
        count = _count_below(windows, demand.round_ms)
        reserved = math.ceil(sums[count - 1] - 1e-9) if count else 0
        allowed[demand.key] = max(1, slots - reserved)
    return allowed


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
    padded = load.padded()
    free = min(room, padded.free)
    if free <= 0:
        return []
    if padded.utilisation() > 1:
        return [d.key for d in _in_order(padded)[:free]]
    waiting = {d.key: d for d in padded.demands}
    running = list(padded.running)
    spares = {k: spare for k, (spare, _) in _spares(padded).items()}
    picked: list[str] = []
    for demand in _in_order(padded):
        if len(picked) == free:
            break
        if _may_start(padded, demand, waiting, running, spares):
            picked.append(demand.key)
            del waiting[demand.key]
            running.append(_as_running(demand, padded.now_ms))
    return picked


def _in_order(load: PoolLoad) -> list[Demand]:
    queued = [d for d in load.demands if d.queued]
    if load.utilisation() > 1 or is_overloaded(load):
        return sorted(queued, key=lambda d: (not d.urgent, -_aged_priority(load, d), -_ratio(load, d), d.key))
    return sorted(queued, key=lambda d: (not d.urgent, _slack(load, d), -d.priority, d.key))


def _slack(load: PoolLoad, demand: Demand) -> float:
    return math.inf if demand.deadline_ms is None else demand.deadline_ms - load.now_ms - demand.round_ms


def _ratio(load: PoolLoad, demand: Demand) -> float:
    """The lag at the end of a round that starts now, as a share of the best that this table could have."""
    if demand.deadline_ms is None:
        return 0.0
    lag = load.now_ms + demand.round_ms - demand.deadline_ms + demand.freshness_ms
    return lag / max(demand.freshness_ms, 2 * demand.round_ms)


def _aged_priority(load: PoolLoad, demand: Demand) -> int:
    """Each freshness that a table is late counts as one step of priority, so that nobody starves."""
    return demand.priority + max(0, math.floor(_ratio(load, demand) - 1))


def is_overloaded(load: PoolLoad) -> bool:
    """Would a waiting round be late even if they all ran one after the other, earliest deadline first?"""
    ends = sorted(max(r.ends_ms, load.now_ms) for r in load.running)
    ends = [*[load.now_ms] * max(0, load.slots - len(ends)), *ends][: max(1, load.slots)] or [load.now_ms]
    for demand in sorted((d for d in load.demands if d.deadline_ms is not None), key=lambda d: d.deadline_ms or 0):
        end = heappop(ends) + demand.round_ms
        if end > (demand.deadline_ms or 0):
            return True
        heappush(ends, end)
    return False


def _may_start(load: PoolLoad, demand: Demand, waiting: dict[str, Demand], running: Sequence[Running], spares: dict[str, float]) -> bool:
    """False when the slots left would miss a deadline inside this round that matters more than this one."""
    others = [_as_job(d, spares[d.key]) for d in waiting.values() if d.key != demand.key and d.deadline_ms is not None]
    jobs = [*others, *[_as_next_job(r, spares[r.key]) for r in running]]
    inside = load.now_ms + demand.round_ms
    if all(job.latest_start_ms >= inside for job in jobs):
        return True
    ends = [r.ends_ms for r in running]
    slots = max(1, load.slots)
    started = look_ahead(load.now_ms, slots, [*ends, inside], jobs, inside)
    if started <= FINE:
        return True
    own = Outlook(_aged_priority(load, demand), _ratio(load, demand))
    if own.ratio > 1 and own >= started:
        return True
    return started <= look_ahead(load.now_ms, slots, ends, jobs, inside)


def _as_job(demand: Demand, spare_ms: float) -> Job:
    assert demand.deadline_ms is not None
    goal = max(demand.freshness_ms, 2 * demand.round_ms)
    return Job(demand.key, 0.0, demand.deadline_ms - demand.freshness_ms + goal, demand.round_ms, goal, spare_ms, demand.priority)


def _as_next_job(running: Running, spare_ms: float) -> Job:
    goal = max(running.freshness_ms, 2 * running.round_ms)
    return Job(running.key, running.ends_ms, running.started_ms + goal, running.round_ms, goal, spare_ms, running.priority)


def _as_running(demand: Demand, now_ms: float) -> Running:
    return Running(
        key=demand.key,
        started_ms=now_ms,
        ends_ms=now_ms + demand.round_ms,
        round_ms=demand.round_ms,
        freshness_ms=demand.freshness_ms,
        priority=demand.priority,
    )
