# SPDX-License-Identifier: Apache-2.0
"""Scheduling decisions, alone and over simulated hours."""

from __future__ import annotations

import random
from typing import Any

import pytest

from lakeward.coordinator.schedule.load import Demand, PoolLoad, Running
from lakeward.coordinator.schedule.planner import plan_due, plan_starts
from lakeward.coordinator.schedule.simulator import Policy, SimResult, SimTable, edf, fifo, lakeward, simulate
from lakeward.coordinator.state.estimate import DurationEstimate, RoundSample

MINUTE = 60_000.0
HOUR = 60 * MINUTE


def demand(key: str, deadline: float, round_ms: float = 1_000, **more: object) -> Demand:
    values: dict[str, object] = {"freshness_ms": 60_000, **more}
    return Demand(key=key, deadline_ms=deadline, round_ms=round_ms, **values)  # type: ignore[arg-type]


def load(*demands: Demand, slots: int = 1, running: tuple[Running, ...] = (), **more: float) -> PoolLoad:
    margins: Any = {"margin_share": 0.0, "margin_ms": 0.0, **more}
    return PoolLoad(now_ms=0, slots=slots, demands=demands, running=running, **margins)


def run(
    tables: list[SimTable],
    slots: int,
    policy: Policy = lakeward,
    hours: float = 1,
    seed: int = 0,
    compaction_ms: float | None = None,
) -> SimResult:
    return simulate(
        tables,
        slots,
        policy,
        until_ms=hours * HOUR,
        seed=seed,
        margin_share=0.1,
        margin_ms=500,
        compaction_ms=compaction_ms,
    )


def test_a_round_starts_as_late_as_its_deadline_allows_less_the_margin() -> None:
    assert plan_due(load(demand("a", 10_000))) == ([], 9_000)
    assert plan_due(load(demand("a", 10_000), margin_share=0.5, margin_ms=200)) == ([], 8_300)
    assert plan_due(load(demand("a", 1_000))) == (["a"], None)


def test_tables_with_one_deadline_start_one_after_the_other_on_one_slot() -> None:
    due, later = plan_due(load(*[demand(f"t{n}", 20_000) for n in range(20)]))
    assert (len(due), later) == (2, 1_000), "the reserve is one round: the longest that may be in the way"
    due, later = plan_due(load(*[demand(f"t{n}", 20_000) for n in range(20)], slots=20))
    assert (due, later) == ([], 19_000)


def test_least_slack_first_and_nothing_for_tables_without_rows() -> None:
    waiting = [
        demand("late", 9_000, queued=True),
        demand("soon", 4_000, queued=True),
        demand("long", 9_500, 7_000, queued=True),
    ]
    assert plan_starts(load(*waiting, slots=3), 3) == ["long", "soon", "late"]
    assert plan_due(load(Demand(key="empty", deadline_ms=None, round_ms=1, freshness_ms=1))) == ([], None)


def test_nobody_who_can_wait_takes_the_last_slot_that_another_needs() -> None:
    """Two long rounds run; a third one, with five minutes left, would keep out a table whose next round is due in
    between.
    """
    running = (
        Running(key="r1", started_ms=-117_000, ends_ms=23_000, round_ms=140_000, freshness_ms=1_372_000),
        Running(key="r2", started_ms=-5_000, ends_ms=40_000, round_ms=45_000, freshness_ms=442_000),
    )
    tight = demand("tight", 22_000, 3_000, freshness_ms=32_000)
    patient = demand("patient", 372_000, 66_000, freshness_ms=793_000, queued=True)
    others = [demand(f"o{n}", 50_000 + 10_000 * n, 8_000 + 3_000 * n, freshness_ms=120_000) for n in range(10)]
    assert plan_starts(load(tight, patient, *others, slots=3, running=running), 1) == []
    assert plan_starts(load(patient, *others, slots=3, running=running[:1]), 2) == ["patient"]


def test_a_long_round_waits_while_it_would_break_a_deadline_inside_it() -> None:
    small = demand("small", 30_000)
    big = demand("big", 400_000, 120_000, freshness_ms=600_000, queued=True)
    assert plan_starts(load(small, big, slots=1), 1) == []
    assert plan_starts(load(small, big, slots=2), 2) == ["big"]
    other = Running(key="other", started_ms=-1, ends_ms=119_999, round_ms=120_000, freshness_ms=600_000)
    assert plan_starts(load(small, big, slots=2, running=(other,)), 1) == []


def test_priority_orders_overload_and_age_ends_starvation() -> None:
    low = demand("low", -50_000, 50_000, queued=True)
    high = demand("high", 0, 50_000, queued=True, priority=5)
    assert plan_starts(load(low, high), 1) == ["high"]
    ancient = demand("low", -900_000, 50_000, queued=True)
    assert plan_starts(load(ancient, high), 1) == ["low"]


def test_the_estimate_grows_with_the_backlog_and_shrugs_off_one_wild_round() -> None:
    estimate, mb = DurationEstimate(), 2**20
    assert estimate.round_ms(0, 77) == 77
    for size in (100, 200, 300, 400, 500, 600):
        estimate = estimate.with_sample(RoundSample(duration_ms=1_000 + 10 * size, backlog_bytes=size * mb))
    assert estimate.round_ms(1_000 * mb, 0) == pytest.approx(11_000)
    wild = estimate.with_sample(RoundSample(duration_ms=90_000, backlog_bytes=300 * mb))
    assert wild.round_ms(1_000 * mb, 0) < 13_000


def test_one_cold_round_is_not_extrapolated_by_its_bytes() -> None:
    cold = DurationEstimate().with_sample(RoundSample(duration_ms=4_200, backlog_bytes=5_000))
    assert cold.round_ms(1_000_000, 0) < 5_000
    assert cold.round_ms(1_000 * 2**20, 0) > 20_000, "a backlog of a gigabyte does take longer"


def test_an_overdue_table_is_due_at_once_however_long_its_rounds_take() -> None:
    hopeless = demand("a", 1_000, 400_000, freshness_ms=1_000)
    assert plan_due(load(hopeless)) == (["a"], None)
    assert plan_starts(load(demand("a", 1_000, 400_000, freshness_ms=1_000, queued=True)), 1) == ["a"]


def test_three_tables_with_three_slots_reach_the_best_there_is() -> None:
    tables = [
        SimTable(name="a", freshness_ms=MINUTE, round_ms=30_000),
        SimTable(name="b", freshness_ms=2 * MINUTE, round_ms=90_000),
        SimTable(name="c", freshness_ms=5 * MINUTE, round_ms=100_000),
    ]
    ours = run(tables, 3).ratios
    assert all(ours[t.name] <= t.best_ratio + 1e-6 for t in tables)
    for slots in (1, 2):
        ours, theirs = run(tables, slots).ratios, run(tables, slots, fifo).ratios
        assert all(ours[t.name] < theirs[t.name] for t in tables)


@pytest.mark.parametrize("together", [True, False])
def test_small_tables_do_not_wait_for_big_rounds(together: bool) -> None:
    rng = random.Random(5)
    small = [
        SimTable(
            name=f"s{n}",
            freshness_ms=MINUTE,
            round_ms=1_000,
            noise=0.1,
            first_ms=0 if together else rng.uniform(0, MINUTE),
        )
        for n in range(50)
    ]
    big = [SimTable(name=f"b{n}", freshness_ms=10 * MINUTE, round_ms=120_000, noise=0.1) for n in range(2)]
    assert run([*small, *big], 2, hours=0.5).missed == []
    assert len(run([*small, *big], 2, fifo, hours=0.5).missed) > 40


@pytest.mark.parametrize("slots", [1, 2])
def test_one_failing_table_costs_no_other_its_freshness(slots: int) -> None:
    rng = random.Random(6)
    healthy = [
        SimTable(name=f"h{n}", freshness_ms=MINUTE, round_ms=rng.uniform(500, 2_000), first_ms=rng.uniform(0, MINUTE))
        for n in range(20)
    ]
    bad = SimTable(name="bad", freshness_ms=MINUTE, round_ms=5_000, fails=True)
    result = run([*healthy, bad], slots)
    assert [n for n in result.missed if n != "bad"] == []
    assert result.runs[-1].failures < 30, "it backs off"


def test_an_idle_table_costs_no_round() -> None:
    rare = SimTable(name="rare", freshness_ms=MINUTE, round_ms=1_000, every_ms=20 * MINUTE)
    assert run([rare], 1, hours=1).rounds == 3
    assert run([rare], 1, fifo, hours=1).rounds > 50


def test_working_ahead_without_end_is_not_the_way() -> None:
    tables = [SimTable(name=f"t{n}", freshness_ms=10 * MINUTE, round_ms=5_000) for n in range(4)]
    assert run(tables, 2).rounds < 0.2 * run(tables, 2, edf).rounds


def comfortable_mix(seed: int) -> tuple[list[SimTable], int]:
    """Tables whose rounds are short beside every freshness, in a part of the slots' time."""
    chance = random.Random(seed)
    slots = chance.choice((1, 2, 4))
    tables, left = list[SimTable](), slots * chance.uniform(0.2, 0.6)
    while left > 0 and len(tables) < 16:
        freshness = chance.choice((10_000, 30_000, 60_000, 180_000))
        round_ms = min(2_000, freshness * chance.uniform(0.01, 0.1))
        left -= round_ms / (freshness - round_ms)
        every_ms, first_ms = chance.choice((0, 1_000, freshness / 3)), chance.uniform(0, freshness)
        name = f"t{len(tables)}"
        tables.append(
            SimTable(name=name, freshness_ms=freshness, round_ms=round_ms, first_ms=first_ms, every_ms=every_ms)
        )
    return tables, slots


def check_misses(seed: int) -> int:
    """How many compactions there were."""
    tables, slots = comfortable_mix(seed)
    without, beside = (run(tables, slots, hours=0.5, seed=seed, compaction_ms=ms) for ms in (None, 5_000.0))
    assert {r.table.name: r.misses for r in beside.runs} == {r.table.name: r.misses for r in without.runs}
    return beside.compactions


@pytest.mark.parametrize("seed", [14, 100, 107])
def test_compactions_cost_no_table_its_freshness(seed: int) -> None:
    """Those of these seeds did, when they used up the margins of rounds or looked no further than their own end."""
    assert check_misses(seed) > 0


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(108, 140))
def test_compactions_cost_no_table_its_freshness_on_many_mixes(seed: int) -> None:
    check_misses(seed)


def test_a_hundred_tables_at_30_s_with_compactions() -> None:
    tables = [SimTable(name=f"t{n}", freshness_ms=30_000, round_ms=300, first_ms=300.0 * n) for n in range(100)]
    result = run(tables, 2, hours=0.1, compaction_ms=2_000)
    assert result.compactions > 0
    assert result.missed == []
