# SPDX-License-Identifier: Apache-2.0
"""Long tests of union reads: readers beside killed jobs and expiry, killed streams, retried writes, discovery on a
cluster.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakeward.client import Client
from lakeward.errors import ServerUnavailable
from lakeward.model import SYSTEM_COLUMNS_PROPERTY
from lakeward_testing.waiting import wait_until
from tests.property.union_program import Step, step
from tests.spark.cluster import Cluster
from tests.spark.processes import Job, Process, Server, lake_snapshots, tier_now
from tests.spark.programs import run_in_spark

pytestmark = [
    pytest.mark.spark,
    pytest.mark.soak,
    # Py4J leaves sockets to the garbage collector.
    pytest.mark.filterwarnings("ignore:.*socket.socket.*:pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore:.*unclosed <socket.*:ResourceWarning"),
]

QUICK_EXPIRY = {"coordinator.maintenance.interval": "1 s"}
HISTORY = {"iceberg.history.expire.max-snapshot-age-ms": "1000", "iceberg.history.expire.min-snapshots-to-keep": "1"}


class Loop:
    """A call on a thread of its own, again and again until the test ends; its first error is the test's."""

    def __init__(self, call: Callable[[], None]) -> None:
        self.call, self.runs = call, 0
        self.error: BaseException | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.is_set() and self.error is None:
            try:
                self.call()
                self.runs += 1
            except BaseException as error:  # noqa: BLE001 - kept for the test's own thread
                self.error = error

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(120)
        if self.error is not None:
            raise self.error


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Server]:
    made = Server(tmp_path / "server", QUICK_EXPIRY)
    yield made
    made.stop()


def test_readers_see_whole_rounds_once_while_jobs_are_killed_and_snapshots_expire(shop: Server) -> None:
    client = shop.connect()
    log = client.create_table("db.log", "id bigint not null", buckets=3, freshness="1 s", properties=HISTORY)
    state = client.create_table(
        "db.state", "id bigint not null, round int", primary_key="id", freshness="1 s", properties=HISTORY
    )
    written, seen = [0], [0]

    def write() -> None:
        start = written[0]
        log.append([{"id": i} for i in range(start, start + 50)])
        state.upsert([{"id": i, "round": start} for i in range(40)])
        written[0] = start + 50

    def read_log() -> None:
        least = written[0]
        ids = client.read("db.log").to_table()["id"].to_pylist()
        assert len(ids) == len(set(ids)), "a row is there twice"
        assert set(range(least)) <= set(ids), "an acknowledged row is missing"
        assert len(ids) >= seen[0], "the count went down"
        seen[0] = len(ids)

    def read_state() -> None:
        rows = client.read("db.state").to_table()
        assert rows.num_rows in (0, 40)
        assert len(set(rows["round"].to_pylist())) <= 1, "rows of two writes in one read: half a round"

    loops = [Loop(write), Loop(read_log), Loop(read_state)]
    chance = random.Random(7)
    ends_at = time.monotonic() + 60
    number = 0
    while time.monotonic() < ends_at and all(loop.error is None for loop in loops):
        job = Job(shop, f"killed-{number}", spark=False)
        threading.Event().wait(chance.uniform(3, 8))  # the moment at which it dies is what is tested
        job.kill()
        number += 1
    for loop in loops:
        loop.stop()
    assert min(loop.runs for loop in loops) > 5
    job = Job(shop, "last", spark=False)
    tier_now(client, log)
    assert len(lake_snapshots(client, log)) < number + 20, "snapshots did expire meanwhile"
    read_log()
    job.kill()
    client.close()


def child(shop: Server, way: str, table: str, folder: Path) -> Process:
    return Process(["-m", "tests.spark.streamchild", way, shop.url, table, str(folder)], folder / "child.log", {})


def rows_in(folder: Path) -> list[int]:
    """What the file sink's log says is committed: files of a killed batch are not in it."""
    listed = [f for f in (folder / "out" / "_spark_metadata").glob("*") if f.name.partition(".")[0].isdigit()]
    paths: dict[str, None] = {}
    for file in listed:
        for line in file.read_text().splitlines()[1:]:
            paths[line.split('"path":"file://')[1].split('"')[0]] = None
    files = [p for p in paths if Path(p).exists()]
    return sorted(ds.dataset(files).to_table()["id"].to_pylist()) if files else []


def wait_for_more(process: Process, folder: Path) -> None:
    """Until the sink has more rows than now."""
    before = len(rows_in(folder))
    wait_until(
        lambda: len(rows_in(folder)) > before or not process.is_alive(),
        limit_s=300,
        poll_s=0.1,
        what="more rows",
        state=process.text,
    )
    assert process.is_alive(), process.text()[-3000:]


def test_a_stream_that_is_killed_again_and_again_gives_each_row_once(shop: Server, tmp_path: Path) -> None:
    client = shop.connect()
    job = Job(shop, "rounds", spark=False)
    table = client.create_table("db.t", "id bigint not null", buckets=2, freshness="2 s")
    table.append([{"id": i} for i in range(3_000)])
    tier_now(client, table)
    table.append([{"id": i} for i in range(3_000, 4_000)])
    chance = random.Random(3)
    for n in range(3):
        process = child(shop, "read", "db.t", tmp_path)
        wait_for_more(process, tmp_path)
        threading.Event().wait(chance.uniform(0, 2))  # the moment at which it dies is what is tested
        process.kill()
        table.append([{"id": i} for i in range(4_000 + n * 100, 4_100 + n * 100)])
    process = child(shop, "read", "db.t", tmp_path)
    wait_until(lambda: len(rows_in(tmp_path)) >= 4_300, limit_s=300, what="all rows", state=process.text)
    process.kill()
    assert rows_in(tmp_path) == list(range(4_300))
    job.kill()
    client.close()


def test_a_streaming_write_whose_tasks_and_process_die_stores_each_row_once(shop: Server, tmp_path: Path) -> None:
    client = shop.connect()
    table = client.create_table("db.t", "id bigint not null", buckets=2, lake=False)
    (tmp_path / "in").mkdir()
    for n in range(4):
        pq.write_table(pa.table({"id": list(range(n * 500, n * 500 + 500))}), tmp_path / "in" / f"{n}.parquet")
    first = child(shop, "write", "db.t", tmp_path)
    wait_until(lambda: stored(client) > 300 or not first.is_alive(), limit_s=300, what="rows", state=first.text)
    first.kill()
    second = child(shop, "write", "db.t", tmp_path)
    assert second.wait(400) == 0, second.text()[-3000:]
    assert sorted(client.read("db.t").to_table()["id"].to_pylist()) == list(range(2_000))
    assert table.bounds()
    client.close()


def stored(client: Client) -> int:
    try:
        return int(client.read("db.t").to_table().num_rows)
    except ServerUnavailable:
        return 0


def test_spark_finds_the_format_by_itself_on_a_cluster(shop: Server, tmp_path: Path) -> None:
    """Nothing is registered: a fresh session asks for the name."""
    client = shop.connect()
    table = client.create_table("db.t", "id bigint not null", buckets=2, lake=False)
    table.append([{"id": i} for i in range(100)])
    cluster = Cluster(tmp_path / "cluster", workers=1)
    script = (
        "import os, sys; os.environ['PYSPARK_PYTHON'] = sys.executable\n"
        "from lakeward.config.java import use_java; use_java()\n"
        "from pyspark.sql import SparkSession\n"
        f"spark = SparkSession.builder.master('{cluster.master}').config('spark.driver.host', "
        f"'127.0.0.1').getOrCreate()\n"
        f"frame = spark.read.format('lakeward').option('server', '{shop.url}').load('db.t')\n"
        "print('found', frame.count(), frame.selectExpr('sum(id)').collect()[0][0])\n"
        "print('few', frame.filter('id < 10').count())\n"
        "spark.stop()\n"
    )
    process = Process(["-c", script], tmp_path / "child.log", {})
    try:
        assert process.wait(400) == 0, process.text()[-3000:]
        assert "few 10" in process.text()
        assert f"found 100 {sum(range(100))}" in process.text()
        assert "lakeward.spark.read(spark, ...) uses Spark's own Parquet scan" in process.text(), (
            "it names the quicker way"
        )
    finally:
        process.kill()
        cluster.stop()
        client.close()


@given(st.lists(step, min_size=4, max_size=10))
@settings(max_examples=60)
def test_long_programs_in_spark(spark: Any, steps: list[Step]) -> None:
    """As in tests/property/test_union_read.py, read by Spark's own Parquet scan after every step."""
    run_in_spark(spark, steps)


@given(st.lists(step, min_size=4, max_size=10))
@settings(max_examples=20)
def test_long_programs_in_spark_on_clean_tables(spark: Any, steps: list[Step]) -> None:
    run_in_spark(spark, steps, **{SYSTEM_COLUMNS_PROPERTY: "false"})
