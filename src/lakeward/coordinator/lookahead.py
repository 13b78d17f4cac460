# SPDX-License-Identifier: Apache-2.0
"""Looks ahead: how late the rounds of the next while would get, earliest deadline first on the slots left."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapify, heappop, heappush, heapreplace
from typing import NamedTuple

STARTS_LIMIT = 3_000
"""Rounds laid out per question; more would take longer than the answer is worth."""


class Job(NamedTuple):
    """One coming round: it is started from `release_ms` on and must end by `deadline_ms`; then the table wants another.

    `goal_ms` is the lowest peak lag that the table could have: its freshness, or twice its round where that is longer."""

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


def worst_miss(now_ms: float, slots: int, busy_until: Sequence[float], jobs: Sequence[Job], until_ms: float) -> float:
    """The highest lag as a share of its goal among rounds that should start before `until_ms`; 1.0 when all are in time."""
    ends = sorted(busy_until)[:slots]
    free = [*ends, *[now_ms] * (slots - len(ends))]
    heapify(free)
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


def _share(job: Job, start_ms: float) -> float:
    late = start_ms + job.round_ms - job.deadline_ms
    return 1.0 if late <= 1e-3 else 1 + late / job.goal_ms
