# SPDX-License-Identifier: Apache-2.0
"""Which tables are due and which start now: pure decisions over deadlines, expected durations and slots.

A round starts as late as still meets its deadline. "Late" is decided for all tables together: the waiting rounds are
laid out backwards from their deadlines over the slots, and a table is due when its place in that layout begins, less a
reserve for the case that the slots are taken just then. Rounds longer than other tables can wait keep off the slots
that those tables need. A round starts only if the slots left meet every deadline that falls inside it; one that can
wait is never the first to make another late.
"""

from __future__ import annotations

import math
import random
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import replace
from heapq import heapify, heappop, heappush

from lakeward.coordinator.schedule.load import Demand, PoolLoad, Row, Running
from lakeward.coordinator.schedule.lookahead import Job, worst_miss

__all__ = ["Demand", "PoolLoad", "Running", "plan_due", "plan_latest_starts", "plan_starts", "spares_slot"]

TRIES = 8
"""Slots looked at for one round: those behind are fuller still."""

REFUSALS = 12
"""Tables held back after a look ahead, in one plan. After that only those start that need no look."""

SUSPECT_STEPS = 20
"""A table whose last round failed comes so many steps of priority later."""


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
    rows, slots = load.rows, max(1, load.slots)
    busy = sorted(load.busy_until, reverse=True)[:slots]
    layout = _Layout([*busy, *[load.now_ms] * (slots - len(busy))])
    allowed = _slots_allowed(load, slots)
    starts: dict[str, float] = {}
    for row in sorted((r for r in rows if not r.demand.suspect), key=lambda r: -r.deadline_ms):
        starts[row.key] = min(layout.place(row, allowed[row.key]) - row.reserve_ms, row.due_ms)
    starts.update({r.key: r.latest_start_ms for r in rows if r.demand.suspect})
    return starts


class _Layout:
    """Slots filled backwards in time. `begins`: when each is free of the round in work, longest first; long rounds may
    use the first ones only."""

    def __init__(self, begins: list[float]) -> None:
        self._begins = begins
        self._until = [math.inf] * len(begins)
        # Latest end first. Among equals the one that is busy longest and still free in time, so that others stay whole;
        # with many slots the one that is free soonest, as looking for the other would take long.
        sign = -1 if len(begins) <= TRIES else 1
        self._heap = [(-math.inf, sign * begin, slot) for slot, begin in enumerate(begins)]
        self._sign = sign
        heapify(self._heap)

    def place(self, row: Row, allowed: int) -> float:
        """Puts the round where it may begin latest without running into a round in work; returns its start."""
        slot = self._any(row) if allowed == len(self._begins) else self._first(row, allowed)
        start = min(row.deadline_ms, self._until[slot]) - row.round_ms
        self._until[slot] = max(start, self._begins[slot])
        heappush(self._heap, (-self._until[slot], self._sign * self._begins[slot], slot))
        return start

    def _any(self, row: Row) -> int:
        passed: list[tuple[float, float, int]] = []
        chosen: int | None = None
        while self._heap and len(passed) < TRIES:
            entry = heappop(self._heap)
            if -entry[0] != self._until[entry[2]]:
                continue  # from before this slot was filled further
            passed.append(entry)
            if min(row.deadline_ms, self._until[entry[2]]) - row.round_ms >= self._begins[entry[2]]:
                chosen = entry[2]
                break
        slot = passed[0][2] if chosen is None else chosen
        for entry in passed:
            if entry[2] != slot:
                heappush(self._heap, entry)
        return slot

    def _first(self, row: Row, allowed: int) -> int:
        best, best_start = 0, -math.inf
        for slot in range(allowed):
            start = min(row.deadline_ms, self._until[slot]) - row.round_ms
            if start < self._begins[slot]:
                start -= 1e12  # taken by a round in work; only if there is nothing else
            if start > best_start:
                best, best_start = slot, start
        return best


def _slots_allowed(load: PoolLoad, slots: int) -> dict[str, int]:
    """Table -> how many slots its rounds may use: all but those that tables which cannot wait for it need."""
    work, sums = 0.0, [0.0]
    for window, round_ms in load.shapes:
        work += round_ms / window
        sums.append(work)
    windows = [window for window, _ in load.shapes]
    tightest = windows[0] if windows else math.inf
    return {
        d.key: slots
        if d.round_ms <= tightest
        else max(1, slots - math.ceil(sums[bisect_left(windows, d.round_ms)] - 1e-9))
        for d in load.demands
    }


# ---- what starts now -------------------------------------------------------------------------------------------------
def plan_starts(load: PoolLoad, room: int, also: frozenset[str] | None = None) -> list[str]:
    """Queued tables (and `also` these) to hand out now, in order, at most `room`. Those that would make others miss
    wait.
    """
    free = min(room, load.free)
    if free <= 0:
        return []
    rows = load.rows if also is None else [_queued(r, also) for r in load.rows]
    nothing = [d.key for d in load.demands if d.queued and d.deadline_ms is None]
    if load.slots == 1 and load.utilisation > 1:
        # Any round keeps all others waiting, and holding one back only wastes the slot.
        return [*[r.key for r in _in_order(load, rows, overloaded=True)], *nothing][:free]
    return [*_pick(load, rows, free), *nothing][:free]


def spares_slot(load: PoolLoad, for_ms: float, ends: Sequence[float] = ()) -> bool:
    """Can a slot do without deadlines for so long? `ends`: when slots come free that were given away since. Margins are
    the rounds' own: work that can wait uses none of them up."""
    taken, inside = [*load.busy_until, *ends], load.now_ms + for_ms
    if len(taken) >= load.slots:
        return False
    jobs = [_as_job(load, r)._replace(deadline_ms=r.deadline_ms) for r in load.rows]
    for running in load.running:
        job = _next_job(load, running)
        jobs.append(job._replace(deadline_ms=running.started_ms + job.goal_ms - load.margin_of(job.round_ms)))
    caught_up = inside + sum(job.round_ms for job in jobs) / load.slots  # by then rounds that it held up are through
    return worst_miss(load.now_ms, load.slots, [*taken, inside], jobs, caught_up) <= 1


def _pick(load: PoolLoad, rows: list[Row], free: int) -> list[str]:
    waiting = {r.key: _as_job(load, r) for r in rows if not r.demand.suspect}
    ends = load.busy_until
    coming = [_next_job(load, r) for r in load.running]
    picked: list[str] = []
    refused = 0
    for row in _in_order(load, rows, overloaded=load.utilisation > 1 or is_overloaded(load, rows)):
        if len(picked) == free:
            break
        longest = math.inf if row.demand.suspect or _has_time(load, row) else row.round_ms
        others = [job for key, job in waiting.items() if job.round_ms < longest and key != row.key]
        others += [job for job in coming if job.round_ms < longest]
        if _is_in_nobodys_way(load, row, others) or (refused < REFUSALS and _may_start(load, row, others, ends)):
            picked.append(row.key)
            waiting.pop(row.key, None)
            ends.append(load.now_ms + row.round_ms)
            coming.append(_as_job(load, row).after(load.now_ms))
        else:
            refused += 1
    return picked


def _has_time(load: PoolLoad, row: Row) -> bool:
    """True if it can wait, in a pool that can keep its deadlines: it delays no other table, however long their rounds
    take."""
    return row.latest_start_ms > load.now_ms and load.utilisation <= 1


def _in_order(load: PoolLoad, rows: list[Row], *, overloaded: bool) -> list[Row]:
    queued = [r for r in rows if r.demand.queued]
    if overloaded:
        return sorted(queued, key=lambda r: (not r.demand.urgent, -_aged_priority(load, r), -_ratio(load, r), r.key))
    return sorted(
        queued, key=lambda r: (not r.demand.urgent, r.demand.suspect, r.latest_start_ms, -r.demand.priority, r.key)
    )


def _ratio(load: PoolLoad, row: Row) -> float:
    """The lag at the end of a round that starts now, as a share of the best that this table could have."""
    return 1 + (load.now_ms + row.round_ms - row.deadline_ms) / row.goal_ms


def _aged_priority(load: PoolLoad, row: Row) -> int:
    """Each whole freshness that a table is late raises its priority by one, so that no table starves."""
    aged = row.demand.priority + max(0, math.floor(_ratio(load, row) - 1))
    return aged - SUSPECT_STEPS if row.demand.suspect else aged


def is_overloaded(load: PoolLoad, rows: Sequence[Row] | None = None) -> bool:
    """Would a waiting round be late even if they all ran now, earliest deadline first?"""
    slots = max(1, load.slots)
    busy = sorted(load.busy_until)[:slots]
    ends = [*[load.now_ms] * (slots - len(busy)), *busy]
    rows = load.rows if rows is None else rows
    for row in sorted((r for r in rows if not r.demand.suspect), key=lambda r: r.deadline_ms):
        end = heappop(ends) + row.round_ms
        if end > row.deadline_ms:
            return True
        heappush(ends, end)
    return False


def _is_in_nobodys_way(load: PoolLoad, row: Row, others: list[Job]) -> bool:
    inside = load.now_ms + row.round_ms
    return row.demand.urgent or all(job.deadline_ms - job.round_ms >= inside for job in others)


def _may_start(load: PoolLoad, row: Row, others: list[Job], ends: list[float]) -> bool:
    """False when others would miss a deadline inside this round, and by more than it is late itself."""
    inside, slots = load.now_ms + row.round_ms, max(1, load.slots)
    closely = load.utilisation <= 1
    worst = worst_miss(load.now_ms, slots, [*ends, inside], others, inside, closely=closely)
    if worst <= 1:
        return True
    own_ratio = _ratio(load, row)
    if own_ratio > 1 and own_ratio >= worst and not row.demand.suspect:
        return True
    if _has_time(load, row) and all(job.latest_start_ms >= load.now_ms for job in others):
        return False  # nobody is late yet, and it need not be the first to make somebody late
    return worst <= worst_miss(load.now_ms, slots, ends, others, inside, closely=closely)


def _queued(row: Row, also: frozenset[str]) -> Row:
    return row._replace(demand=replace(row.demand, queued=True)) if row.key in also else row


def _as_job(load: PoolLoad, row: Row) -> Job:
    """As the look ahead sees it: by the deadline itself, since margins are there to be used up now and then. Where not
    all can be in time anyway it may be pulled ahead at any moment, and keeps its margin."""
    if load.utilisation > 1:
        return Job(0.0, row.deadline_ms, row.round_ms, row.goal_ms, row.reserve_ms)
    release = row.latest_start_ms - row.reserve_ms
    return Job(release, row.deadline_ms + load.margin_of(row.round_ms), row.round_ms, row.goal_ms, row.reserve_ms)


def _next_job(load: PoolLoad, running: Running) -> Job:
    """The round after the one in work: rows that came right after the freeze wait for it."""
    round_ms = running.round_ms
    goal = max(running.freshness_ms, 2 * round_ms)
    margin, reserve = load.margin_of(round_ms), load.reserve_share * (goal - round_ms)
    deadline = running.started_ms + goal
    release = max(running.ends_ms, deadline - margin - round_ms - reserve)
    return Job(release, deadline if load.utilisation <= 1 else deadline - margin, round_ms, goal, reserve)


def backoff_ms(failures_in_a_row: int, *, first_s: float, limit_s: float, jitter: float, seed: str) -> int:
    """Doubles with each failure up to the limit; the jitter, a share added or taken, keeps tables that failed together
    from coming back together. The same seed gives the same wait."""
    whole = min(limit_s, first_s * 2 ** min(30, max(0, failures_in_a_row - 1)))
    share = random.Random(f"{seed}/{failures_in_a_row}").uniform(-jitter, jitter)  # noqa: S311 (spreads load, guards nothing)
    return int(1_000 * whole * (1 + share))


EARLY_SHARE = 0.2
"""Largest fraction of its own freshness: a side that always started that early would run a quarter more rounds."""


def plan_joins(load: PoolLoad, lead: str, others: Sequence[str], chosen: Sequence[str]) -> list[str]:
    """Those of `others`, sides of the same table that wait for a round, which start now beside `lead`: the slots can do
    without them, the lead stays in time with all of their work besides its own, and either they would start soon, or
    they want rounds as often as the lead does, so that from here on all of them are due together. `chosen`: all that
    start now, the lead among them."""
    rows = {row.key: row for row in load.rows if not row.demand.suspect}
    starts, first = plan_latest_starts(load), rows.get(lead)
    work_ms = first.round_ms if first is not None else 0.0
    joined = list[str]()
    ends = [load.now_ms + d.round_ms for d in load.demands if d.key in chosen]
    for row in sorted((rows[key] for key in others if key in rows), key=lambda r: starts[r.key]):
        in_time = first is None or load.now_ms + work_ms + row.round_ms <= _deadline_ms(first)
        rest = replace(load, demands=[d for d in load.demands if d.key not in (*chosen, *joined, row.key)])
        if in_time and _is_near(load, row, first, starts[row.key]) and spares_slot(rest, row.round_ms, ends):
            joined.append(row.key)
            work_ms += row.round_ms
            ends.append(load.now_ms + work_ms)
    return joined


def _is_near(load: PoolLoad, row: Row, lead: Row | None, start_ms: float) -> bool:
    freshness = row.demand.freshness_ms
    if lead is not None and freshness <= (1 + EARLY_SHARE) * lead.demand.freshness_ms:
        return True
    return start_ms - load.now_ms <= EARLY_SHARE * freshness


def _deadline_ms(row: Row) -> float:
    """Its own; the row's is that of the lowest lag that it could have."""
    deadline = row.demand.deadline_ms
    return row.deadline_ms if deadline is None else deadline
