# SPDX-License-Identifier: Apache-2.0
"""A day of rounds in minutes with maintenance on: what a scan costs after it beside a freshly written table, and what
late plans and commits cost beside early ones.

The coordinator hands out rounds and compactions to one job with one slot. The work of each is counted as the kernel
sees it, in reads, writes and bytes, which no neighbour changes; the clock moves by it, so that what is late is late on
every machine. tests/property/test_day.py holds the counts, this benchmark the CPU seconds. `LAKEWARD_BENCH_ROUNDS=500`
makes it shorter."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, repeat
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
import pyarrow as pa

from bench.maintenance import EXPIRY, Yard, best_in_turn, opened, rows
from bench.report import Report
from lakeward.model import TablePath, set_injector
from lakeward.model.side import COMPACT
from lakeward.protocol.heartbeat import HandedOut, TableFinished

ROUNDS = int(os.environ.get("LAKEWARD_BENCH_ROUNDS", "10000"))
KEYS, ROWS = 300_000, 50
PATH, FRESH = "b.day", "b.fresh"
FRESHNESS_S = 10
BEATS_S = (5.0, 3.5)
"""Between a job's questions: more seldom than a job asks while nothing can be due, then twice a second."""

EXPIRED_ROUNDS, SAID_ROUNDS = 50, 500
CALL_S, BYTE_S = 100e-6, 10e-9
"""What a read or write takes on the day's clock, and each byte of it: a round of 50 rows then takes 0.1 s."""


@dataclass(frozen=True)
class Work:
    """Reads and writes of this process, and their bytes."""

    calls: int
    bytes: int

    @classmethod
    def so_far(cls) -> Work:
        lines = Path("/proc/self/io").read_text().splitlines()
        io = {name: int(count) for name, _, count in (line.partition(": ") for line in lines)}
        return cls(io["syscr"] + io["syscw"], io["rchar"] + io["wchar"])

    @classmethod
    def of(cls, call: Callable[[], object]) -> Work:
        before = cls.so_far()
        call()
        return cls.so_far() - before

    def __sub__(self, other: Work) -> Work:
        return Work(self.calls - other.calls, self.bytes - other.bytes)

    @property
    def seconds(self) -> float:
        return self.calls * CALL_S + self.bytes * BYTE_S


@dataclass(frozen=True)
class Moment:
    """A named step of a round: the work and the CPU seconds up to it."""

    work: Work
    cpu_s: float

    @classmethod
    def now(cls) -> Moment:
        return cls(Work.so_far(), time.process_time())


@dataclass
class Phase:
    """The plans, or the commits, of all rounds."""

    work_s: list[float] = field(default_factory=list)
    cpu_s: list[float] = field(default_factory=list)

    def add(self, begin: Moment, end: Moment) -> None:
        self.work_s.append((end.work - begin.work).seconds)
        self.cpu_s.append(end.cpu_s - begin.cpu_s)

    def __str__(self) -> str:
        return f"{grown(self.work_s):.2f} x ({grown(self.cpu_s):.2f} x in CPU s)"


@dataclass
class Day:
    """`metadata`: bytes after each expiry. `late`: rounds whose rows came after their freshness."""

    yard: Yard
    plans: Phase = field(default_factory=Phase)
    commits: Phase = field(default_factory=Phase)
    metadata: list[int] = field(default_factory=list)
    most_files: int = 0
    compactions: int = 0
    late: int = 0
    worst_s: float = 0.0

    def __str__(self) -> str:
        return (
            f"{self.compactions:,} compactions, at most {self.most_files} files, {self.late} rounds late, worst"
            f" {self.worst_s:.1f} s, late beside early: plans {self.plans}, commits {self.commits}, metadata"
            f" {grown(self.metadata):.2f} x"
        )

    def round(self) -> None:
        """When the coordinator hands it out, after a compaction if one is due."""
        came, waits = self.yard.clock.monotonic(), chain(BEATS_S, repeat(0.5))
        self.compact()
        while (handed := self.yard.world.take(PATH)) is None:
            self.yard.clock.advance(next(waits))
        at = self.run(handed)
        self.plans.add(at["began"], at["round.planned"])
        self.commits.add(at["round.written"], at["ended"])
        self.worst_s = max(self.worst_s, self.yard.clock.monotonic() - came)
        self.late += self.yard.clock.monotonic() - came > FRESHNESS_S

    def compact(self) -> None:
        handed = self.yard.world.take(PATH, COMPACT)
        if handed is not None:
            self.run(handed)
            self.compactions += 1

    def run(self, handed: HandedOut) -> dict[str, Moment]:
        """The clock moves at every named step: the coordinator learns what rounds take."""
        at = {"began": Moment.now()}
        last, one_at_a_time = at["began"], Lock()

        def note(point: str, _facts: dict[str, Any]) -> None:
            nonlocal last
            with one_at_a_time:
                now = Moment.now()
                self.yard.clock.advance((now.work - last.work).seconds)
                at[point] = last = now

        before = set_injector(note)
        try:
            end = self.yard.world.run(handed)
        finally:
            set_injector(before)
        assert isinstance(end, TableFinished), end
        note("ended", {})
        self.most_files = max(self.most_files, self.yard.files(PATH))
        return at


def run_day(yard: Yard, folder: Path, *, keyed: bool, rounds: int = ROUNDS) -> Day:
    yard.create(PATH, keyed=keyed, **EXPIRY, **{"table.datalake.freshness": f"{FRESHNESS_S} s"})
    side, chance = yard.world.coordinator.board.find(TablePath.parse(PATH)), np.random.default_rng(18)
    put, day = yard.world.upsert if keyed else yard.world.append, Day(yard)
    for first in range(0, KEYS, 100_000):
        put(PATH, rows(np.arange(first, first + 100_000), first))
    yard.tier(PATH)
    for number in range(rounds):
        ids = chance.choice(KEYS, ROWS, replace=False) if keyed else np.arange(ROWS) + KEYS + number * ROWS
        put(PATH, rows(ids, number))
        day.round()
        if number % EXPIRED_ROUNDS == EXPIRED_ROUNDS - 1:
            yard.world.coordinator.upkeep.expire(side)
            day.metadata.append(sum(p.stat().st_size for p in folder.rglob("metadata/*") if p.is_file()))
        if number % SAID_ROUNDS == SAID_ROUNDS - 1:
            print(f"{number + 1:,} rounds: {day}", flush=True)
    return day


def grown(figures: Sequence[float]) -> float:
    """The last quarter beside an early one, of which the start is left out."""
    quarter = max(1, len(figures) // 4)
    early, late = figures[quarter // 2 : quarter + quarter // 2] or figures, figures[-quarter:]
    return statistics.median(late) / statistics.median(early)


def write_fresh(yard: Yard, *, keyed: bool) -> None:
    """The day's rows in one round, for comparison."""
    yard.create(FRESH, keyed=keyed)
    put = yard.world.upsert if keyed else yard.world.append
    for part in yard.world.read(PATH).to_table().to_batches(100_000):
        put(FRESH, pa.Table.from_batches([part]))
    yard.tier(FRESH)
    assert yard.scan(PATH) == yard.scan(FRESH)


def main() -> None:
    report = Report("day")
    for keyed in (False, True):
        with opened() as yard, report.measure() as cost:
            day = run_day(yard, Path(yard.world.folder).parent, keyed=keyed)
            write_fresh(yard, keyed=keyed)
            kept_s, fresh_s = best_in_turn(*(partial(yard.scan, p) for p in (PATH, FRESH)))
            shape = yard.shape(PATH)
        what = f"{ROUNDS:,} rounds of {ROWS} rows, {'PK' if keyed else 'log'}"
        report.add(
            f"scan after {what}",
            figure=1_000 * kept_s,
            unit="ms",
            beside=1_000 * fresh_s,
            beside_what="freshly written",
            target="<= 1.5",
            of="ratio",
            cost=cost,
            note=f"{shape}; {day}",
        )
        for name, phase in {"plan": day.plans, "commit": day.commits}.items():
            report.add(
                f"{name}s of late rounds beside early ones, {what}",
                figure=grown(phase.cpu_s),
                unit="x in CPU s",
                target="<= 1.5",
                cost=cost,
            )
    report.finish()


if __name__ == "__main__":
    main()
