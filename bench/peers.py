# SPDX-License-Identifier: Apache-2.0
"""10 M lineitem rows into Iceberg, rows per CPU second: ours, Structured Streaming into Java Iceberg, PyIceberg append;
Flink as published.

Each reads the same rows from where it would: we from the hot store's log, Spark from Parquet files, PyIceberg from
memory."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog import load_catalog
from pyiceberg.transforms import BucketTransform

from bench.lineitem import COLUMNS, lineitem
from bench.report import Cost, Report
from bench.tiering import Bench
from lakeward.config.java import load_java
from tests.interop.javaiceberg import ICEBERG, environment

SCALE = float(os.environ.get("LAKEWARD_BENCH_SCALE", "1"))
CHUNK = 100_000
ROWS = max(CHUNK * 4, int(10_000_000 * SCALE) // CHUNK * CHUNK)
IN_MEMORY = (
    "it starts from Arrow tables in memory and neither reads a log nor runs on Spark. Of our CPU seconds for 10 M "
    "rows about 3.8 go into "
    "Parquet (it takes 3.2 for the ten columns, 3.8 with our three beside them), 1.0 into reading the log over "
    "Flight, the rest Spark's "
    "driver, JVM and workers; only less of the last two would help"
)
FLINK_ZSTD, FLINK_STOCK = 10_000_000 / 29.6, 10_000_000 / 78.6
"""Rows per CPU second of Fluss's Flink job on 10 columns, with its codec mended to zstd, and as it is (GZIP); measured
apart.
"""


def ours(folder: Path) -> tuple[float, Cost]:
    bench = Bench(folder / "ours")
    try:
        bench.warm_up()
        limit = {"table.datalake.max-round-duration": "1 h"}
        table = bench.client.create_table(
            "bench.lineitem", COLUMNS, buckets=4, bucket_key="l_orderkey", freshness="2 h", properties=limit
        )
        for at in range(0, ROWS, CHUNK):
            table.append(lineitem(at, CHUNK))
        cost, _ = bench.tier(table)
    finally:
        bench.close()
    return ROWS / cost.cpu_s, cost


def streaming(folder: Path) -> tuple[float, Cost]:
    """Warmed up by a small stream, as ours is by small rounds."""
    for name, rows in (("source", ROWS), ("warm", CHUNK)):
        (folder / name).mkdir()
        for at in range(0, rows, CHUNK):
            pq.write_table(lineitem(at, CHUNK), folder / name / f"{at:09d}.parquet", compression="zstd")
    found = run_peer(folder / "warm", folder / "source", folder / "warehouse")
    assert found["rows"] == ROWS
    return ROWS / found["cpu_s"], Cost(cpu_s=found["cpu_s"], peak_rss_mb=found["peak_rss_mb"], wall_s=found["seconds"])


def run_peer(*folders: Path) -> dict[str, float]:
    python, (jar,) = environment(ICEBERG)
    variables = {
        "JAVA_HOME": str(load_java().home),
        "PATH": "/usr/bin:/bin",
        "PYSPARK_PYTHON": str(python),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    command = [python, Path(__file__).with_name("streaming_peer.py"), jar, *folders]
    done = subprocess.run(command, capture_output=True, text=True, env=variables, check=True)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def with_system_columns(rows: pa.Table, at: int) -> pa.Table:
    """The three columns that every row of ours has: bucket, offset, time."""
    count = rows.num_rows
    rows = rows.append_column("__bucket", pa.array(np.zeros(count, np.int32)))
    rows = rows.append_column("__offset", pa.array(np.arange(at, at + count)))
    return rows.append_column("__timestamp", pa.array(np.full(count, 1_700_000_000_000_000), pa.timestamp("us", "UTC")))


def pyiceberg_append(
    folder: Path, report: Report, *, buckets: bool, system_columns: bool = False
) -> tuple[float, Cost]:
    """A million rows a commit, as its users do it: rows that are in memory already, with or without our four buckets
    and columns.
    """
    folder.mkdir()
    catalog = load_catalog("peer", type="sql", uri=f"sqlite:///{folder}/c.db", warehouse=f"file://{folder}")
    catalog.create_namespace("db")
    load = (lambda at, count: with_system_columns(lineitem(at, count), at)) if system_columns else lineitem
    table = catalog.create_table("db.t", load(0, 1).schema)
    if buckets:
        with table.update_spec() as spec:
            spec.add_field("l_orderkey", BucketTransform(4), "bucket")
    step = min(ROWS, 1_000_000)
    spent = Cost()
    for at in range(0, ROWS, step):
        rows = load(at, step)
        with report.measure() as cost:
            table.append(rows)
        spent.cpu_s += cost.cpu_s
        spent.wall_s += cost.wall_s
        spent.peak_rss_mb = max(spent.peak_rss_mb, cost.peak_rss_mb)
    return ROWS / spent.cpu_s, spent


def main() -> None:
    report = Report("peers")
    with tempfile.TemporaryDirectory(prefix="lakeward-bench-") as temporary:
        folder = Path(temporary)
        figure, cost = ours(folder)
        peers = {
            "Spark Structured Streaming into Java Iceberg": streaming(folder),
            "PyIceberg append, our four buckets and columns": pyiceberg_append(
                folder / "same", report, buckets=True, system_columns=True
            ),
            "PyIceberg append, four buckets": pyiceberg_append(folder / "buckets", report, buckets=True),
            "PyIceberg append, no partitions": pyiceberg_append(folder / "plain", report, buckets=False),
        }
    case = f"{ROWS:,} lineitem rows into Iceberg"
    for name, (theirs, spent) in peers.items():
        report.add(f"{case}, {name} alone", figure=theirs, unit="rows/CPU s", cost=spent)
        note = IN_MEMORY if name.startswith("PyIceberg") else None
        report.add(
            f"{case}, beside {name}",
            figure=figure,
            unit="rows/CPU s",
            beside=theirs,
            beside_what=name,
            target="> 1",
            of="ratio",
            cost=cost,
            note=note,
        )
    for name, theirs in (("Flink's job, zstd", FLINK_ZSTD), ("Flink's job, stock", FLINK_STOCK)):
        what = f"{name}, measured apart on 10 columns"
        report.add(
            f"{case}, beside {name}",
            figure=figure,
            unit="rows/CPU s",
            beside=theirs,
            beside_what=what,
            target="> 1",
            of="ratio",
            cost=cost,
        )
    report.finish()


if __name__ == "__main__":
    main()
