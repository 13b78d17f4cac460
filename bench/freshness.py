# SPDX-License-Identifier: Apache-2.0
"""Worst lag / freshness per table, Lakeward's planner beside Fluss's queue and plain EDF on the same arrivals (simulated).

The lag is that of a row: from its arrival to the end of the round that brought it. `python -m bench.freshness [mixes]`."""

from __future__ import annotations

import math
import random
import sys
from collections.abc import Sequence

from bench.report import Report
from lakeward.coordinator.options import CoordinatorOptions
from lakeward.coordinator.simulator import Policy, SimResult, SimTable, edf, fifo, lakeward, simulate

MINUTE = 60_000.0
HOUR = 60 * MINUTE
_OPTIONS = CoordinatorOptions()


def main() -> None:
    mixes = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000
    report = Report("freshness")
    measure_three(report)
    measure_small_and_big(report)
    measure_failing(report)
    measure_mixes(report, mixes)
    report.finish()


def run(tables: Sequence[SimTable], slots: int, policy: Policy, until_ms: float, seed: int = 0) -> SimResult:
    """With the margins that the coordinator has by default."""
    margins = {"margin_share": _OPTIONS.margin_share, "margin_ms": 1_000 * _OPTIONS.margin_s}
    return simulate(tables, slots, policy, until_ms=until_ms, seed=seed, **margins)


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
        SimTable(name=f"small {n}", freshness_ms=MINUTE, round_ms=1_000, noise=0.1, first_ms=rng.uniform(0, MINUTE)) for n in range(50)
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
    report.add("simulated rounds per second", figure=round(ours.rounds / max(cost.cpu_s, 1e-9)), unit="1/CPU s", cost=cost)


def measure_failing(report: Report) -> None:
    rng = random.Random(2)
    healthy = [
        SimTable(name=f"h{n}", freshness_ms=MINUTE, round_ms=rng.uniform(500, 2_000), first_ms=rng.uniform(0, MINUTE)) for n in range(20)
    ]
    bad = SimTable(name="bad", freshness_ms=MINUTE, round_ms=5_000, fails=True)
    with report.measure() as cost:
        ours, theirs = run([*healthy, bad], 2, lakeward, 4 * HOUR), run([*healthy, bad], 2, fifo, 4 * HOUR)
    _add_misses(report, "1 failing + 20 healthy, 2 slots", ours, theirs, [t.name for t in healthy], cost)


def _add_misses(report: Report, case: str, ours: SimResult, theirs: SimResult, names: Sequence[str], cost: object) -> None:
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
        tables.append(SimTable(name=f"t{n}", freshness_ms=freshness, round_ms=round_ms, first_ms=rng.uniform(0, freshness)))
    return tables, slots


def is_bounded(tables: Sequence[SimTable], slots: int) -> bool:
    """A bound from above for any schedule without preemption: while a round runs, those that cannot wait for its end need the
    other slots, by their utilisation under EDF."""
    for long in tables:
        tight = [t for t in tables if t is not long and t.freshness_ms - 2 * t.round_ms < long.round_ms]
        work = sum(t.round_ms / (t.freshness_ms - t.round_ms) for t in tight)
        if tight and (slots == 1 or work > slots - 1 + 1e-9):
            return False
    return True


def measure_mixes(report: Report, count: int) -> None:
    rng = random.Random(7)
    kept = {"ours": 0, "edf": 0, "fifo": 0, "bound": 0}
    with report.measure() as cost:
        for n in range(count):
            tables, slots = draw_mix(rng)
            until = 3 * max(t.freshness_ms for t in tables)
            kept["bound"] += is_bounded(tables, slots)
            for name, policy in (("ours", lakeward), ("edf", edf), ("fifo", fifo)):
                kept[name] += not run(tables, slots, policy, until, seed=n).missed
    shares = {k: round(100 * v / count, 1) for k, v in kept.items()}
    for name, what in (("bound", "bound of EDF without preemption"), ("edf", "plain EDF"), ("fifo", "FIFO as published")):
        report.add(
            f"{count} random mixes: without a miss, beside {what}",
            figure=shares["ours"],
            unit="% of mixes",
            beside=shares[name],
            beside_what=what,
            cost=cost,
        )


if __name__ == "__main__":
    main()
