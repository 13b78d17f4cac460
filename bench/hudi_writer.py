# SPDX-License-Identifier: Apache-2.0
"""Upserts into a Hudi table: a round of ours beside Hudi's own writer on Spark, which is handed the same rows as files
that were written first, and as a DataFrame.

It needs Hudi's code: `.ci/hudi` makes its environment, and `.venv-hudi/bin/python -m bench.hudi_writer` runs there.
Elsewhere it says so and measures nothing. `LAKEWARD_BENCH_SCALE=0.1` runs a tenth of the sizes.
"""

from __future__ import annotations

import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from lakeward.lake.hudi.plugin import open_lake
from lakeward.lake.hudi.sparkbundle import SPARK, bundle_jar
from lakeward_testing.lakes.rounds import LakeRound
from lakeward_testing.lakes.suite import B0, LakeSuite
from lakeward_testing.scripted_log import ScriptedLog

SCALE = float(os.environ.get("LAKEWARD_BENCH_SCALE", "1"))
KEYS, CHANGED, TURNS = int(200_000 * SCALE), int(40_000 * SCALE), 4
COLUMNS = {"id": "BIGINT NOT NULL", "name": "STRING"}
HUDI = {
    "hoodie.table.name": "theirs",
    "hoodie.datasource.write.table.type": "MERGE_ON_READ",
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.operation": "upsert",
    "hoodie.record.merge.mode": "COMMIT_TIME_ORDERING",
    "hoodie.index.type": "BUCKET",
    "hoodie.bucket.index.num.buckets": "1",
    "hoodie.bucket.index.hash.field": "id",
    "hoodie.write.concurrency.mode": "optimistic_concurrency_control",
    "hoodie.clean.failed.writes.policy": "LAZY",
    "hoodie.write.lock.provider": "org.apache.hudi.client.transaction.lock.FileSystemBasedLockProvider",
    "hoodie.compact.inline": "false",
    "hoodie.clean.automatic": "false",
    "hoodie.metadata.enable": "false",
    "hoodie.embed.timeline.server": "false",
}


def why_not() -> str | None:
    try:
        found = version("pyspark")
    except PackageNotFoundError:
        found = "none"
    return None if found.startswith(f"{SPARK}.") else f"PySpark is {found}: Hudi's own writer exists for {SPARK} alone"


def rows(first: int, count: int, turn: int) -> pa.Table:
    ids = [first + n for n in range(count)]
    return pa.table({"id": ids, "name": [f"version {turn} of {i}" for i in ids], "__offset": ids})


class Costs:
    """CPU seconds of this process, its ended children, and of Spark's JVM."""

    def __init__(self, spark: Any) -> None:
        import psutil

        pid = int(spark._jvm.java.lang.ProcessHandle.current().pid())
        self._processes = [psutil.Process(), psutil.Process(pid)]
        self.spent: dict[str, list[tuple[float, float]]] = {}

    def measure(self, name: str, work: Callable[[], object]) -> None:
        cpu, wall = self._cpu_s(), time.monotonic()
        work()
        self.spent.setdefault(name, []).append((self._cpu_s() - cpu, time.monotonic() - wall))

    def _cpu_s(self) -> float:
        times = [p.cpu_times() for p in self._processes]
        return float(sum(t.user + t.system + t.children_user + t.children_system for t in times))


def main() -> None:
    if why := why_not():
        print(f"hudi_writer: nothing measured, {why}")
        return
    from lakeward.tiering.job.session import SessionOptions, open_session

    folder = Path(tempfile.mkdtemp(prefix="lakeward-bench-"))
    opened = open_session(SessionOptions(master="local[2]", archive=False, hudi=bundle_jar()))
    try:
        run(opened.spark, folder)
    finally:
        opened.close()
        shutil.rmtree(folder, ignore_errors=True)


def run(spark: Any, folder: Path) -> None:
    costs, theirs = Costs(spark), {name: str(folder / name) for name in ("staged", "handed over")}
    lake = open_lake({"warehouse": str(folder / "ours")})
    log = LakeSuite().make_log(lake, columns=COLUMNS, primary_key=("id",), bucket_count=1)
    for turn in range(TURNS + 1):
        part = rows(0, CHANGED if turn else KEYS, turn)

        def ours(log: ScriptedLog = log, part: pa.Table = part) -> None:
            LakeRound.plan(lake, log).run()

        log.upsert(B0, *part.select(["id", "name"]).to_pylist())
        work = {"ours": ours, **{n: writer(spark, n, root, part, folder) for n, root in theirs.items()}}
        for name, call in work.items():
            if turn:
                costs.measure(name, call)
            else:
                call()
    for name, spent in costs.spent.items():
        cpu, wall = (statistics.median(s[at] for s in spent) for at in (0, 1))
        figures = f"{cpu:.2f} CPU s, {wall:.2f} s, {CHANGED / cpu:,.0f} rows per CPU s"
        print(f"{name}: {CHANGED:,} upserts of {KEYS:,} keys: {figures}")


def writer(spark: Any, name: str, root: str, part: pa.Table, folder: Path) -> Callable[[], None]:
    def write() -> None:
        if name == "staged":
            path = folder / f"{time.monotonic_ns()}.parquet"
            pq.write_table(part, path, compression="zstd")
            frame = spark.read.parquet(f"file://{path}")
        else:
            frame = spark.createDataFrame(part.to_pandas())
        frame.write.format("hudi").options(**HUDI).mode("append").save(f"file://{root}")

    return write


if __name__ == "__main__":
    main()
