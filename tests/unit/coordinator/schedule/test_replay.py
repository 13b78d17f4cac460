# SPDX-License-Identifier: Apache-2.0
"""Arrivals of the past, replayed: spans from rounds, the busiest stretch, and tables that are late in it."""

from __future__ import annotations

from lakeward.coordinator.schedule.admission import busiest, busy_spans
from lakeward.coordinator.schedule.simulator import SimTable, lakeward, simulate

HOUR = 3_600_000


def test_rounds_that_follow_each_other_are_one_span() -> None:
    rounds = [(60_000 * n, 60_000 * n + 5_000) for n in range(1, 5)]
    assert busy_spans(rounds, freshness_ms=70_000) == [(0.0, 240_000.0)]


def test_a_pause_longer_than_the_freshness_parts_two_spans() -> None:
    assert busy_spans([(100_000, 101_000), (900_000, 901_000)], freshness_ms=10_000) == [
        (91_000.0, 100_000.0),
        (891_000.0, 900_000.0),
    ]


def test_the_busiest_stretch_begins_where_most_rounds_are() -> None:
    assert busiest([0, 50, 1_000, 1_010, 1_020, 5_000], window_ms=100) == 1_000


def test_a_table_costs_rounds_only_while_rows_came() -> None:
    busy = SimTable(name="a", freshness_ms=10_000, round_ms=1_000, busy_ms=((0.0, 60_000.0),))
    result = simulate([busy], 1, lakeward, until_ms=HOUR)
    assert not result.missed
    always = simulate([SimTable(name="a", freshness_ms=10_000, round_ms=1_000)], 1, lakeward, until_ms=HOUR)
    assert 5 <= result.rounds <= 9
    assert always.rounds > 300


def test_two_tables_that_were_busy_at_once_need_two_slots() -> None:
    """At other times one slot is enough for both."""

    def tables(begin: float) -> list[SimTable]:
        return [
            SimTable(name=n, freshness_ms=10_000, round_ms=5_000, busy_ms=((at, at + 120_000.0),))
            for n, at in (("a", 0.0), ("b", begin), ("c", 2 * begin))
        ]

    assert simulate(tables(0.0), 1, lakeward, until_ms=HOUR).missed
    assert not simulate(tables(600_000.0), 1, lakeward, until_ms=HOUR).missed
