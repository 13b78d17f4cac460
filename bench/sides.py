# SPDX-License-Identifier: Apache-2.0
"""A table's changelog in a lake: what its rounds cost beside those of the state, and how fast changes are replayed from
the lake and then the log beside pyarrow reading the same files.

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

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bench.paimon import cpu_s
from bench.report import Report
from lakeward.hot.embedded.options import StoreOptions
from lakeward.model.bucket import Bucket
from lakeward.model.clock import SystemClock
from lakeward.model.offsets import OffsetMap
from lakeward.model.side import DEFAULT_SIDE, Content, SideName
from lakeward.model.sidetable import side_table
from lakeward.model.table import TablePath
from lakeward.spi.registry import load_lake
from lakeward.testing.clock import ManualClock
from lakeward.testing.inprocess import InProcessLakeward

SCALE = float(os.environ.get("LAKEWARD_BENCH_SCALE", "1"))
KEYS, CHANGED, CHANGES = int(1_000_000 * SCALE), int(500_000 * SCALE), int(10_000_000 * SCALE)
LOGGED = 0.1
"""The share of the replayed changes that the lake does not have yet."""

TURNS = 3
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
        ids = np.arange(at, min(at + BATCH, start + rows))
        texts = pa.array([f"order {i} {time.monotonic_ns()}" for i in ids])
        world.upsert(PATH, pa.table({"id": ids, "a": np.random.default_rng(at).random(len(ids)), "v": texts}))


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
    for bench in (bench_changelog, bench_replay):
        bench(report)
    report.finish()


if __name__ == "__main__":
    main()
