# SPDX-License-Identifier: Apache-2.0
"""Files of rounds at a freshness of 5 s over 45 buckets with few rows each (7 changes a second, a third deletes): by
format version; and what a round that waits for buckets with a handful of rows would save, simulated.

`LAKEWARD_BENCH_SECONDS=15 python -m bench.small_files` runs a small version.
"""

from __future__ import annotations

import os
import random
import tempfile
import time
from pathlib import Path

from bench.report import Report
from lakeward.client import Table
from tests.spark.processes import Job, Server, tier_now

SECONDS = float(os.environ.get("LAKEWARD_BENCH_SECONDS", "60"))
BUCKETS, RATE, FRESHNESS_S, ROUND_S, FEW = 45, 7.0, 5.0, 1.0, 5


def load(tables: list[Table], seconds: float) -> int:
    """The same changes to each table, in even steps. Returns how many."""
    chance, rows, ends = random.Random(9), 0, time.monotonic() + seconds
    while time.monotonic() < ends:
        key = chance.randrange(200)
        for table in tables:
            if chance.random() < 1 / 3:
                table.delete([{"id": key}])
            else:
                table.upsert([{"id": key, "name": f"n{rows}"}])
        rows += 1
        time.sleep(1 / RATE)
    return rows


def count_files(folder: Path, table: Table) -> int:
    """What readers open: not the offset caches beside data files."""
    found = folder.rglob(f"{table.info.path.table}/data/lw-*")
    return sum(f.suffix in (".parquet", ".puffin") for f in found)


def simulate(wait_s: float, seconds: float = 1_500.0) -> tuple[int, int]:
    """(data files, rounds) where a round leaves out buckets with fewer than `FEW` rows of which the oldest is younger
    than `wait_s`. A round starts as late as the oldest row that waits allows."""
    chance, now, files, rounds = random.Random(9), 0.0, 0, 0
    waiting: list[list[float]] = [[] for _ in range(BUCKETS)]
    coming = chance.expovariate(RATE)
    while now < seconds:
        due = min((w[0] for w in waiting if w), default=float("inf")) + FRESHNESS_S - ROUND_S
        if coming <= due:
            now, coming = coming, coming + chance.expovariate(RATE)
            waiting[chance.randrange(BUCKETS)].append(now)
            continue
        now, rounds = max(now, due), rounds + 1
        taken = [w for w in waiting if w and (len(w) >= FEW or now - w[0] >= wait_s - 1e-6)]
        files += len(taken)
        for rows in taken:
            rows.clear()
    return files, rounds


def add_simulated(report: Report) -> None:
    files, rounds = simulate(0.0)
    for wait_s in (1.0, 2.0, FRESHNESS_S - ROUND_S):
        fewer, more = simulate(wait_s)
        is_most = wait_s == FRESHNESS_S - ROUND_S
        report.add(
            f"simulated: data files where buckets with fewer than {FEW} rows wait up to {wait_s:.0f} s more",
            figure=fewer,
            unit="files",
            beside=files,
            beside_what=f"every bucket in every round; {more / rounds:.2f} times the rounds",
            note="each bucket alone and as late as its oldest row allows: no waiting saves more"
            if is_most
            else "not built: a bucket that is left out has less time left, so that rounds come more often",
        )


def main() -> None:
    report = Report("small_files")
    with tempfile.TemporaryDirectory(prefix="lakeward-bench-") as temporary:
        folder = Path(temporary)
        server = Server(folder)
        job, client = Job(server, "bench", spark=False), server.connect()
        try:
            tables = [
                client.create_table(
                    f"bench.v{version}",
                    "id BIGINT NOT NULL, name STRING",
                    primary_key="id",
                    buckets=BUCKETS,
                    freshness=f"{FRESHNESS_S:.0f} s",
                    properties={"iceberg.format-version": str(version), "table.datalake.auto-maintenance": "false"},
                )
                for version in (2, 3)
            ]
            with report.measure() as cost:
                rows = load(tables, SECONDS)
                for table in tables:
                    tier_now(client, table)
            counts = {t.path: count_files(folder, t) for t in tables}
        finally:
            job.kill()
            client.close()
            server.stop()
    v2, v3 = (counts[t.path] / rows for t in tables)
    report.add("format version 2: data and delete files per change", figure=v2, unit="files", cost=cost)
    report.add(
        "format version 3: data files and vectors per change",
        figure=v3,
        unit="files",
        beside=v2,
        beside_what="format version 2",
        note="a round writes one vector file for all buckets, and in version 2 a delete file for each",
    )
    add_simulated(report)
    report.finish()


if __name__ == "__main__":
    main()
