# SPDX-License-Identifier: Apache-2.0
"""100 tables that grow by 100 rows a second each, five minutes, at 30 s and at 10 s freshness, maintenance on: missed
deadlines, CPU per round.

`LAKEWARD_BENCH_SCALE=0.1` takes a tenth of the tables and of the time. `python -m bench.many_tables 30` runs that
freshness alone and keeps the other's last results."""

from __future__ import annotations

import os
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil

from bench.report import Cost, Report
from bench.tiering import Bench
from lakeward.client import Client
from lakeward.protocol import routes
from tests.spark.processes import wait_tiered

SCALE = float(os.environ.get("LAKEWARD_BENCH_SCALE", "1"))
TABLES = max(5, int(100 * SCALE))
SECONDS = max(20.0, 300 * SCALE)
MAINTAINED = {"table.datalake.auto-compaction": "true"}


def load(client: Client, paths: list[str], stop: threading.Event) -> None:
    """One batch of 100 rows a table a second, spread over the second."""
    tables = [client.table(p) for p in paths]
    row = 0
    while not stop.is_set():
        began = time.monotonic()
        for table in tables:
            table.append([{"id": row + i, "name": "x"} for i in range(100)])
            if stop.is_set():
                return
        row += 100
        stop.wait(max(0.0, 1.0 - (time.monotonic() - began)))


def process_cpu_s(pid: int) -> float:
    found = psutil.Process(pid)
    return sum(float(p.cpu_times().user + p.cpu_times().system) for p in [found, *found.children(recursive=True)])


def measure(bench: Bench, report: Report, freshness_s: int) -> None:
    client = bench.client
    paths = [f"bench.f{freshness_s}_{n}" for n in range(TABLES)]
    for path in paths:
        client.create_table(path, "id BIGINT, name STRING", freshness=f"{freshness_s} s", properties=MAINTAINED)
    assert bench.server.process is not None
    server_pid = bench.server.process.child.pid
    job_cpu, server_cpu, began = bench.job_cpu_s(), process_cpu_s(server_pid), time.perf_counter()
    stop = threading.Event()
    halves = [paths[::2], paths[1::2]]
    loaders = [threading.Thread(target=load, args=(bench.server.connect(), half, stop), daemon=True) for half in halves]
    for loader in loaders:
        loader.start()
    time.sleep(SECONDS)
    stop.set()
    for loader in loaders:
        loader.join(60)
    wall = time.perf_counter() - began
    statuses = [client.server.ask("GET", routes.TABLE_STATUS.format(table=p)) for p in paths]
    rounds = sum(int(s["epoch"]) for s in statuses)
    cost = Cost(cpu_s=bench.job_cpu_s() - job_cpu, peak_rss_mb=bench.job_rss_mb(), wall_s=wall)
    _add(report, freshness_s, statuses, rounds, cost, process_cpu_s(server_pid) - server_cpu)
    wait_tiered(client, *(client.table(p) for p in paths), limit_s=600)
    for path in paths:
        client.drop_table(path)


def _add(
    report: Report, freshness_s: int, statuses: list[dict[str, Any]], rounds: int, cost: Cost, server_cpu: float
) -> None:
    misses = sum(int(s["misses"]) for s in statuses)
    case = f"{TABLES} tables x 100 rows/s, {SECONDS:.0f} s, freshness {freshness_s} s"
    per_round = cost.cpu_s / max(1, rounds)
    note = None
    if misses:
        needed = TABLES * per_round / (freshness_s / 2)
        note = (
            f"{rounds} rounds of {per_round:.2f} CPU s in the job: {needed:.1f} cores would keep {TABLES} tables "
            f"at {freshness_s} s"
        )
    report.add(
        f"{case}: missed deadlines",
        figure=misses,
        unit="misses",
        target="<= 0" if freshness_s == 30 else None,
        cost=cost,
        note=note,
    )
    report.add(f"{case}: CPU per round, job", figure=per_round, unit="CPU s", cost=cost)
    report.add(
        f"{case}: CPU per round, server", figure=server_cpu / max(1, rounds), unit="CPU s", cost=Cost(cpu_s=server_cpu)
    )


def main(arguments: Sequence[str] = ()) -> None:
    report = Report("many_tables")
    chosen = [int(a) for a in arguments] or [30, 10]
    with tempfile.TemporaryDirectory(prefix="lakeward-bench-") as folder:
        bench = Bench(Path(folder))
        try:
            bench.warm_up()
            for freshness_s in chosen:
                measure(bench, report, freshness_s)
        finally:
            bench.close()
    report.finish(keep=lambda case: not any(f"freshness {f} s" in case for f in chosen))


if __name__ == "__main__":
    main(sys.argv[1:])
