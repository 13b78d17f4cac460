# SPDX-License-Identifier: Apache-2.0
"""The planner's view of one pool of jobs: slots, running rounds, and the tables that need rounds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

FULL = 0.9
"""Reserves may bring the slots to this share of their time; the rest absorbs rounds that take longer than expected."""

MOST_RESERVE = 0.5
"""Largest fraction of a table's window by which a round may start early: an early round is an extra round."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Demand:
    """A table that waits for a round. `deadline_ms` None: nothing waits in it. `queued`: it is Pending already.

    `round_ms` is what the round is expected to take, margin left out."""

    key: str
    deadline_ms: float | None
    round_ms: float
    freshness_ms: float
    priority: int = 0
    queued: bool = False
    urgent: bool = False
    suspect: bool = False
    """Its last round failed: it gets what slots are left, and being late earns it nothing."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Running:
    """A round in work. `started_ms` is when its ranges were frozen, `ends_ms` when it should end."""

    key: str
    started_ms: float
    ends_ms: float
    round_ms: float
    freshness_ms: float
    priority: int = 0


class Row(NamedTuple):
    """A waiting table as the planner works on it. `deadline_ms` is less the margin; `goal_ms` is the lowest peak lag
    that the table could have, its freshness or twice its round; `reserve_ms` how much before its latest start it is
    started."""

    key: str
    deadline_ms: float
    round_ms: float
    goal_ms: float
    reserve_ms: float
    demand: Demand

    @property
    def latest_start_ms(self) -> float:
        return self.deadline_ms - self.round_ms

    @property
    def due_ms(self) -> float:
        """The latest start that keeps the freshness itself. A table whose rounds take too long for that is due at once,
        always.
        """
        return self.deadline_ms - self.goal_ms + self.demand.freshness_ms - self.round_ms


@dataclass(frozen=True, kw_only=True)
class PoolLoad:
    now_ms: float
    slots: int
    demands: Sequence[Demand]
    running: Sequence[Running] = ()
    others: Sequence[float] = ()
    """When the slots come free that work of other kinds has taken."""

    margin_share: float = 0.1
    margin_ms: float = 500.0

    def margin_of(self, round_ms: float) -> float:
        """How much before its deadline a round should end. It moves starts and takes no slot time: few rounds use it
        up.
        """
        return round_ms * self.margin_share + self.margin_ms

    @property
    def free(self) -> int:
        return max(0, self.slots - len(self.running) - len(self.others))

    @property
    def busy_until(self) -> list[float]:
        """When each slot that is taken should come free."""
        return [max(end, self.now_ms) for end in (*[r.ends_ms for r in self.running], *self.others)]

    @cached_property
    def shapes(self) -> list[tuple[float, float]]:
        """(window, round) of every active table, tightest window first. The window is the longest time between the
        starts of two rounds that keeps the freshness; never below a round's duration. Tables whose last round failed do
        not count."""
        slacks = [(d.freshness_ms - d.round_ms, d.round_ms) for d in self.demands if not d.suspect]
        slacks += [(r.freshness_ms - r.round_ms, r.round_ms) for r in self.running]
        return sorted([(w if w > d else d, d) for w, d in slacks])

    @cached_property
    def utilisation(self) -> float:
        """The share of the slots that keeping every freshness takes, as far as tables are active now."""
        work = sum([d / w for w, d in self.shapes])
        return work / self.slots if self.slots else math.inf

    @cached_property
    def reserve_share(self) -> float:
        """Share of each window by which a table is started before its latest start. Zero if every table has a slot;
        small if all rounds are short compared with every window, since the layout alone is nearly exact then; never
        more than the slots can bear."""
        if len(self.shapes) <= self.slots:
            return 0.0
        # A round that will fail again is in the way for as long as any other.
        longest, tightest = (
            max([d for _, d in self.shapes] + [d.round_ms for d in self.demands if d.suspect]),
            self.shapes[0][0],
        )
        return max(0.0, min(MOST_RESERVE, longest / tightest, 1 - self.utilisation / FULL))

    @cached_property
    def rows(self) -> list[Row]:
        """Tables in which something waits."""
        share, margin_share, margin_ms, rows = self.reserve_share, self.margin_share, self.margin_ms, []
        for demand in self.demands:
            if demand.deadline_ms is None:
                continue
            round_ms, freshness = demand.round_ms, demand.freshness_ms
            goal = freshness if freshness > 2 * round_ms else 2 * round_ms
            deadline = demand.deadline_ms - freshness + goal - round_ms * margin_share - margin_ms
            rows.append(Row(demand.key, deadline, round_ms, goal, share * (goal - round_ms), demand))
        return rows
