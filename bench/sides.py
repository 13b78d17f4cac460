# SPDX-License-Identifier: Apache-2.0
"""Sides of one table that read the log together: what two formats, or a state and its changelog, cost beside one, with
server and job; what a changelog's rounds cost beside those of the state; and how fast changes are replayed from the
lake and then the log beside pyarrow reading the same files.

`LAKEWARD_BENCH_SCALE=0.01 python -m bench.sides` runs a hundredth of the sizes.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq

from bench.paimon import cpu_s
from bench.report import Report
from bench.tiering import LOG_COLUMNS, log_rows
from lakeward.client import Table
from lakeward.hot.embedded.options import StoreOptions
from lakeward.model import DEFAULT_SIDE, Bucket, Content, OffsetMap, SideName, SystemClock, TablePath, side_table
from lakeward.protocol.routes import ROUNDS
from lakeward.spi import load_lake
from lakeward_testing.clock import ManualClock
from lakeward_testing.waiting import wait_until
from tests.kit.inprocess import InProcessLakeward
from tests.spark.processes import Job, Server

SCALE = float(os.environ.get("LAKEWARD_BENCH_SCALE", "1"))
KEYS, CHANGED, CHANGES = int(1_000_000 * SCALE), int(500_000 * SCALE), int(10_000_000 * SCALE)
LOGGED = 0.1
"""The share of the replayed changes that the lake does not have yet."""

ROWS = int(2_000_000 * SCALE)
"""Of a log table for each round."""

NOTE = (
    "the changelog encodes two rows for each that the state does, and has a commit of its own: that, not reading, is "
    "what is left; small sizes show the fixed cost of the second commit"
)

TURNS, TURNS_TOGETHER = 3, 7
"""Of rounds with server and job, which differ by half from turn to turn where the machine has other work."""

PATH = "bench.t"
CHANGELOG = SideName("default", Content.CHANGELOG)
BATCH = 50_000


@contextmanager
def new_world() -> Iterator[InProcessLakeward]:
    with tempfile.TemporaryDirectory(prefix="lakeward-bench-") as name:
        folder = Path(name)
        options = {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": str(folder / "warehouse")}
        store = StoreOptions.with_settings({"log.segment.file-size": "1 mb", "kv.snapshot.interval": "1 s"})
        clock = ManualClock(SystemClock().now_ms())
        with closing(InProcessLakeward(folder, load_lake("iceberg", options), clock, store)) as world:
            changelog = {"table.datalake.changelog": "default"}
            world.create(PATH, "id bigint not null, a double, v string", primary_key="id", **changelog)  # type: ignore[arg-type]
            yield world


def upsert(world: InProcessLakeward, start: int, rows: int) -> None:
    """Ids from `start` on, each row another than before."""
    for at in range(start, start + rows, BATCH):
        world.upsert(PATH, changed_rows(at, min(BATCH, start + rows - at)))


class Sides:
    """A server with two lakes, and a job on threads: what both spend on rounds of a table."""

    def __init__(self, folder: Path) -> None:
        self.server = Server(folder, {"lakes.cold.format": "delta"})
        self.job = Job(self.server, "bench", spark=False)
        self.client = self.server.connect()

    def close(self) -> None:
        self.client.close()
        self.job.stop()
        self.server.stop()

    def cpu_s(self) -> float:
        assert self.server.process is not None
        roots = [psutil.Process(child.pid) for child in (self.job.child, self.server.process.child)]
        every = [p for root in roots for p in (root, *root.children(recursive=True))]
        return float(sum(times.user + times.system for times in (p.cpu_times() for p in every)))

    def tier(self, table: Table) -> float:
        """CPU seconds of one round of each side."""
        ended, before = len(self._rounds(table)), self.cpu_s()
        self.client.tier_now(table.path, limit_s=900)
        wait_until(lambda: len(self._rounds(table)) > ended, what="the rounds' ends")
        return self.cpu_s() - before

    def _rounds(self, table: Table) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.client.server.ask("GET", ROUNDS, params={"table": table.path})["rounds"]
        return found

    def check_shared(self, table: Table) -> None:
        newest = {r["side"]: r for r in reversed(self._rounds(table))}
        assert all(r["read_with"] for r in newest.values()), "rounds of its sides did not read the log together"


@contextmanager
def new_sides() -> Iterator[Sides]:
    with tempfile.TemporaryDirectory(prefix="lakeward-bench-") as name, closing(Sides(Path(name))) as sides:
        yield sides


def bench_together(report: Report) -> None:
    """Two formats beside one, and a changelog beside a state alone. The sizes are those of one round of each side."""
    log: dict[str, dict[str, str]] = {"one": {}, "two": {"table.datalake.lakes": "default, cold"}}
    pk: dict[str, dict[str, str]] = {"state": {}, "both": {"table.datalake.changelog": "default"}}
    with report.measure() as cost, new_sides() as sides:
        make = partial(sides.client.create_table, buckets=2, freshness="1 h")
        columns = "id BIGINT NOT NULL, a DOUBLE, v STRING"
        tables = {n: make(f"b.{n}", LOG_COLUMNS, properties=p) for n, p in log.items()}
        tables |= {n: make(f"b.{n}", columns, primary_key="id", properties=p) for n, p in pk.items()}
        spent: dict[str, list[float]] = {n: [] for n in tables}
        for turn in range(TURNS_TOGETHER + 1):
            for n, table in tables.items():
                for at in range(0, ROWS, BATCH):
                    if n in log:
                        table.append(log_rows(turn * ROWS + at, BATCH))
                    else:
                        table.upsert(changed_rows(at // 2, BATCH // 2))
                spent[n].append(sides.tier(table))
        for n in ("two", "both"):
            sides.check_shared(tables[n])
    print("CPU seconds of each turn:", {n: [round(s, 2) for s in turns] for n, turns in spent.items()})
    figures = {n: sorted(s[1:])[TURNS_TOGETHER // 2] for n, s in spent.items()}
    for case, n, beside, words, target in (
        (f"Iceberg and Delta of a log table, {ROWS:,} rows", "two", "one", "Iceberg alone", "< 1.7"),
        (f"state and changelog of a PK table, {ROWS // 2:,} rows updated", "both", "state", "the state alone", "< 1.6"),
    ):
        report.add(
            case,
            figure=figures[n],
            unit="CPU s of server and job",
            beside=figures[beside],
            beside_what=words,
            target=target,
            of="ratio",
            cost=cost,
            note=None if n == "two" else NOTE,
        )


def changed_rows(start: int, count: int) -> pa.Table:
    ids = np.arange(start, start + count)
    texts = pa.array([f"order {i} {time.monotonic_ns()}" for i in ids])
    return pa.table({"id": ids, "a": np.random.default_rng().random(count), "v": texts})


def bench_changelog(report: Report) -> None:
    """All keys are there; each turn changes some of them, and both sides take the same part of the log."""
    spent = {DEFAULT_SIDE: 0.0, CHANGELOG: 0.0}
    with report.measure() as cost, new_world() as world:
        upsert(world, 0, KEYS)
        for side in spent:
            world.tier(PATH, side)
        for turn in range(TURNS):
            upsert(world, turn * CHANGED % (KEYS - CHANGED + 1), CHANGED)
            for side in spent:
                spent[side] += cpu_s(partial(world.tier, PATH, side))
    report.add(
        f"changelog side, {CHANGED:,} of {KEYS:,} keys updated",
        figure=spent[CHANGELOG] / TURNS,
        unit="CPU s",
        beside=spent[DEFAULT_SIDE] / TURNS,
        beside_what="the state side of the same changes",
        target="< 1.6",
        of="ratio",
        cost=cost,
    )


def bench_replay(report: Report) -> None:
    with report.measure() as cost, new_world() as world:
        in_lake = int(CHANGES * (1 - LOGGED))
        upsert(world, 0, in_lake)
        for side in (CHANGELOG, DEFAULT_SIDE):
            world.tier(PATH, side)
        cut_log(world)
        upsert(world, in_lake, CHANGES - in_lake)
        table = side_table(world.store.load_table(TablePath.parse(PATH)), CHANGELOG)
        reader = world.lake.open_reader(table)
        head = reader.load_snapshot()
        assert head is not None
        files = [f.path.removeprefix("file://") for f in reader.files(head.snapshot_id)]
        replayed, plain = list[float](), list[float]()
        for _ in range(TURNS):
            replayed.append(CHANGES / cpu_s(lambda: replay(world)))
            plain.append(in_lake / cpu_s(lambda: scan(files)))
    report.add(
        f"replay of {CHANGES:,} changes, lake then log",
        figure=sorted(replayed)[TURNS // 2],
        unit="rows/CPU s",
        beside=sorted(plain)[TURNS // 2],
        beside_what="pyarrow reading the same files",
        target=">= 0.5",
        of="ratio",
        cost=cost,
    )


def cut_log(world: InProcessLakeward) -> None:
    """Days pass, and retention takes what both sides have."""
    assert isinstance(world.clock, ManualClock)
    world.clock.advance(9 * 86_400)
    path = TablePath.parse(PATH)
    hot = world.store.hot_table(world.store.load_table(path))
    for bucket in hot.opened():
        bucket.kv(hot.schemas).tick()
    world.coordinator.read_lake(path)
    world.store.upkeep.upload()
    world.store.upkeep.expire()
    start = world.store.bounds(hot.info)[Bucket("", 0)].start
    assert start > 0.5 * (1 - LOGGED) * CHANGES, f"the log still begins at {start}"


def replay(world: InProcessLakeward) -> None:
    assert sum(batch.num_rows for batch in world.changes(PATH, OffsetMap())) == CHANGES


def scan(files: list[str]) -> None:
    for path in files:
        with pq.ParquetFile(path) as file:
            for _batch in file.iter_batches(use_threads=False):
                pass


def main() -> None:
    report = Report("sides")
    for bench in (bench_together, bench_changelog, bench_replay):
        bench(report)
    report.finish()


if __name__ == "__main__":
    main()
