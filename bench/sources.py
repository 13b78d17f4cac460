# SPDX-License-Identifier: Apache-2.0
"""Rows from outside: a million messages of Kafka beside Spark's own Kafka-to-Parquet, a Postgres snapshot of a million
rows, Postgres changes at a steady rate, and small rows over HTTP by 50 connections.

`LAKEWARD_BENCH_SCALE=0.1` is a small version, `LAKEWARD_BENCH_SOURCES=kafka,http` chooses parts.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import psutil

from bench.report import Report
from lakeward.client import Client
from lakeward.source.kafka.source import JARS_VARIABLE, KafkaSource, open_spark
from tests.kit.fluss.jars import cache_folder
from tests.kit.kafka import Broker, connector_jars
from tests.kit.postgres import Postgres, find_binaries
from tests.kit.serverprocess import ServerProcess
from tests.spark.processes import Process

SCALE = float(os.environ.get("LAKEWARD_BENCH_SCALE", "1"))
PARTS = os.environ.get("LAKEWARD_BENCH_SOURCES", "kafka,postgres,changes,http").split(",")
MESSAGES, PARTITIONS = int(1_000_000 * SCALE), 10
ROWS = int(1_000_000 * SCALE)
RATE, RATE_S, FRESHNESS_S = 10_000, 300 * SCALE, 10.0
CONNECTIONS, HTTP_S = 50, max(3.0, 20 * SCALE)
COLUMNS = "id bigint, customer bigint, amount double, note string"


def command(server: ServerProcess, log: Path, *arguments: str) -> Process:
    """A child of this process, so that its CPU is measured."""
    program = ["-c", "from lakeward.cli import main; main()", "ingest"]
    return Process([*program, *arguments, "--server", server.url], log, {})


def kafka(report: Report, folder: Path) -> None:
    os.environ |= {JARS_VARIABLE: connector_jars(), "SPARK_LOCAL_IP": "127.0.0.1", "LAKEWARD_SPARK_MASTER": "local[2]"}
    broker = Broker(folder / "broker", cache_folder().parent / "kafka")
    server = ServerProcess(folder / "kafka").start()
    try:
        broker.tool("TopicCommand", "--create", "--topic", "orders", "--partitions", str(PARTITIONS))
        messages = (
            (f"k{n}", json.dumps({"id": n, "customer": n % 5_000, "amount": n / 7, "note": f"note {n}"}))
            for n in range(MESSAGES)
        )
        broker.send("orders", messages)
        spark = open_spark()
        spark.range(10).count()
        with report.measure() as peer:
            frame = spark.readStream.format("kafka").option("kafka.bootstrap.servers", broker.address)
            frame = frame.option("subscribe", "orders").option("startingOffsets", "earliest").load()
            rows = frame.selectExpr(f"from_json(CAST(value AS STRING), '{COLUMNS}') AS row").select("row.*")
            query = rows.writeStream.format("parquet").option("path", str(folder / "parquet"))
            query = query.option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True).start()
            query.awaitTermination()
        assert spark.read.parquet(str(folder / "parquet")).count() == MESSAGES
        with server.client() as client:
            from lakeward.protocol import routes
            from lakeward.source.ingest import Ingest
            from lakeward.source.kafka.plugin import KafkaKind

            options = {"table": "bench.orders", "columns": COLUMNS, "buckets": 2}
            config = KafkaKind().configure(f"kafka://{broker.address}/orders", options)
            client.server.ask("POST", routes.SOURCES, {"name": "bench", "kind": "kafka", "config": dict(config)})
            with report.measure() as cost, server_cpu(server) as served:
                Ingest(client, "bench", KafkaSource(config), lambda: False, until_idle=True).run()
            assert client.read("bench.orders", columns=["id"]).to_table().num_rows == MESSAGES
        rate, beside = MESSAGES / cost.wall_s, MESSAGES / peer.wall_s
        report.add(
            f"Kafka, {MESSAGES:,} messages of {PARTITIONS} partitions, stored in the hot store",
            figure=rate / 1000, unit="k rows/s", beside=beside / 1000, beside_what="Spark's Kafka to Parquet",
            target=">= 0.6", of="ratio", cost=cost,
        )  # fmt: skip
        report.add("the same: CPU, the server's in it", figure=cost.cpu_s + served[0], unit="s", beside=peer.cpu_s,
                   beside_what="Spark's Kafka to Parquet")  # fmt: skip
    finally:
        server.close()
        broker.stop()


@contextmanager
def server_cpu(server: ServerProcess) -> Iterator[list[float]]:
    """CPU seconds of a server that is no child of this process."""
    times, result = psutil.Process(server.pid), [0.0]
    before = sum(times.cpu_times()[:2])
    yield result
    result[0] = sum(times.cpu_times()[:2]) - before


def postgres(report: Report, folder: Path) -> None:
    database, server = Postgres(folder / "pg").start(), ServerProcess(folder / "pgdata").start()
    try:
        database.run(
            "CREATE TABLE orders (id bigint PRIMARY KEY, customer bigint, amount double precision, note text)",
            f"INSERT INTO orders SELECT g, g % 5000, g / 7.0, 'note ' || g FROM generate_series(1, {ROWS}) g",
        )
        with report.measure() as cost, server_cpu(server) as served:
            ingest = command(server, folder / "pg.log", database.url, "--to", "bench", "--buckets", "2", "--until-idle")
            assert ingest.wait(600) == 0, ingest.text()
        with server.client() as client:
            assert client.read("bench.orders", columns=["id"]).to_table().num_rows == ROWS
        total = cost.cpu_s + served[0]
        report.add(f"Postgres, snapshot of {ROWS:,} rows", figure=ROWS / cost.wall_s / 1000, unit="k rows/s", cost=cost)
        report.add("the same: rows for each CPU second of ingest and server", figure=ROWS / total, unit="rows/CPU s")
    finally:
        server.close()
        database.kill()


def changes(report: Report, folder: Path) -> None:
    """Updates of random rows in transactions of 100, at `RATE` a second; every second one row has the time."""
    database, server = Postgres(folder / "pg2").start(), ServerProcess(folder / "pg2data").start()
    lags: list[float] = []
    try:
        database.run(
            "CREATE TABLE t (id int PRIMARY KEY, n bigint, at double precision)",
            "INSERT INTO t SELECT g, 0, 0 FROM generate_series(0, 99999) g",
        )
        ingest = command(server, folder / "pg2.log", database.url, "--to", "bench", "--name", "c", "--buckets", "2")
        with server.client() as client:
            wait_for_stream(client)
            done = threading.Event()
            count = [0]
            writer = threading.Thread(target=write_changes, args=(database, done, count))
            with report.measure() as cost, server_cpu(server) as served:
                writer.start()
                ends_at = time.monotonic() + RATE_S
                while time.monotonic() < ends_at:
                    time.sleep(1)
                    row = client.table("bench.t").lookup([{"id": 0}]).to_pylist()[0]
                    if row["at"]:
                        lags.append(time.time() - row["at"])
                done.set()
                writer.join()
        ingest.kill()
        held = count[0] / cost.wall_s
        report.add(f"Postgres, changes a second for {RATE_S:.0f} s", figure=held, unit="1/s",
                   target=f">= {0.98 * RATE:.0f}", cost=cost)  # fmt: skip
        report.add("the same: highest age of the newest row that a reader sees", figure=max(lags), unit="s",
                   target=f"<= {FRESHNESS_S:.0f}")  # fmt: skip
        report.add("the same: CPU of the server", figure=served[0], unit="s")
    finally:
        server.close()
        database.kill()


def wait_for_stream(client: Client) -> None:
    from lakeward_testing.waiting import wait_until

    def is_streaming() -> bool:
        listed = client.server.ask("GET", "/api/v1/sources")["sources"]
        return bool(listed) and listed[0]["phase"] == "streaming"

    wait_until(is_streaming, limit_s=120, what="the stream")


def write_changes(database: Postgres, done: threading.Event, count: list[int]) -> None:
    connection, began = database.connect(), time.monotonic()
    with connection.cursor() as cursor:
        while not done.is_set():
            ahead_s = count[0] / RATE - (time.monotonic() - began)
            if ahead_s > 0:
                time.sleep(ahead_s)
            start = 1 + count[0] % 99_000
            cursor.execute(
                f"BEGIN; UPDATE t SET n = n + 1 WHERE id BETWEEN {start} AND {start + 498}; "
                f"UPDATE t SET at = {time.time()} WHERE id = 0; COMMIT"
            )
            count[0] += 500
    connection.close()


def http(report: Report, folder: Path) -> None:
    server = ServerProcess(folder / "http").start()
    try:
        with server.client() as client:
            client.create_table("bench.rows", "id bigint not null, name string, n int", buckets=2)
        for per_request in (1, 20, 100):
            with report.measure() as cost, server_cpu(server) as served:
                rows = asyncio.run(post_rows(server.url, per_request))
            report.add(f"HTTP, {CONNECTIONS} connections, {per_request} rows a request", figure=rows / cost.wall_s,
                       unit="rows/s", target=">= 20000", cost=cost)  # fmt: skip
            report.add("the same: CPU of the server", figure=served[0], unit="s")
    finally:
        server.close()


async def post_rows(url: str, per_request: int) -> int:
    """Requests one after the other on each connection; the rows that were accepted."""
    done, ends_at = 0, time.monotonic() + HTTP_S

    async def work(client: httpx.AsyncClient, number: int) -> None:
        nonlocal done
        first = number * 10_000_000
        while time.monotonic() < ends_at:
            body: list[dict[str, Any]] = [{"id": first + n, "name": "row", "n": n} for n in range(per_request)]
            answer = await client.post("/api/v1/tables/bench.rows/rows?outcomes=errors", json=body)
            assert answer.status_code == 200, answer.text
            first, done = first + per_request, done + per_request

    limits = httpx.Limits(max_connections=CONNECTIONS)
    async with httpx.AsyncClient(base_url=url, timeout=60, limits=limits) as client:
        await asyncio.gather(*(work(client, number) for number in range(CONNECTIONS)))
    return done


def main() -> int:
    report = Report("sources")
    parts = {"kafka": kafka, "postgres": postgres, "changes": changes, "http": http}
    with tempfile.TemporaryDirectory(prefix="lakeward-bench-") as temporary:
        Path(temporary).chmod(0o755)  # Postgres's user looks into it
        for name in PARTS:
            if name in ("postgres", "changes") and find_binaries() is None:
                print("PostgreSQL is not installed", file=sys.stderr)
                continue
            parts[name](report, Path(temporary))
    report.finish()
    return 0


if __name__ == "__main__":
    sys.exit(main())
