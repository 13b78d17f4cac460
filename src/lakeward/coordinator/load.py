# SPDX-License-Identifier: Apache-2.0
"""What the planner sees of one pool of jobs: slots, rounds in work, and the tables that want rounds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


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

    @property
    def window_ms(self) -> float:
        """The longest time between the starts of two rounds that keeps the freshness; never below a round's duration."""
        return max(self.freshness_ms - self.round_ms, self.round_ms)


@dataclass(frozen=True, kw_only=True, slots=True)
class Running:
    """A round in work. `started_ms` is when its ranges were frozen, `ends_ms` when it should end."""

    key: str
    started_ms: float
    ends_ms: float
    round_ms: float
    freshness_ms: float
    priority: int = 0

    @property
    def window_ms(self) -> float:
        return max(self.freshness_ms - self.round_ms, self.round_ms)


@dataclass(frozen=True, kw_only=True)
class PoolLoad:
    now_ms: float
    slots: int
    demands: Sequence[Demand]
    running: Sequence[Running] = ()
    margin_share: float = 0.1
    margin_ms: float = 500.0

    def margin_of(self, round_ms: float) -> float:
        """How much before its deadline a round should end. It moves starts and takes no slot time: few rounds use it up."""
        return round_ms * self.margin_share + self.margin_ms

    @property
    def free(self) -> int:
        return max(0, self.slots - len(self.running))

    def utilisation(self) -> float:
        """The share of the slots that keeping every freshness takes, as far as tables are active now."""
        work = sum(d.round_ms / d.window_ms for d in self.demands if not d.suspect) + sum(r.round_ms / r.window_ms for r in self.running)
        return work / self.slots if self.slots else math.inf
