# SPDX-License-Identifier: Apache-2.0
"""Looks ahead: how late the rounds of the next while would get on the slots left."""

from __future__ import annotations

import math
from collections.abc import Sequence
from heapq import heapify, heappop, heappush, heapreplace
from typing import NamedTuple

CLOSE_JOBS, CLOSE_STEPS = 40, 400
"""Up to so many jobs are looked at closely, for so many steps: a few milliseconds."""

STARTS_LIMIT = 3_000
"""Rounds laid out per question; more would take longer than the answer is worth."""


class Job(NamedTuple):
    """One coming round: it is started from `release_ms` on and must end by `deadline_ms`; then the table wants another.

    `goal_ms` is the lowest peak lag that the table could have: its freshness, or twice its round where that is longer.
    """

    release_ms: float
    deadline_ms: float
    round_ms: float
    goal_ms: float
    reserve_ms: float

    @property
    def latest_start_ms(self) -> float:
        return self.deadline_ms - self.round_ms

    def after(self, start_ms: float) -> Job:
        deadline = start_ms + self.goal_ms
        release = max(start_ms + self.round_ms, deadline - self.round_ms - self.reserve_ms)
        return Job(release, deadline, self.round_ms, self.goal_ms, self.reserve_ms)


def worst_miss(
    now_ms: float,
    slots: int,
    busy_until: Sequence[float],
    jobs: Sequence[Job],
    until_ms: float,
    *,
    closely: bool = True,
) -> float:
    """The highest lag as a share of its goal among rounds that should start before `until_ms`; 1.0 when all are in
    time.

    `closely`: only rounds that must start before then are laid out, and none so that it would hold up another. That
    takes longer, so with many jobs it is not done."""
    ends = sorted(busy_until)[:slots]
    free = [*ends, *[now_ms] * (slots - len(ends))]
    heapify(free)
    if closely:
        jobs = [job for job in jobs if job.latest_start_ms < until_ms]
    look = _look_closely if closely and len(jobs) <= CLOSE_JOBS else _look_quickly
    return look(now_ms, free, jobs, until_ms)


def _look_closely(now_ms: float, free: list[float], jobs: Sequence[Job], until_ms: float) -> float:
    at, worst, waiting = now_ms, 1.0, list(jobs)
    for _ in range(CLOSE_STEPS):
        at = max(free[0], at)
        ready = sorted([job for job in waiting if job.release_ms <= at], key=_latest_start)
        if at >= until_ms:
            return max([worst, *(_share(job, at) for job in ready)])
        if not ready:
            at = min([job.release_ms for job in waiting], default=until_ms)
            continue
        job, wake_ms = _choose(at, ready, waiting, min(free[1:3], default=math.inf))
        if job is None:
            at = max(wake_ms, at + 1.0)
            continue
        heapreplace(free, at + job.round_ms)
        worst = max(worst, _share(job, at))
        waiting.remove(job)
        waiting.append(job.after(at))
    return worst


def _choose(at: float, ready: Sequence[Job], waiting: Sequence[Job], next_free: float) -> tuple[Job | None, float]:
    """The job to start now, or None and when to look again. One that has time left lets those pass that it would hold
    up.
    """
    wake_ms = math.inf
    for job in ready:
        held_up = _held_up(at, job, waiting, min(next_free, at + job.round_ms))
        if not held_up:
            return job, at
        if min(held_up) > at:
            wake_ms = min(wake_ms, _latest_start(job), *held_up)
    return (None, wake_ms) if wake_ms < math.inf else (ready[0], at)


def _held_up(at: float, job: Job, waiting: Sequence[Job], until_ms: float) -> list[float]:
    """When those are released that must start before the next slot comes free, if this job starts now."""
    own = _latest_start(job)
    if own <= at:
        return []
    waits = [(k.deadline_ms - k.round_ms, k.release_ms) for k in waiting if k is not job]
    return [release for latest, release in waits if at <= latest < until_ms and not (release <= at and latest <= own)]


def _look_quickly(now_ms: float, free: list[float], jobs: Sequence[Job], until_ms: float) -> float:
    """Earliest deadline first."""
    ready = [(job.deadline_ms, job) for job in jobs if job.release_ms <= now_ms]
    later = [(job.release_ms, job) for job in jobs if job.release_ms > now_ms]
    heapify(ready)
    heapify(later)
    worst = 1.0
    for _ in range(STARTS_LIMIT):
        at = max(free[0], now_ms)
        while later and later[0][0] <= at:
            job = heappop(later)[1]
            heappush(ready, (job.deadline_ms, job))
        if not ready:
            if not later or later[0][0] >= until_ms:
                return worst
            heapreplace(free, later[0][0])
            continue
        if at >= until_ms:
            return max(worst, *(_share(job, at) for _, job in ready))
        job = heappop(ready)[1]
        heapreplace(free, at + job.round_ms)
        worst = max(worst, _share(job, at))
        after = job.after(at)
        heappush(later, (after.release_ms, after))
    return worst


def _latest_start(job: Job) -> float:
    return job.deadline_ms - job.round_ms


def _share(job: Job, start_ms: float) -> float:
    late = start_ms + job.round_ms - job.deadline_ms
    return 1.0 if late <= 1e-3 else 1 + late / job.goal_ms
