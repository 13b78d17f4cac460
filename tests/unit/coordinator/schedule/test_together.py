# SPDX-License-Identifier: Apache-2.0
"""Sides that start with another one of their table: when it is worth it, and never so that somebody is late."""

from __future__ import annotations

from lakeward.coordinator.schedule.load import Demand, PoolLoad, Running
from lakeward.coordinator.schedule.planner import plan_joins


def demand(key: str, deadline_ms: float, freshness_ms: float = 60_000, **more: bool) -> Demand:
    return Demand(key=key, deadline_ms=deadline_ms, round_ms=2_000, freshness_ms=freshness_ms, **more)


def load(*demands: Demand, slots: int = 4, running: tuple[Running, ...] = ()) -> PoolLoad:
    return PoolLoad(now_ms=0, slots=slots, demands=demands, running=running, margin_share=0.0, margin_ms=0.0)


LEAD = demand("lead", 10_000, queued=True)


def joins(other: Demand, *more: Demand, lead: Demand = LEAD, slots: int = 4) -> list[str]:
    return plan_joins(load(lead, other, *more, slots=slots), lead.key, [other.key], [lead.key])


def test_one_that_wants_rounds_as_often_joins_whenever_rows_wait() -> None:
    assert joins(demand("b", 60_000)) == ["b"]
    assert joins(demand("b", 60_000, freshness_ms=66_000)) == ["b"]


def test_one_that_wants_them_seldom_joins_when_its_turn_is_near() -> None:
    assert joins(demand("b", 500_000, freshness_ms=600_000)) == []
    assert joins(demand("b", 115_000, freshness_ms=600_000)) == ["b"]


def test_none_joins_that_would_make_the_lead_late() -> None:
    assert joins(demand("b", 60_000), lead=demand("lead", 3_900, queued=True)) == []
    assert joins(demand("b", 60_000), lead=demand("lead", 4_000, queued=True)) == ["b"]


def test_none_joins_that_would_make_another_table_late() -> None:
    tight = demand("other", 2_500)
    assert joins(demand("b", 60_000), tight, slots=2) == []
    assert joins(demand("b", 60_000), tight, slots=3) == ["b"]
    assert joins(demand("b", 60_000), slots=1) == []


def test_one_whose_last_round_failed_does_not_join() -> None:
    assert joins(demand("b", 60_000, suspect=True)) == []
