# SPDX-License-Identifier: Apache-2.0
"""A 10-row round on Spark, from the write to rows that another reader sees in the lake, with tier-now: p50 and p99."""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path

import numpy as np

from bench.report import Report
from bench.tiering import Bench
from lakeward.cli.sql.duckdblake import query_lake
from tests.spark.processes import tier_now

ROUNDS = int(os.environ.get("LAKEWARD_BENCH_ROUNDS", "100"))


def main() -> None:
    report = Report("fixed_cost")
    with tempfile.TemporaryDirectory(prefix="lakeward-bench-") as folder:
        bench = Bench(Path(folder))
        try:
            bench.warm_up()
            table = bench.client.create_table("bench.fixed", "id BIGINT, name STRING", freshness="1 h")
            times = []
            with report.measure() as cost:
                for n in range(ROUNDS):
                    began = time.perf_counter()
                    table.append([{"id": 10 * n + i, "name": "x"} for i in range(10)])
                    tier_now(bench.client, table)
                    times.append(time.perf_counter() - began)
            (seen,) = query_lake(bench.client, table.path, "SELECT count(*) AS n, count(DISTINCT id) AS d FROM lake")
            assert seen == {"n": 10 * ROUNDS, "d": 10 * ROUNDS}, seen
        finally:
            bench.close()
    p50, p99 = (float(v) for v in np.percentile(times[ROUNDS // 10 :], (50, 99)))
    flink = "Fluss's Flink job, default poll (7-22 s with a 5 s poll)"
    report.add(
        "10 rows, write to lake, p50", figure=p50, unit="s", beside=27.5, beside_what=flink, target="<= 0.6", cost=cost
    )
    report.add("10 rows, write to lake, p99", figure=p99, unit="s", cost=cost)
    report.finish()


if __name__ == "__main__":
    main()
