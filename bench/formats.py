# SPDX-License-Identifier: Apache-2.0
"""Other lake formats beside Iceberg in the same run: log rounds, upserts, and reads after a long life with upkeep.

`LAKEWARD_BENCH_SCALE=0.1 python -m bench.formats` runs a tenth of the sizes.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa

from bench.iceberg import BUCKETS, ChangelogMaker, batches, new_lake, run_round, table_info
from bench.paimon import compact, cpu_s, head_files, log_round, pk_round
from bench.report import Cost, Report
from lakeward.changelog.columns import without_prev
from lakeward.model import TableInfo
from lakeward.spi import DeleteEncoding, LakeStorage, load_lake
from lakeward_testing.lakes.rewriting import LakeRewrite

SCALE = float(os.environ.get("LAKEWARD_BENCH_SCALE", "1"))
LOG_ROWS, KEYS, CHANGED = int(5_000_000 * SCALE), int(1_000_000 * SCALE), int(200_000 * SCALE)
ROUNDS, LIFE_KEYS = max(40, int(300 * SCALE)), max(4_000, int(200_000 * SCALE))
LOADED_ROWS = 500_000
"""Rows that are held to be written again and again: making data is not measured."""

TURNS = 4
"""Formats take turns: what else the machine does meets both."""

SCANS = 15
EVERY_SNAPSHOT_IS_OLD_MS = 10**15


@contextmanager
def folder_lake(format: str) -> Iterator[LakeStorage]:
    folder = Path(tempfile.mkdtemp(prefix="lakeward-bench-"))
    try:
        yield load_lake(format, {"warehouse": str(folder)})
    finally:
        shutil.rmtree(folder, ignore_errors=True)


OTHERS = ("delta", "lance", "hudi")
NewLake = Callable[[], AbstractContextManager[LakeStorage]]
FORMATS: dict[str, NewLake] = {"iceberg": new_lake, **{name: partial(folder_lake, name) for name in OTHERS}}
TARGETS = {"delta": ">= 0.8"}


def created(lake: LakeStorage, name: str, *, pk: bool) -> TableInfo:
    table = table_info(name, pk=pk)
    lake.catalog().create(table)
    return table


# ---- rows per CPU second ---------------------------------------------------------------------------------------------
def log_cost(lake: LakeStorage, part: list[pa.RecordBatch]) -> float:
    table = created(lake, f"log{time.monotonic_ns()}", pk=False)
    return cpu_s(partial(log_round, lake, table, part, sum(b.num_rows for b in part)))


def bench_log(report: Report) -> None:
    spent, left = dict.fromkeys(FORMATS, 0.0), LOG_ROWS
    while left > 0:
        part = list(batches(min(LOADED_ROWS, left)))
        for name, new in FORMATS.items():
            with new() as lake:
                spent[name] += log_cost(lake, part)
        left -= LOADED_ROWS
    add(report, f"log table, {LOG_ROWS:,} rows", LOG_ROWS, spent)


def bench_upserts(report: Report) -> None:
    """The first round of all keys is not measured; each of the others changes a fifth of them."""
    costs = {name: list[float]() for name in FORMATS}
    with ExitStack() as stack:
        makers = {name: ChangelogMaker(KEYS) for name in FORMATS}
        chances = {name: np.random.default_rng(5) for name in FORMATS}
        lakes: dict[str, LakeStorage] = {name: stack.enter_context(new()) for name, new in FORMATS.items()}
        tables = {name: created(lake, "upserts", pk=True) for name, lake in lakes.items()}
        for turn in range(TURNS + 1):
            for name, lake in lakes.items():
                changes = changed(makers[name], CHANGED // BUCKETS, chances[name], is_first=turn == 0)
                cost = cpu_s(partial(upsert_round, lake, tables[name], changes))
                costs[name] += [cost] if turn else []
    spent = {name: sorted(of)[len(of) // 2] for name, of in costs.items()}
    add(report, f"{CHANGED:,} upserts of {KEYS:,} keys", CHANGED, spent)


def upsert_round(lake: LakeStorage, table: TableInfo, changes: dict[int, pa.RecordBatch]) -> None:
    """Folded, or as changes where the format merges by key itself."""
    if DeleteEncoding.NATIVE in lake.capabilities.delete_encodings:
        pk_round(lake, table, {number: without_prev(batch) for number, batch in changes.items()})
    else:
        run_round(lake, table, changes)


def changed(
    maker: ChangelogMaker, count: int, chance: np.random.Generator, *, is_first: bool
) -> dict[int, pa.RecordBatch]:
    return {b: maker.load(b) if is_first else maker.change(b, count, chance) for b in range(BUCKETS)}


def add(report: Report, case: str, rows: int, spent: dict[str, float]) -> None:
    for name, cost in spent.items():
        if name != "iceberg":
            report.add(
                f"{name}: {case}",
                figure=rows / cost,
                unit="rows per CPU s",
                beside=rows / spent["iceberg"],
                beside_what="our Iceberg round",
                target=TARGETS.get(name),
                of="ratio",
                cost=Cost(cpu_s=cost),
            )


# ---- a long life -----------------------------------------------------------------------------------------------------
def bench_life(report: Report, format: str) -> None:
    """Rounds, a compaction after every fourth, expiry after every twentieth."""
    with folder_lake(format) as lake:
        fresh, aged = created(lake, "fresh", pk=True), created(lake, "aged", pk=True)
        makers, chance = (ChangelogMaker(LIFE_KEYS), ChangelogMaker(LIFE_KEYS)), np.random.default_rng(7)
        for table, maker in zip((fresh, aged), makers, strict=True):
            upsert_round(lake, table, changed(maker, 0, chance, is_first=True))
        if is_native := DeleteEncoding.NATIVE in lake.capabilities.delete_encodings:
            LakeRewrite(lake=lake, table=fresh).run()  # else each scan merges it by key, and any age looks young beside
        rounds, upkeep = list[float](), 0.0
        for number in range(ROUNDS):
            rounds.append(cpu_s(partial(upsert_round, lake, aged, changed(makers[1], 100, chance, is_first=False))))
            if number % 4 == 3:
                upkeep += cpu_s(partial(compact, lake, aged))
            if number % 20 == 19:
                upkeep += cpu_s(partial(expire, lake, aged))
        files = len(head_files(lake, aged))
        aged_s, fresh_s = quickest_s(scan(lake, aged), scan(lake, fresh))
        report.add(
            f"{format}: scan of a PK table of {LIFE_KEYS:,} rows after {ROUNDS:,} rounds with upkeep",
            figure=1_000 * aged_s,
            unit="ms CPU",
            beside=1_000 * fresh_s,
            beside_what="written in one round" + (" and compacted" if is_native else ""),
            target="<= 1.5" if format in TARGETS else None,
            of="ratio",
            note=f"{files} files in {BUCKETS} buckets; upkeep took {upkeep:.1f} CPU s",
        )
        tenth = max(1, ROUNDS // 10)
        report.add(
            f"{format}: the last {tenth} of those rounds, each",
            figure=1_000 * sum(rounds[-tenth:]) / tenth,
            unit="ms CPU",
            beside=1_000 * sum(rounds[:tenth]) / tenth,
            beside_what="the first ones",
            target="<= 2" if format in TARGETS else None,
            of="ratio",
        )


def expire(lake: LakeStorage, table: TableInfo) -> None:
    upkeep = lake.open_maintenance(table)
    upkeep.expire([s.snapshot_id for s in upkeep.expirable(EVERY_SNAPSHOT_IS_OLD_MS)])


def quickest_s(*calls: Callable[[], object]) -> list[float]:
    """CPU seconds of the quickest of each: they take turns, and what else the machine does only adds to them."""
    took = [[cpu_s(call) for call in calls] for _ in range(SCANS)]
    return [min(of) for of in zip(*took, strict=True)]


def scan(lake: LakeStorage, table: TableInfo) -> Callable[[], int]:
    def rows() -> int:
        reader = lake.open_reader(table)
        head = reader.load_snapshot()
        assert head is not None
        count = sum(int(b.num_rows) for b in reader.scan(head.snapshot_id))
        assert count == LIFE_KEYS
        return count

    return rows


def main() -> None:
    report = Report("formats")
    bench_log(report)
    bench_upserts(report)
    for name in OTHERS:
        bench_life(report, name)
    report.finish()


if __name__ == "__main__":
    main()
