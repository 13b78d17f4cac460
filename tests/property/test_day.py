# SPDX-License-Identifier: Apache-2.0
"""A day of rounds in minutes with maintenance on: nothing that readers or rounds pay for grows, and no row is late.

The coordinator hands out rounds and compactions to one job with one slot; its clock moves by the processor time that
they take. `LAKEWARD_SOAK_ROUNDS=500` makes it shorter; `-s` prints the figures."""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain, repeat
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from bench.maintenance import EXPIRY, Yard, best_in_turn, rows
from lakeward.model.faults import set_injector
from lakeward.model.side import COMPACT
from lakeward.model.table import TablePath
from lakeward.protocol.heartbeat import HandedOut, TableFinished

ROUNDS = int(os.environ.get("LAKEWARD_SOAK_ROUNDS", "10000"))
KEYS, ROWS = 300_000, 50
PATH = "b.day"
FRESHNESS_S = 10
BEATS_S = (5.0, 3.5)
"""Between a job's questions: more seldom than a job asks while nothing can be due, then twice a second."""

EXPIRED_ROUNDS, SAID_ROUNDS = 50, 500
SCAN = 1.5
"""A scan beside a freshly written table."""

FLAT = 1.5
"""Late rounds beside early ones, of which the start is left out."""


@dataclass
class Day:
    """CPU seconds of each round's plan and commit, bytes of metadata after each expiry, rows that came late."""

    yard: Yard
    plans: list[float] = field(default_factory=list)
    commits: list[float] = field(default_factory=list)
    metadata: list[int] = field(default_factory=list)
    most_files: int = 0
    compactions: int = 0
    late: int = 0
    worst_s: float = 0.0

    @property
    def growth(self) -> dict[str, float]:
        """The last quarter beside an early one."""
        return {name: grown(getattr(self, name)) for name in ("plans", "commits", "metadata")}

    def __str__(self) -> str:
        grew = ", ".join(f"{name} {times:.2f} x" for name, times in self.growth.items())
        return (
            f"{self.compactions:,} compactions, at most {self.most_files} files, {self.late} rounds late, worst"
            f" {self.worst_s:.1f} s, late beside early: {grew}"
        )

    def round(self) -> None:
        """When the coordinator hands it out, after a compaction if one is due."""
        came, waits = self.yard.clock.monotonic(), chain(BEATS_S, repeat(0.5))
        self.compact()
        while (handed := self.yard.world.take(PATH)) is None:
            self.yard.clock.advance(next(waits))
        at = self.run(handed)
        self.plans.append(at["round.planned"] - at["began"])
        self.commits.append(at["ended"] - at["round.written"])
        self.worst_s = max(self.worst_s, self.yard.clock.monotonic() - came)
        self.late += self.yard.clock.monotonic() - came > FRESHNESS_S

    def compact(self) -> None:
        handed = self.yard.world.take(PATH, COMPACT)
        if handed is not None:
            self.run(handed)
            self.compactions += 1

    def run(self, handed: HandedOut) -> dict[str, float]:
        """CPU seconds at every named step, which are the clock's too: the coordinator learns what rounds take."""
        at = {"began": time.process_time()}

        one_at_a_time = Lock()

        def note(point: str, _facts: dict[str, Any]) -> None:
            with one_at_a_time:
                now = time.process_time()
                self.yard.clock.advance(now - max(at.values()))
                at[point] = now

        before = set_injector(note)
        try:
            end = self.yard.world.run(handed)
        finally:
            set_injector(before)
        assert isinstance(end, TableFinished), end
        note("ended", {})
        self.most_files = max(self.most_files, self.yard.files(PATH))
        return at


@pytest.mark.soak
@pytest.mark.parametrize("keyed", [False, True], ids=["log", "pk"])
def test_a_day_of_rounds_costs_nothing(keyed: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        yard = Yard(Path(folder))
        try:
            run_day(yard, Path(folder), keyed=keyed)
        finally:
            yard.close()


def run_day(yard: Yard, folder: Path, *, keyed: bool) -> None:
    yard.create(PATH, keyed=keyed, **EXPIRY, **{"table.datalake.freshness": f"{FRESHNESS_S} s"})
    side, chance = yard.world.coordinator.board.find(TablePath.parse(PATH)), np.random.default_rng(18)
    put, day = yard.world.upsert if keyed else yard.world.append, Day(yard)
    for first in range(0, KEYS, 100_000):
        put(PATH, rows(np.arange(first, first + 100_000), first))
    yard.tier(PATH)
    for number in range(ROUNDS):
        ids = chance.choice(KEYS, ROWS, replace=False) if keyed else np.arange(ROWS) + KEYS + number * ROWS
        put(PATH, rows(ids, number))
        day.round()
        if number % EXPIRED_ROUNDS == EXPIRED_ROUNDS - 1:
            yard.world.coordinator.upkeep.expire(side)
            day.metadata.append(sum(p.stat().st_size for p in folder.rglob("metadata/*") if p.is_file()))
        if number % SAID_ROUNDS == SAID_ROUNDS - 1:
            print(f"{number + 1:,} rounds: {day}", flush=True)
    ratio = beside_fresh(yard, keyed=keyed)
    print(f"{'PK' if keyed else 'log'}, {ROUNDS:,} rounds: {day}; scan {ratio:.2f} x of fresh; {yard.shape(PATH)}")
    assert day.compactions > 0
    assert day.most_files < 40
    assert day.late == 0
    assert all(g <= FLAT for g in day.growth.values()), day
    assert ratio <= SCAN


def grown(figures: Sequence[float]) -> float:
    quarter = len(figures) // 4
    early, late = figures[quarter // 2 : quarter + quarter // 2], figures[-quarter:]
    return statistics.median(late) / statistics.median(early)


def beside_fresh(yard: Yard, *, keyed: bool) -> float:
    yard.create("b.fresh", keyed=keyed)
    put = yard.world.upsert if keyed else yard.world.append
    for part in yard.world.read(PATH).to_table().to_batches(100_000):
        put("b.fresh", pa.Table.from_batches([part]))
    yard.tier("b.fresh")
    assert yard.scan(PATH) == yard.scan("b.fresh")
    kept_s, fresh_s = best_in_turn(lambda: yard.scan(PATH), lambda: yard.scan("b.fresh"))
    return kept_s / fresh_s
