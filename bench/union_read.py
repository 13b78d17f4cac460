# SPDX-License-Identifier: Apache-2.0
"""Union reads over 5 M lake rows and 100 k hot rows: Spark and Arrow beside the same lake files read alone. Warm,
medians.

`LAKEWARD_BENCH_SCALE=0.05 python -m bench.union_read` runs a small version; `python -m bench.union_read arrow` some
cases.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.dataset as ds

import lakeward.spark
from bench.report import Cost, Report
from lakeward.client import Client, Table
from lakeward.spi import load_lake
from lakeward.tiering.job.session import SessionOptions, open_session
from tests.spark.processes import Job, Server, tier_now

SCALE = float(os.environ.get("LAKEWARD_BENCH_SCALE", "1"))
LAKE_ROWS, HOT_ROWS, DELETES = int(5_000_000 * SCALE), int(100_000 * SCALE), int(20_000 * SCALE)
CHUNK = 100_000
REPEATS = 7
LIMIT_S = 900.0
COLUMNS = "id BIGINT NOT NULL, device INT, city STRING, v DOUBLE, state STRING, day INT NOT NULL"
DAYS = 5


class Bench:
    """A server, rounds on threads, and a Spark session for the reads."""

    def __init__(self, folder: Path) -> None:
        self.server = Server(folder)
        self.job = Job(self.server, "bench", spark=False)
        self.client: Client = self.server.connect()
        self.spark = open_session(
            SessionOptions(master="local[2]", archive=False, conf={"spark.driver.memory": "2g"})
        ).spark

    def close(self) -> None:
        self.spark.stop()
        self.job.kill()
        self.client.close()
        self.server.stop()

    def files(self, table: Table) -> list[str]:
        """The data files of the lake's head, as local paths."""
        name, options = self.client.plugin.lake_options(table.info)
        reader = load_lake(name, options).open_reader(table.info)
        head = reader.load_snapshot()
        assert head is not None
        return [f.path.removeprefix("file://") for f in reader.files(head.snapshot_id)]

    def union(self, table: Table, **options: Any) -> Any:
        return lakeward.spark.read(self.spark, table.path, server=self.server.url, **options)


def rows(start: int, count: int, step: int = 1) -> pa.Table:
    chance = np.random.default_rng(start)
    ids = np.arange(start, start + count) * step
    return pa.table(
        {
            "id": ids,
            "device": pa.array(chance.integers(0, 10_000, count), pa.int32()),
            "city": pa.array([f"city-{i}" for i in range(200)]).take(pa.array(chance.integers(0, 200, count))),
            "v": chance.random(count),
            "state": pa.array(["open", "shipped", "paid", "late"]).take(pa.array(chance.integers(0, 4, count))),
            "day": pa.array(ids * DAYS // max(1, LAKE_ROWS + HOT_ROWS), pa.int32()),
        }
    )


def put(write: Callable[[pa.Table], Any], start: int, count: int, step: int = 1) -> None:
    for at in range(start, start + count, CHUNK):
        write(rows(at, min(CHUNK, start + count - at), step))


def log_table(bench: Bench, path: str = "bench.log", **options: Any) -> Table:
    table = bench.client.create_table(path, COLUMNS, buckets=4, freshness="1 h", **options)
    put(table.append, 0, LAKE_ROWS)
    tier_now(bench.client, table, LIMIT_S)
    put(table.append, LAKE_ROWS, HOT_ROWS)
    return table


def pk_table(bench: Bench, path: str = "bench.pk", step: int = 1) -> Table:
    """Rows in the lake of which some are deleted by position, and a tail that replaces others: neighbours, or every
    `step`th.
    """
    table = bench.client.create_table(path, COLUMNS, primary_key="id", buckets=4, freshness="1 h")
    put(table.upsert, 0, LAKE_ROWS)
    tier_now(bench.client, table, LIMIT_S)
    put(table.upsert, 0, DELETES, step)
    tier_now(bench.client, table, LIMIT_S)
    put(table.upsert, DELETES, HOT_ROWS, step)
    return table


QUERIES: dict[str, Callable[[Any], Any]] = {
    "count": lambda frame: frame.count(),
    "sum": lambda frame: frame.selectExpr("sum(v)").collect(),
    "group by": lambda frame: frame.groupBy("city").sum("v").collect(),
}


def median_s(call: Callable[[], Any], repeats: int = REPEATS) -> float:
    call()
    call()
    took = []
    for _ in range(repeats):
        began = time.perf_counter()
        call()
        took.append(time.perf_counter() - began)
    return statistics.median(took)


def measure_spark(report: Report, bench: Bench, table: Table, what: str, factor: float) -> None:
    """Planning the read is part of it: the allowance of 0.3 s is for that."""
    files = bench.files(table)
    for name, query in QUERIES.items():
        alone = median_s(partial(_run, query, lambda: bench.spark.read.parquet(*files)))
        with report.measure() as cost:
            union = median_s(partial(_run, query, lambda: bench.union(table)))
        _check(bench, table, name, query)
        report.add(
            f"{name}, {what}, read and query",
            figure=union,
            unit="s",
            beside=alone,
            beside_what="Spark over the lake files alone",
            target=f"<= {factor * alone + 0.3:.3f}",
            cost=cost,
        )
        frame = bench.union(table)
        held = median_s(partial(query, frame))
        report.add(
            f"{name}, {what}, DataFrame made before", figure=held, unit="s", beside=alone, beside_what="the same"
        )


def _run(query: Callable[[Any], Any], make: Callable[[], Any]) -> Any:
    return query(make())


def _check(bench: Bench, table: Table, name: str, query: Callable[[Any], Any]) -> None:
    if name == "count":
        wanted = LAKE_ROWS if table.info.is_pk else LAKE_ROWS + HOT_ROWS
        assert query(bench.union(table)) == wanted


def read_chars() -> int:
    """Bytes that this process and its children (the JVM among them) took from files, page cache included."""
    root = psutil.Process()
    return sum(p.io_counters().read_chars for p in [root, *root.children(recursive=True)])


def measure_filters(report: Report, bench: Bench) -> None:
    by_day = log_table(bench, "bench.days", partition_by="day", bucket_key="id")
    last = LAKE_ROWS // 2
    cases: dict[str, tuple[list[tuple[str, str, Any]], Callable[[Any], Any]]] = {
        "partition key": ([("day", "=", 1)], lambda frame: frame.filter("day = 1")),
        "bucket key": ([("id", "=", last)], lambda frame: frame.filter(f"id = {last}")),
    }
    whole_arrow = bytes_of(partial(_arrow_sum, by_day))
    whole_spark = bytes_of(partial(_spark_sum, bench, by_day))
    for name, (given, later) in cases.items():
        few = {
            "Arrow": bytes_of(partial(_arrow_sum, by_day, given)),
            "Spark, filter=": bytes_of(partial(_spark_sum, bench, by_day, filter=given)),
            "Spark, DataFrame.filter": bytes_of(partial(_spark_sum, bench, by_day, later)),
        }
        for way, read in few.items():
            beside = whole_arrow if way == "Arrow" else whole_spark
            case = f"bytes read, filter on a {name}, {way}"
            report.add(
                case, figure=read, unit="MB", beside=beside, beside_what="full scan", target="<= 0.9", of="ratio"
            )


def _arrow_sum(table: Table, filter: Any = None) -> Any:
    return table.read(columns=["v"], filter=filter).to_table()


def _spark_sum(bench: Bench, table: Table, later: Callable[[Any], Any] | None = None, **options: Any) -> Any:
    frame = bench.union(table, **options)
    return (frame if later is None else later(frame)).selectExpr("sum(v)").collect()


def bytes_of(call: Callable[[], Any]) -> float:
    call()
    before = read_chars()
    call()
    return (read_chars() - before) / 1e6


def measure_arrow(report: Report, bench: Bench, table: Table, what: str) -> None:
    files, names = bench.files(table), list(table.info.schema.names)
    counted: dict[str, int] = {}

    def alone() -> None:
        counted["alone"] = sum(b.num_rows for b in ds.dataset(files).to_batches(columns=names))

    def union() -> None:
        counted["union"] = sum(b.num_rows for b in table.read())

    beside = median_s(alone)
    with report.measure() as cost:
        took = median_s(union)
    _add_rate(report, what, counted["union"] / took, counted["alone"] / beside, cost)


def _add_rate(report: Report, what: str, rate: float, beside: float, cost: Cost) -> None:
    report.add(
        f"Arrow read, {what}",
        figure=rate / 1e6,
        unit="M rows/s",
        beside=beside / 1e6,
        beside_what="pyarrow.dataset over the lake files",
        target=">= 0.6",
        of="ratio",
        cost=cost,
    )


def main() -> None:
    wanted = set(sys.argv[1:]) or {"log", "pk", "spread", "filters", "arrow"}
    report = Report("union_read")
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(Path(folder))
        try:
            log = log_table(bench) if wanted & {"log", "arrow"} else None
            if log is not None and "arrow" in wanted:
                measure_arrow(report, bench, log, "log table")
            if log is not None and "log" in wanted:
                measure_spark(report, bench, log, "log table", 1.5)
            if "pk" in wanted:
                pk = pk_table(bench)
                measure_arrow(report, bench, pk, "PK table, 100 k replaced rows, 20 k positional deletes")
                measure_spark(report, bench, pk, "PK table", 3.0)
            if "spread" in wanted:
                spread = pk_table(bench, "bench.spread", LAKE_ROWS // (HOT_ROWS + DELETES))
                measure_spark(report, bench, spread, "PK table, replaced rows spread", 3.0)
            if "filters" in wanted:
                measure_filters(report, bench)
        finally:
            bench.close()
    report.finish()


if __name__ == "__main__":
    main()
