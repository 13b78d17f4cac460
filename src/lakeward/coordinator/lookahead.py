# SPDX-License-Identifier: Apache-2.0
"""Looks ahead: which tables would miss a deadline if the next while went so, earliest deadline first on the slots left."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from heapq import heapify, heappop, heappush, heapreplace
from typing import NamedTuple

STARTS_LIMIT = 5_000
"""Rounds laid out per question; more would take longer than the answer is worth."""


class Job(NamedTuple):
    """One coming round: it may start from `release_ms` on and must end by `deadline_ms`; then the table wants another.

    `goal_ms` is the lowest peak lag that the table could have: its freshness, or twice its round where that is longer."""

    key: str
    release_ms: float
    deadline_ms: float
    round_ms: float
    goal_ms: float
    spare_ms: float
    priority: int = 0

    @property
    def latest_start_ms(self) -> float:
        return self.deadline_ms - self.round_ms

    def after(self, start_ms: float) -> Job:
        """The table's next round, as much before its latest start as the slots can bear."""
        latest = start_ms + self.goal_ms - self.round_ms
        return self._replace(release_ms=max(start_ms + self.round_ms, latest - self.spare_ms), deadline_ms=start_ms + self.goal_ms)


class Outlook(NamedTuple):
    """How bad it gets: the highest aged priority of a table that misses, and its lag as a share of its goal. Ordered."""

    priority: int
    ratio: float


FINE = Outlook(-1_000, 1.0)


def look_ahead(now_ms: float, slots: int, busy_until: Sequence[float], jobs: Iterable[Job], until_ms: float) -> Outlook:
    """The worst miss among rounds whose latest start falls before `until_ms`, when they run earliest deadline first on what the
    slots leave. Rounds are not held back to the last moment: a slot that idles now is missing later."""
    ends = sorted(busy_until)[:slots]
    free = [*ends, *[now_ms] * (slots - len(ends))]
    heapify(free)
    ready = [(job.deadline_ms, job) for job in jobs if job.release_ms <= now_ms]
    later = [(job.release_ms, job) for job in jobs if job.release_ms > now_ms]
    heapify(ready)
    heapify(later)
    worst = FINE
    for _ in range(STARTS_LIMIT):
        at = max(free[0], now_ms)
        while later and later[0][0] <= at:
            job = heappop(later)[1]
            heappush(ready, (job.deadline_ms, job))
        if not ready:
            if not later or later[0][0] >= until_ms:
                break
            heapreplace(free, later[0][0])
            continue
        if at >= until_ms:
            for _, job in ready:
                worst = max(worst, _miss(job, at))
            break
        job = heappop(ready)[1]
        heapreplace(free, at + job.round_ms)
        worst = max(worst, _miss(job, at))
        after = job.after(at)
        heappush(later, (after.release_ms, after))
    return worst


def _miss(job: Job, start_ms: float) -> Outlook:
    late = start_ms + job.round_ms - job.deadline_ms
    if late <= 1e-6:
        return FINE
    ratio = 1 + late / job.goal_ms
    return Outlook(job.priority + int(ratio - 1), ratio)
