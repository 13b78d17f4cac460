# SPDX-License-Identifier: Apache-2.0
"""Which tables start a round now: pure decisions over deadlines, expected durations and slots."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Demand:
    """A table that waits for a round. `deadline_ms` None: nothing waits in it. `queued`: it is Pending already."""

    key: str
    deadline_ms: float | None
    round_ms: float
    freshness_ms: float
    priority: int = 0
    queued: bool = False
    urgent: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Running:
    """A round in work. `started_ms` is when its ranges were frozen, `ends_ms` when it should end."""

    key: str
    started_ms: float
    ends_ms: float
    round_ms: float
    freshness_ms: float


@dataclass(frozen=True, kw_only=True)
class PoolLoad:
    now_ms: float
    slots: int
    demands: Sequence[Demand]
    running: Sequence[Running] = ()
    margin_share: float = 0.1
    margin_ms: float = 1_000.0

    def latest_start(self, demand: Demand) -> float:
        assert demand.deadline_ms is not None
        return demand.deadline_ms - demand.round_ms * (1 + self.margin_share) - self.margin_ms


def plan_due(load: PoolLoad) -> tuple[list[str], float | None]:
    """(tables to queue now, when the next one falls due)."""
    due, later = [], []
    for demand in load.demands:
        if demand.queued:
            continue
        if demand.urgent:
            due.append(demand.key)
        elif demand.deadline_ms is not None:
            start = load.latest_start(demand)
            if start <= load.now_ms:
                due.append(demand.key)
            else:
                later.append(start)
    return due, min(later, default=None)


def plan_starts(load: PoolLoad, room: int) -> list[str]:
    """Queued tables to hand out now, in order, at most `room`."""
    queued = [d for d in load.demands if d.queued]
    queued.sort(key=lambda d: (not d.urgent, load.latest_start(d) if d.deadline_ms is not None else float("inf"), -d.priority, d.key))
    return [d.key for d in queued[:room]]
