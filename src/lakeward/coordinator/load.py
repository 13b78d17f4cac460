# SPDX-License-Identifier: Apache-2.0
"""What the planner sees of one pool of jobs: slots, rounds in work, and the tables that want rounds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace


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
    def next_deadline_ms(self) -> float:
        """Rows that came right after the freeze wait for the next round."""
        return self.started_ms + max(self.freshness_ms, 2 * self.round_ms)

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

    def padded(self) -> PoolLoad:
        """With the margin put into every duration, and a round that overran its time about to end."""
        demands = [replace(d, round_ms=self._pad(d.round_ms)) for d in self.demands]
        running = [replace(r, ends_ms=max(r.ends_ms, self.now_ms)) for r in self.running]
        return replace(self, demands=demands, running=running, margin_share=0.0, margin_ms=0.0)

    def _pad(self, round_ms: float) -> float:
        return round_ms * (1 + self.margin_share) + self.margin_ms

    @property
    def free(self) -> int:
        return max(0, self.slots - len(self.running))

    def utilisation(self) -> float:
        """The share of the slots that keeping every freshness takes, as far as tables are active now."""
        work = sum(d.round_ms / d.window_ms for d in self.demands) + sum(r.round_ms / r.window_ms for r in self.running)
        return work / self.slots if self.slots else math.inf
