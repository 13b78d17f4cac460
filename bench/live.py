# SPDX-License-Identifier: Apache-2.0
"""The live warehouse: a load by what is new, a write until DuckDB shows it, an aggregate beside the lake alone, and
many clients.

`LAKEWARD_BENCH_SCALE=0.01 python -m bench.live` runs a small version; `python -m bench.live load` some cases.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import psutil
import pyarrow as pa

from bench.report import Report
from lakeward.client import Table
from lakeward.protocol import routes
from tests.kit.iceberg.engines import duckdb_connection
from tests.spark.processes import Job, Server, tier_now

SCALE = float(os.environ.get("LAKEWARD_BENCH_SCALE", "1"))
LAKE_ROWS, TAIL_ROWS = int(10_000_000 * SCALE), int(100_000 * SCALE)
CHUNK, LOADS, REPEATS, LIMIT_S = 100_000, 30, 9, 900.0
TABLES, CLIENTS, SECONDS = max(4, int(100 * min(1.0, SCALE * 4))), 50, 60.0 * min(1.0, max(0.1, SCALE * 4))
ROWS_A_SECOND, FRESHNESS = 1_000, "30 s"


class Bench:
    """A server without a hold, so that every load is a new moment, and a job on threads."""

    def __init__(self, folder: Path, hold: str = "0 s") -> None:
        self.server = Server(folder, {"live.hold": hold})
        self.job = Job(self.server, "bench", spark=False)
        self.client = self.server.connect()
        self.http = httpx.Client(timeout=120)

    def close(self) -> None:
        self.http.close()
        self.job.kill()
        self.client.close()
        self.server.stop()

    def load(self, path: str) -> float:
        """Seconds of one load."""
        database, table = path.split(".")
        began = time.perf_counter()
        answer = self.http.get(f"{self.server.url}/iceberg/v1/live/namespaces/{database}/tables/{table}")
        took = time.perf_counter() - began
        assert answer.status_code == 200, answer.text
        return took

    def deadline_misses(self) -> float:
        lines = self.http.get(f"{self.server.url}{routes.METRICS}").text.splitlines()
        return sum(
            float(line.rpartition(" ")[2]) for line in lines if line.startswith("lakeward_deadline_misses_total{")
        )

    def server_cpu_s(self) -> float:
        assert self.server.process is not None
        root = psutil.Process(self.server.process.child.pid)
        processes = [root, *root.children(recursive=True)]
        return float(sum(p.cpu_times().user + p.cpu_times().system for p in processes))


def rows(start: int, count: int, seed: int = 0) -> pa.Table:
    """Another seed gives the same keys other values: a row that stays as it is would be no change."""
    chance = np.random.default_rng((start, seed))
    ids = np.arange(start, start + count)
    return pa.table({"id": ids, "device": pa.array(ids % 1_000, pa.int32()), "v": chance.random(count)})


def make(bench: Bench, path: str, lake_rows: int, **options: Any) -> Table:
    columns = "id BIGINT NOT NULL, device INT, v DOUBLE"
    table = bench.client.create_table(path, columns, primary_key="id", **{"freshness": "1 h", **options})
    for at in range(0, lake_rows, CHUNK):
        table.upsert(rows(at, min(CHUNK, lake_rows - at)))
    if lake_rows:
        tier_now(bench.client, table, LIMIT_S)
    return table


def measure_loads(report: Report, bench: Bench) -> None:
    table, written = make(bench, "bench.loads", TAIL_ROWS, buckets=4), 0
    for new in (0, 100, 10_000, 100_000):
        took, cpu = [], bench.server_cpu_s()
        for _ in range(LOADS if new <= 10_000 else 5):
            if new:
                written += new
                table.upsert(rows(written % max(1, TAIL_ROWS), new, written))
            took.append(bench.load("bench.loads") * 1_000)
        spent = (bench.server_cpu_s() - cpu) / len(took) * 1_000
        note = f"p99 {max(took):.0f} ms; server {spent:.0f} CPU ms for a load, the writes included"
        report.add(f"loadTable, {new:,} new rows, p50", figure=statistics.median(took), unit="ms", note=note)
        if written > 10 * TAIL_ROWS:
            tier_now(bench.client, table, LIMIT_S)


def measure_visible(report: Report, bench: Bench) -> None:
    table = make(bench, "bench.visible", TAIL_ROWS)
    with duckdb_connection() as engine:
        url = f"{bench.server.url}/iceberg"
        engine.execute(f"ATTACH 'live' AS fresh (TYPE iceberg, ENDPOINT '{url}', AUTHORIZATION_TYPE 'none')")
        took = []
        for number in range(LOADS):
            table.upsert(pa.table({"id": [-1 - number], "device": pa.array([1], pa.int32()), "v": [1.0]}))
            began = time.perf_counter()
            (seen,) = engine.execute(f"SELECT count(*) FROM fresh.bench.visible WHERE id = {-1 - number}").fetchone()
            assert seen == 1
            took.append((time.perf_counter() - began) * 1_000)
    report.add(
        "a write acknowledged until DuckDB shows it, p50",
        figure=statistics.median(took),
        unit="ms",
        target="<= 150",
        note=f"slowest of {LOADS}: {max(took):.0f} ms; live.hold = 0 s",
    )


def measure_aggregate(report: Report, bench: Bench) -> None:
    table = make(bench, "bench.wide", LAKE_ROWS, buckets=4)
    query = "SELECT device, count(*), sum(v) FROM {}.bench.wide GROUP BY device ORDER BY device LIMIT 5"
    with duckdb_connection() as engine:
        url = f"{bench.server.url}/iceberg"
        for name in ("live", "default"):
            engine.execute(f"ATTACH '{name}' AS {name}_ (TYPE iceberg, ENDPOINT '{url}', AUTHORIZATION_TYPE 'none')")

        def run(name: str) -> Any:
            return engine.execute(query.format(f"{name}_")).fetchall()

        for at in range(0, TAIL_ROWS, CHUNK):
            table.upsert(rows(at, min(CHUNK, TAIL_ROWS - at), 1))
        with report.measure() as cost:
            alone, live = _medians_s(lambda: run("default"), lambda: run("live"))
    report.add(
        f"DuckDB, group by over {LAKE_ROWS:,} lake rows and {TAIL_ROWS:,} in the tail",
        figure=live,
        unit="s",
        beside=alone,
        beside_what="the lake alone",
        target="<= 1.3",
        of="ratio",
        cost=cost,
    )


def _medians_s(*calls: Callable[[], Any]) -> list[float]:
    """In turn, so that a machine with other work hurts each alike."""
    took: list[list[float]] = [[] for _ in calls]
    for number in range(REPEATS + 1):
        for times, call in zip(took, calls, strict=True):
            began = time.perf_counter()
            call()
            if number:  # the first one warms up
                times.append(time.perf_counter() - began)
    return [statistics.median(times) for times in took]


def measure_many(report: Report, folder: Path) -> None:
    bench = Bench(folder, hold="1 s")
    try:
        tables = [make(bench, f"many.t{n}", 0, freshness=FRESHNESS) for n in range(TABLES)]
        stop, took, lock = threading.Event(), list[float](), threading.Lock()
        http = httpx.Client(timeout=120, limits=httpx.Limits(max_connections=CLIENTS))

        def write() -> None:
            at = 0
            while not stop.wait(1.0):
                for table in tables:
                    table.upsert(rows(at, ROWS_A_SECOND))
                at += ROWS_A_SECOND

        def read(number: int) -> None:
            at = number
            while not stop.is_set():
                url = f"{bench.server.url}/iceberg/v1/live/namespaces/many/tables/t{at % TABLES}"
                began = time.perf_counter()
                assert http.get(url).status_code == 200
                with lock:
                    took.append((time.perf_counter() - began) * 1_000)
                at += 1
                stop.wait(1.0)

        threads = [threading.Thread(target=write), *(threading.Thread(target=read, args=(n,)) for n in range(CLIENTS))]
        cpu, began = bench.server_cpu_s(), time.perf_counter()
        for thread in threads:
            thread.start()
        time.sleep(SECONDS)
        stop.set()
        for thread in threads:
            thread.join()
        share = (bench.server_cpu_s() - cpu) / (time.perf_counter() - began)
        took.sort()
        note = f"{len(took)} loads, p50 {took[len(took) // 2]:.0f} ms, p99 {took[int(len(took) * 0.99)]:.0f} ms"
        case = f"{CLIENTS} clients load {TABLES} tables that are written to: cores of the server"
        report.add(case, figure=share, unit="cores", note=note)
        case = f"deadlines missed meanwhile, freshness {FRESHNESS}"
        report.add(case, figure=bench.deadline_misses(), unit="", target="<= 0", note="rounds on threads beside it")
    finally:
        bench.close()


def main(names: list[str]) -> None:
    report = Report("live")
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(Path(folder) / "one")
        try:
            for name, measure in (("load", measure_loads), ("visible", measure_visible), ("sum", measure_aggregate)):
                if not names or name in names:
                    measure(report, bench)
        finally:
            bench.close()
        if not names or "many" in names:
            measure_many(report, Path(folder) / "many")
    measured = {result.case for result in report.results}
    report.finish(lambda case: bool(names) and case not in measured)


if __name__ == "__main__":
    main(sys.argv[1:])
