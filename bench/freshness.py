# SPDX-License-Identifier: Apache-2.0
"""Worst lag / freshness per table, Lakeward's planner beside Fluss's queue and plain EDF on the same arrivals
(simulated).

The lag is that of a row: from its arrival to the end of the round that brought it. `LAKEWARD_BENCH_SCALE=0.05 python -m
bench.freshness` takes fewer mixes. Time is simulated, so a busy machine changes nothing but how long it takes."""

from __future__ import annotations

import math
import os
import random
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass

from bench.report import Report
from lakeward.coordinator.options import CoordinatorOptions
from lakeward.coordinator.schedule.simulator import Policy, SimResult, SimTable, edf, fifo, lakeward, simulate

MINUTE = 60_000.0
HOUR = 60 * MINUTE
SCALE = float(os.environ.get("LAKEWARD_BENCH_SCALE", "1"))
SEEDS = (7, 2026)
"""The planner was tuned on the first; the second it had never seen."""

_OPTIONS = CoordinatorOptions()


def main() -> None:
    report = Report("freshness")
    measure_three(report)
    measure_small_and_big(report)
    measure_failing(report)
    measure_mixes(report, round(500 * SCALE))
    report.finish()


def run(tables: Sequence[SimTable], slots: int, policy: Policy, until_ms: float, seed: int = 0) -> SimResult:
    """With the margins that the coordinator has by default."""
    share, margin_ms = _OPTIONS.margin_share, 1_000 * _OPTIONS.margin_s
    return simulate(tables, slots, policy, until_ms=until_ms, seed=seed, margin_share=share, margin_ms=margin_ms)


def measure_three(report: Report) -> None:
    tables = [
        SimTable(name="1 min / 30 s", freshness_ms=MINUTE, round_ms=30_000),
        SimTable(name="2 min / 90 s", freshness_ms=2 * MINUTE, round_ms=90_000),
        SimTable(name="5 min / 100 s", freshness_ms=5 * MINUTE, round_ms=100_000),
    ]
    for slots in (1, 2, 3):
        with report.measure() as cost:
            ours = run(tables, slots, lakeward, 6 * HOUR).ratios
            theirs = run(tables, slots, fifo, 6 * HOUR).ratios
        for table in tables:
            of, target = ("figure", f"<= {table.best_ratio:.3f}") if slots == 3 else ("ratio", "< 1")
            report.add(
                f"3 tables, {slots} slots: {table.name}",
                figure=round(ours[table.name], 3),
                unit="lag / freshness",
                beside=round(theirs[table.name], 3),
                beside_what="FIFO as published",
                target=target,
                of=of,
                cost=cost,
            )


def measure_small_and_big(report: Report) -> None:
    rng = random.Random(1)
    small = [
        SimTable(name=f"small {n}", freshness_ms=MINUTE, round_ms=1_000, noise=0.1, first_ms=rng.uniform(0, MINUTE))
        for n in range(50)
    ]
    big = [SimTable(name=f"big {n}", freshness_ms=10 * MINUTE, round_ms=120_000, noise=0.1) for n in range(2)]
    with report.measure() as cost:
        ours, theirs = run([*small, *big], 2, lakeward, 4 * HOUR), run([*small, *big], 2, fifo, 4 * HOUR)
    _add_misses(report, "50 small + 2 big, 2 slots", ours, theirs, [t.name for t in (*small, *big)], cost)
    report.add(
        "50 small + 2 big, 2 slots: worst of all",
        figure=round(max(ours.ratios.values()), 3),
        unit="lag / freshness",
        beside=round(max(theirs.ratios.values()), 3),
        beside_what="FIFO as published",
        target="<= 1",
        cost=cost,
    )
    report.add(
        "simulated rounds per second", figure=round(ours.rounds / max(cost.cpu_s, 1e-9)), unit="1/CPU s", cost=cost
    )


def measure_failing(report: Report) -> None:
    rng = random.Random(2)
    healthy = [
        SimTable(name=f"h{n}", freshness_ms=MINUTE, round_ms=rng.uniform(500, 2_000), first_ms=rng.uniform(0, MINUTE))
        for n in range(20)
    ]
    bad = SimTable(name="bad", freshness_ms=MINUTE, round_ms=5_000, fails=True)
    with report.measure() as cost:
        ours, theirs = run([*healthy, bad], 2, lakeward, 4 * HOUR), run([*healthy, bad], 2, fifo, 4 * HOUR)
    _add_misses(report, "1 failing + 20 healthy, 2 slots", ours, theirs, [t.name for t in healthy], cost)


def _add_misses(
    report: Report, case: str, ours: SimResult, theirs: SimResult, names: Sequence[str], cost: object
) -> None:
    wanted = set(names)
    report.add(
        f"{case}: tables that missed",
        figure=len(wanted & set(ours.missed)),
        unit="tables",
        beside=len(wanted & set(theirs.missed)),
        beside_what="FIFO as published",
        target="<= 0",
        cost=cost,  # type: ignore[arg-type]
    )


# ---- random mixes ----------------------------------------------------------------------------------------------------
def draw_mix(rng: random.Random) -> tuple[list[SimTable], int]:
    """3 to 30 tables on 1 to 4 slots at 30 to 80 % utilisation; freshness 30 s to 30 min; 2d <= freshness for each."""
    slots, count = rng.choice([1, 2, 3, 4]), rng.randint(3, 30)
    weights = [rng.random() ** 2 + 0.01 for _ in range(count)]
    target = rng.uniform(0.3, 0.8) * slots / sum(weights)
    tables = []
    for n, weight in enumerate(weights):
        freshness, share = math.exp(rng.uniform(math.log(30_000), math.log(1_800_000))), min(1.0, weight * target)
        round_ms = freshness * share / (1 + share)
        tables.append(
            SimTable(name=f"t{n}", freshness_ms=freshness, round_ms=round_ms, first_ms=rng.uniform(0, freshness))
        )
    return tables, slots


def is_possible(tables: Sequence[SimTable], slots: int) -> bool:
    """A bound from above for any schedule without preemption, EDF's or another: while a round runs, every table that
    cannot wait for its end starts at least once in each of its windows, on the other slots. What passes may still be
    impossible."""
    for long in tables:
        others = [t for t in tables if t is not long]
        if slots == 1 and any(t.freshness_ms - 2 * t.round_ms < long.round_ms for t in others):
            return False
        work = sum(
            t.round_ms * max(0, math.floor((long.round_ms - t.round_ms) / (t.freshness_ms - t.round_ms)))
            for t in others
        )
        if work > (slots - 1) * long.round_ms * (1 + 1e-9):
            return False
    return True


@dataclass(frozen=True, kw_only=True)
class Mix:
    """What came of one mix: policy -> the highest lag / freshness of a table that missed; 0 where none did."""

    utilisation: float
    possible: bool
    worst: dict[str, float]


POLICIES: dict[str, Policy] = {"ours": lakeward, "edf": edf, "fifo": fifo}


def try_mix(drawn: tuple[list[SimTable], int, int]) -> Mix:
    tables, slots, number = drawn
    until, worst = 3 * max(t.freshness_ms for t in tables), {}
    for name, policy in POLICIES.items():
        result = run(tables, slots, policy, until, seed=number)
        worst[name] = max([result.ratios[t] for t in result.missed], default=0.0)
    work = sum(t.round_ms / (t.freshness_ms - t.round_ms) for t in tables)
    return Mix(utilisation=work / slots, possible=is_possible(tables, slots), worst=worst)


def measure_mixes(report: Report, count: int) -> None:
    """So many of each seed."""
    drawn = []
    for seed in SEEDS:
        rng = random.Random(seed)
        drawn += [(*draw_mix(rng), n) for n in range(count)]
    with report.measure() as cost, ProcessPoolExecutor() as pool:
        mixes = list(pool.map(try_mix, drawn, chunksize=5))
    case, possible = f"{len(mixes):,} random mixes", [m for m in mixes if m.possible]
    beside = {
        "an upper bound of any schedule without preemption": _percent(possible, mixes),
        "plain EDF": _percent([m for m in mixes if not m.worst["edf"]], mixes),
        "FIFO as published": _percent([m for m in mixes if not m.worst["fifo"]], mixes),
    }
    for what, figure in beside.items():
        report.add(
            f"{case}: without a miss, beside {what}",
            figure=_kept(mixes),
            unit="% of mixes",
            beside=figure,
            beside_what=what,
            cost=cost,
        )
    for n, seed in enumerate(SEEDS):
        report.add(
            f"{case}: without a miss, those of seed {seed}",
            figure=_kept(mixes[n * count : (n + 1) * count]),
            unit="% of mixes",
        )
    for low, high in ((0.0, 0.5), (0.5, 0.65), (0.65, 0.81)):
        band = [m for m in possible if low < m.utilisation <= high]
        report.add(
            f"{case}: of those within the bound at {low:.0%} to {high:.0%} utilisation",
            figure=_kept(band),
            unit="% without a miss",
        )
    missed = [m for m in possible if m.worst["ours"]]
    near = _percent([m for m in missed if m.worst["ours"] <= 1.1], missed)
    report.add(
        f"{case}: of those within the bound that missed, by a tenth of the freshness or less",
        figure=near,
        unit="% of mixes",
    )


def _kept(mixes: Sequence[Mix]) -> float:
    return _percent([m for m in mixes if not m.worst["ours"]], mixes)


def _percent(chosen: Sequence[Mix], of: Sequence[Mix]) -> float:
    return round(100 * len(chosen) / max(1, len(of)), 1)


if __name__ == "__main__":
    main()
