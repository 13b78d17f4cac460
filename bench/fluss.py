# SPDX-License-Identifier: Apache-2.0
"""Our job and Fluss's Flink job on one Fluss cluster, the same tables, one run: CPU per round, scans of what they left,
time to visible.

    [FLUSS_VERSION=1.0.0] LAKEWARD_BENCH_SCALE=0.02 LAKEWARD_BENCH_ROUNDS=3 python -m bench.fluss
    python -m bench.fluss [--only costs|waits] [--kill]

Jobs are warm: each has tiered a small table before it is measured. CPU is that of a job's processes, Java and Python
together. The Flink job runs twice: as it is, which writes gzip whatever the table says, and with zstd in that place.
"""

from __future__ import annotations

import argparse
import datetime as dt
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import psutil
import pyarrow as pa

from bench.report import Cost, Report
from lakeward.hot.fluss.tiernow import tier_now
from lakeward.hot.fluss.wire.messages import LATEST_KV_SNAPSHOTS
from lakeward.model import TablePath
from lakeward_testing.waiting import wait_until
from tests.fluss.flink import FlinkTieringJob
from tests.fluss.steps import DATABASE, Append, DropTable, MakeTable, UpsertRange
from tests.fluss.world import FlussWorld
from tests.interop.javaiceberg import start_java
from tests.kit.fluss.cluster import FlussCluster
from tests.kit.fluss.jars import ICEBERG, fluss_version, load_jars
from tests.kit.iceberg.engines import duckdb_connection

SCALE = float(os.environ.get("LAKEWARD_BENCH_SCALE", "1"))
ROWS, KEYS, UPDATES = 10_000_000, 1_000_000, 200_000
MORE_KEYS = 4
"""How many times more keys the larger PK table has, for the same number of updates."""
UPDATE_ROUNDS = int(os.environ.get("LAKEWARD_BENCH_ROUNDS", "10"))
SCANS, SCAN_LIMIT_S = 3, 60.0
SCANNED = ("count(*)", "sum(price)", "max(comment)")
NOT_COMPACTED = {"table.datalake.auto-compaction": "false"}
"""What a round costs, and what it leaves to readers; compaction has a benchmark of its own."""
WORDS = 50_000
LOG = pa.schema(
    [
        ("id", pa.int64()),
        ("grp", pa.int32()),
        ("price", pa.float64()),
        ("qty", pa.int32()),
        ("user_name", pa.string()),
        ("city", pa.string()),
        ("comment", pa.string()),
        ("status", pa.string()),
        ("amount", pa.float64()),
        ("at", pa.timestamp("us")),
    ]
)
_AT = dt.datetime(2024, 1, 1)
_TEMPLATE = (1, 2.5, 3, "a user's name", "a city", "a comment of some forty characters, give or take", "PAID", 4.5, _AT)
_CHANGED = (
    2,
    3.5,
    4,
    "a user's name",
    "another city",
    "a comment of some forty characters, give or take",
    "DONE",
    5.5,
    _AT,
)
PARTS = ("costs", "waits")
KILLED = "killed in a round, started again"
OURS, STOCK, ZSTD = "ours", "flink", "flink_zstd"
_CODEC_CLASS = "org/apache/iceberg/parquet/Parquet$WriteBuilder$Context.class"


@dataclass(frozen=True)
class JobProcesses:
    """A tiering job and everything it started."""

    name: str
    pid: int
    stop: Callable[[], None]

    def cpu_s(self) -> float:
        top = psutil.Process(self.pid)
        return sum(_cpu(p) for p in [top, *top.children(recursive=True)])

    def rss_mb(self) -> float:
        top = psutil.Process(self.pid)
        return float(sum(p.memory_info().rss for p in [top, *top.children(recursive=True)])) / 1e6


def _cpu(process: psutil.Process) -> float:
    try:
        times = process.cpu_times()
    except psutil.NoSuchProcess:
        return 0.0
    return float(times.user + times.system + times.children_user + times.children_system)


def log_rows(start: int, count: int) -> pa.RecordBatch:
    chance = np.random.default_rng(start)
    words = pa.array([f"{n * 2654435761 % 2**40:x}" for n in range(WORDS)])

    def pick(n: int) -> pa.Array:
        return words.take(pa.array(chance.integers(0, n, count)))

    ids = np.arange(start, start + count)
    long = pa.array([f"{a} {b} {a}" for a, b in zip(pick(WORDS).to_pylist(), pick(WORDS).to_pylist(), strict=True)])
    arrays = [
        pa.array(ids),
        pa.array(chance.integers(0, 1000, count, dtype=np.int32)),
        pa.array(chance.random(count) * 1000),
        pa.array(chance.integers(1, 100, count, dtype=np.int32)),
        pick(WORDS),
        pick(5000),
        long,
        pick(5),
        pa.array(chance.random(count) * 1e6),
        pa.array(1_700_000_000_000_000 + ids * 1000, pa.timestamp("us")),
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=LOG)


def make_zstd(folder: Path) -> Path:
    """The class that takes gzip where a writer is told no codec, with zstd for it: the Flink job tells none."""
    with zipfile.ZipFile(load_jars(ICEBERG)[0]) as jar:
        code = jar.read(_CODEC_CLASS)
    gzip, zstd = (b"\x01\x00\x04" + name for name in (b"gzip", b"zstd"))  # constants of a class file
    assert code.count(gzip) == 1
    file = folder / _CODEC_CLASS
    file.parent.mkdir(parents=True)
    file.write_bytes(code.replace(gzip, zstd))
    return folder


class Bench:
    """One cluster; each job gets tables of its own, of the same rows, while no other one is running."""

    def __init__(self, world: FlussWorld, scale: float) -> None:
        self.world = world
        self.rows, self.keys, self.updates = (max(1000, int(n * scale)) for n in (ROWS, KEYS, UPDATES))
        self.chunks = max(1, self.rows // 250_000)
        self.costs: dict[tuple[str, str], Cost] = {}
        self.scans: dict[tuple[str, str], float] = {}
        self._tables: list[str] = []

    def warm_up(self, job: JobProcesses) -> None:
        self._make(f"warm_{job.name}", freshness="1s")  # every other table waits until it is asked for
        self.world.produce(Append(table=f"warm_{job.name}", rows=log_rows(0, 1000)))
        self.world.wait_tiered(f"warm_{job.name}", 600)

    def run(self, job: JobProcesses) -> None:
        """What is asked of every job."""
        self._make(f"log_{job.name}")
        rows = Append(table=f"log_{job.name}", rows=log_rows(0, 250_000), chunk=25_000, repeat=self.chunks)
        self._measure(job, "log", rows)
        self._first_round(job, "pk", self.keys)
        self._measure(job, "updates", self._changes(f"pk_{job.name}", self.keys, 0))

    def run_more_keys(self, job: JobProcesses) -> None:
        self._first_round(job, "more", self.keys * MORE_KEYS)
        self._measure(job, "updates of more", self._changes(f"more_{job.name}", self.keys * MORE_KEYS, 0))

    def run_scans(self, job: JobProcesses) -> None:
        """After ten rounds of updates, of which `run` has made the first."""
        table = f"pk_{job.name}"
        for turn in range(1, UPDATE_ROUNDS):
            self.world.produce(self._changes(table, self.keys, turn), limit_s=600)
            self._tier(table)
        metadata = self.world.metadata(table)
        with duckdb_connection() as duck:
            query = f"SELECT {', '.join(SCANNED)} FROM iceberg_scan('{metadata}')"
            self._scan(job, "DuckDB", lambda: _count(duck, query), time.process_time)
        with start_java("http://127.0.0.1:1") as java:
            named = (f"{SCANNED[0]} as found", *SCANNED[1:])
            engine = JobProcesses("java", java.pid, lambda: None)
            self._scan(job, "Java Iceberg", lambda: int(java.select(metadata, *named)[0]["found"]), engine.cpu_s)

    def visible(self, job: JobProcesses, samples: int = 2) -> float:
        """Ten rows to visible at a freshness of 10 s: the worst of some."""
        table, worst = f"few_{job.name}", 0.0
        self._make(table, freshness="10s")
        for sample in range(samples):
            (written_at,) = self.world.produce(Append(table=table, rows=log_rows(sample * 10, 10)))
            self.world.wait_tiered(table, 600)
            worst = max(worst, time.time() - written_at)
            print(f"  {job.name}: visible after {time.time() - written_at:.1f} s", flush=True)
        return worst

    def asked(self, job: JobProcesses, samples: int = 3) -> float:
        """Ten rows to visible by `tier-now`, the command's process included: the worst of some."""
        table, worst = f"asked_{job.name}", 0.0
        self._make(table)
        command = [sys.executable, "-m", "lakeward.cli", "tier-now", f"{DATABASE}.{table}"]
        for sample in range(samples):
            self.world.produce(Append(table=table, rows=log_rows(sample * 10, 10)))
            began = time.perf_counter()
            told = [*command, "--fluss", self.world.cluster.bootstrap]
            subprocess.run(told, check=True, stdout=subprocess.DEVNULL)
            took = time.perf_counter() - began
            worst = max(worst, took)
            print(f"  {job.name}: asked for, visible after {took:.2f} s", flush=True)
            self.world.wait_tiered(table, 1)
        return worst

    def drop_tables(self) -> None:
        """So that the next job is not handed them."""
        self.world.produce(*(DropTable(table=name) for name in self._tables))
        self._tables.clear()

    def _make(self, name: str, *, primary_key: tuple[str, ...] = (), freshness: str = "1h") -> None:
        schema = pa.schema([f.with_nullable(f.name not in primary_key) for f in LOG])
        self.world.produce(
            MakeTable(
                name=name,
                schema=schema,
                primary_key=primary_key,
                buckets=4,
                freshness=freshness,
                properties=NOT_COMPACTED,
            )
        )
        self._tables.append(name)

    def _first_round(self, job: JobProcesses, kind: str, keys: int) -> None:
        self._make(f"{kind}_{job.name}", primary_key=("id",))
        table = f"{kind}_{job.name}"
        steps = UpsertRange(table=table, start=0, stop=keys, template=_TEMPLATE)
        self._measure(job, kind, steps, is_ready=lambda: self._has_kv_snapshots(table))

    def _changes(self, table: str, keys: int, turn: int) -> UpsertRange:
        """As many keys in each round, spread over all of them, others each time."""
        step = max(1, keys // self.updates)
        start = turn % step
        return UpsertRange(table=table, start=start, stop=start + self.updates * step, step=step, template=_CHANGED)

    def _has_kv_snapshots(self, table: str) -> bool:
        """All that was written is in them."""
        path = {"database": DATABASE, "table": table}
        answer = self.world.plugin.servers.call_any(LATEST_KV_SNAPSHOTS, {"path": path})
        held = {s.get("bucket", 0): s.get("log_offset", 0) for s in answer.get("snapshots", [])}
        return all(held.get(bucket.number, 0) >= end for bucket, end in self.world.ends(table).items())

    def _tier(self, table: str) -> None:
        """In one round that begins when everything is written, whichever job it is."""
        tier_now(self.world.plugin, TablePath(DATABASE, table), 1800)

    def _measure(
        self,
        job: JobProcesses,
        what: str,
        step: Append | UpsertRange,
        is_ready: Callable[[], bool] = lambda: True,
    ) -> None:
        self.world.produce(step, limit_s=600 * MORE_KEYS)
        wait_until(is_ready, limit_s=300, what=f"KV snapshots of {step.table}")
        cost, began, before = Cost(), time.monotonic(), job.cpu_s()
        self._tier(step.table)
        cost.wall_s, cost.cpu_s, cost.peak_rss_mb = time.monotonic() - began, job.cpu_s() - before, job.rss_mb()
        self.costs[(what, job.name)] = cost
        print(f"  {job.name}: {what}: {cost.cpu_s:.1f} CPU s, {cost.wall_s:.1f} s", flush=True)

    def _scan(
        self, job: JobProcesses, engine: str, count: Callable[[], int | None], cpu_s: Callable[[], float]
    ) -> None:
        """The best of some, after one that warms up; one that is not over in time counts with what it took so far."""
        spent, is_over = list[float](), True
        while is_over and len(spent) <= SCANS:
            before, found = cpu_s(), count()
            is_over = found is not None
            assert found in (self.keys, None), f"{engine} does not see every key once"
            spent.append(cpu_s() - before)
        best = self.scans[(engine, job.name)] = min(spent[1:] or spent)
        print(f"  {job.name}: {engine} scans in {'' if is_over else 'more than '}{best:.2f} CPU s", flush=True)


def _count(duck: duckdb.DuckDBPyConnection, query: str) -> int | None:
    """None: given up. With equality deletes on a million rows DuckDB takes minutes."""
    alarm = threading.Timer(SCAN_LIMIT_S, duck.interrupt)
    alarm.start()
    try:
        return int(duck.sql(query).fetchall()[0][0])
    except duckdb.InterruptException:
        return None
    finally:
        alarm.cancel()


@contextmanager
def our_job(cluster: FlussCluster, folder: Path) -> Iterator[JobProcesses]:
    command = [sys.executable, "-m", "lakeward.tiering", "--fluss", cluster.bootstrap, "--name", "bench"]
    command += ["--master", "local[2,4]"]
    with (
        (folder / "ours.log").open("wb") as log,
        subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT) as process,
    ):
        try:
            yield JobProcesses(OURS, process.pid, process.terminate)
        finally:
            process.terminate()
            process.wait(60)


@contextmanager
def flink_job(cluster: FlussCluster, folder: Path, name: str = STOCK) -> Iterator[JobProcesses]:
    classes = make_zstd(folder / "zstd") if name == ZSTD else None
    job = FlinkTieringJob(cluster, folder / f"{name}.log", is_measured=True, classes=classes)
    try:
        yield JobProcesses(name, job.process.pid, job.stop)
    finally:
        job.stop()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument(
        "--kill", action="store_true", help="also: a job killed in a round, until its table is tiered (minutes)"
    )
    parser.add_argument(
        "--only", choices=PARTS, help="what rounds cost and leave, or how long rows wait; the other part's results stay"
    )
    given = parser.parse_args()
    parts = (given.only,) if given.only else PARTS
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # stops the cluster on the way out
    report = Report("fluss" if fluss_version() == "0.9.1" else f"fluss-{fluss_version()}")
    with tempfile.TemporaryDirectory(prefix="bench-fluss-") as name:
        folder = Path(name)
        cluster = FlussCluster(home=folder / "cluster", settings={"kv.snapshot.interval": "5s"}).start()
        world = FlussWorld(cluster)
        try:
            bench, worst = _run(world, folder, parts)
            if "costs" in parts:
                _report_costs(report, bench)
            if "waits" in parts:
                _report_waits(report, worst)
            if given.kill:
                _kill(report, world, folder)
            new = {result.case for result in report.results}
            report.finish(keep=lambda case: case not in new and (given.only is not None or case == KILLED))
        finally:
            world.close()
            cluster.stop()


def _run(world: FlussWorld, folder: Path, parts: Sequence[str]) -> tuple[Bench, dict[str, float]]:
    bench, worst = Bench(world, SCALE), {}
    with our_job(world.cluster, folder) as job:
        bench.warm_up(job)
        if "waits" in parts:
            worst[OURS] = bench.visible(job)
            worst["asked"] = bench.asked(job)
        if "costs" in parts:
            bench.run(job)
            bench.run_more_keys(job)
            bench.run_scans(job)
        bench.drop_tables()
    with flink_job(world.cluster, folder) as job:
        bench.warm_up(job)
        if "waits" in parts:
            worst[STOCK] = bench.visible(job)
        if "costs" in parts:
            bench.run(job)
            bench.run_scans(job)
        bench.drop_tables()
    if "costs" in parts:
        with flink_job(world.cluster, folder, ZSTD) as job:
            bench.warm_up(job)
            bench.run(job)
            bench.drop_tables()
    return bench, worst


def _load() -> str:
    return f"load of the machine at the end {os.getloadavg()[0]:.0f}, on {os.cpu_count()} cores"


def _report_costs(report: Report, bench: Bench) -> None:
    costs, scans = bench.costs, bench.scans
    rows = bench.chunks * 250_000
    per_s = {job: rows / costs[("log", job)].cpu_s / 1e6 for job in (OURS, STOCK, ZSTD)}
    log: dict[str, Any] = {"figure": per_s[OURS], "unit": "M rows per CPU s", "cost": costs[("log", OURS)]}
    log["note"] = _load()
    stock, zstd = "Flink job, stock: gzip", "Flink job with zstd"
    report.add(f"log {rows:,} rows", **log, beside=per_s[STOCK], beside_what=stock, target=">= 1.4")
    report.add(
        f"log {rows:,} rows, beside zstd", **log, beside=per_s[ZSTD], beside_what=zstd, target=">= 4", of="ratio"
    )
    for kind, what, target in (
        ("pk", f"PK first round, {bench.keys:,} keys from KV snapshots", "<= 1.6"),
        ("updates", f"PK {bench.updates:,} updates by position", "<= 1.0"),
    ):
        own: dict[str, Any] = {"figure": costs[(kind, OURS)].cpu_s, "unit": "CPU s", "cost": costs[(kind, OURS)]}
        report.add(what, **own, beside=costs[(kind, STOCK)].cpu_s, beside_what=stock, target=target)
        report.add(f"{what}, beside zstd", **own, beside=costs[(kind, ZSTD)].cpu_s, beside_what=zstd)
    more = costs[("updates of more", OURS)]
    report.add(
        f"PK {bench.updates:,} updates by position of {bench.keys * MORE_KEYS:,} keys",
        figure=more.cpu_s,
        unit="CPU s",
        beside=costs[("updates", OURS)].cpu_s,
        beside_what=f"of {bench.keys:,} keys",
        target="<= 1.3",
        of="ratio",
        cost=more,
    )
    for engine in ("DuckDB", "Java Iceberg"):
        report.add(
            f"{engine} scans the PK table after {UPDATE_ROUNDS} rounds of updates",
            figure=scans[(engine, OURS)],
            unit="CPU s",
            beside=scans[(engine, STOCK)],
            beside_what="after as many of the Flink job; given up after a minute where it took longer",
            target="<= 0.2",
            of="ratio",
        )


def _report_waits(report: Report, worst: dict[str, float]) -> None:
    report.add(
        "10 rows to visible, freshness 10 s",
        figure=worst[OURS],
        unit="s",
        beside=worst[STOCK],
        beside_what="Flink job polling every second",
        target="<= 10.5",
        note="by default the Flink job polls every 30 s: 27.5 s",
    )
    asked = "10 rows to visible, asked for by tier-now"
    report.add(asked, figure=worst["asked"], unit="s", target="<= 1.5", note=_load())


def _kill(report: Report, world: FlussWorld, folder: Path) -> None:
    """kill -9 in a round, started again at once: Fluss's lease decides, and no job can shorten it."""
    table = "killed"
    with our_job(world.cluster, folder) as job:
        world.produce(
            MakeTable(name=table, schema=LOG, freshness="5s"),
            Append(table=table, rows=log_rows(0, 250_000), chunk=25_000, repeat=8),
        )
        wait_until(lambda: world.is_being_written(table), limit_s=60, what="a round of the table")
        psutil.Process(job.pid).kill()
        killed = time.monotonic()
    with our_job(world.cluster, folder):
        world.wait_tiered(table, 400)
    took = time.monotonic() - killed
    note = "Fluss holds a dead job's table for 120 to 135 s; less needs a lease time in Fluss's coordinator"
    report.add(
        KILLED,
        figure=took,
        unit="s",
        beside=227.0,
        beside_what="Flink, measured before",
        target="<= 160",
        note=note,
    )


if __name__ == "__main__":
    main()
