# SPDX-License-Identifier: Apache-2.0
"""23 columns, 1,000 batches of 10 rows one after the other (DuckLake's published case): the inserts, then nine
aggregates by union read.
"""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path

import duckdb
from pyiceberg.catalog import load_catalog

from bench.lineitem import WIDE_COLUMNS, wide
from bench.report import Report
from bench.tiering import Bench

BATCHES = int(os.environ.get("LAKEWARD_BENCH_BATCHES", "1000"))
AGGREGATES = (
    "count(*)",
    "sum(v0)",
    "avg(v1)",
    'min("at"), max("at")',
    "count(DISTINCT kind)",
    "max(v2 - v3)",
    "sum(v4 * v5)",
    "avg(v6), stddev(v7)",
    "count(*) FILTER (v8 > 0.5)",
)
PUBLISHED = {"inserts": (1_149.0, 10.9), "aggregates": (83.0, 0.09)}
"""Seconds of Iceberg and of DuckLake, as DuckLake's authors published them, on their machine."""


def pyiceberg_inserts(folder: Path, report: Report, batches: int) -> float:
    """Seconds per batch: each append is a commit."""
    folder.mkdir()
    catalog = load_catalog("peer", type="sql", uri=f"sqlite:///{folder}/c.db", warehouse=f"file://{folder}")
    catalog.create_namespace("db")
    table = catalog.create_table("db.t", wide(0, 1).schema)
    began = time.perf_counter()
    for n in range(batches):
        table.append(wide(10 * n, 10))
    return (time.perf_counter() - began) / batches


def main() -> None:
    report = Report("small_batches")
    with tempfile.TemporaryDirectory(prefix="lakeward-bench-") as temporary:
        folder = Path(temporary)
        bench = Bench(folder / "ours")
        try:
            bench.warm_up()
            table = bench.client.create_table("bench.wide", WIDE_COLUMNS, freshness="10 s")
            rows = [wide(10 * n, 10) for n in range(BATCHES)]
            warm = bench.client.create_table("bench.warm_read", WIDE_COLUMNS, freshness="10 s")
            warm.append(rows[0])
            warm.read().to_table()  # imports and connections, as the inserts have had theirs
            with report.measure() as inserts:
                for batch in rows:
                    table.append(batch)
            with report.measure() as aggregates:
                for text in AGGREGATES:
                    found = table.read().to_table()
                    duckdb.sql(f"SELECT {text} FROM found").fetchall()
            assert found.num_rows == 10 * BATCHES
        finally:
            bench.close()
        peer = BATCHES * pyiceberg_inserts(folder / "peer", report, min(BATCHES, 100))
    iceberg, ducklake = (seconds * BATCHES / 1_000 for seconds in PUBLISHED["inserts"])
    case = f"{BATCHES} inserts of 10 rows x 23 columns"
    per_batch = "PyIceberg append per batch (first 100, so without the growth of its metadata)"
    report.add(case, figure=inserts.wall_s, unit="s", beside=peer, beside_what=per_batch, cost=inserts)
    report.add(
        f"{case}, beside DuckLake",
        figure=inserts.wall_s,
        unit="s",
        beside=ducklake,
        beside_what="DuckLake, published",
        cost=inserts,
    )
    report.add(
        f"{case}, beside Iceberg",
        figure=inserts.wall_s,
        unit="s",
        beside=iceberg,
        beside_what="Iceberg, published",
        cost=inserts,
    )
    iceberg, ducklake = PUBLISHED["aggregates"]
    case = "nine aggregates by union read"
    report.add(
        f"{case}, beside DuckLake",
        figure=aggregates.wall_s,
        unit="s",
        beside=ducklake,
        beside_what="DuckLake, published",
        cost=aggregates,
    )
    report.add(
        f"{case}, beside Iceberg",
        figure=aggregates.wall_s,
        unit="s",
        beside=iceberg,
        beside_what="Iceberg, published",
        cost=aggregates,
    )
    report.finish()


if __name__ == "__main__":
    main()
