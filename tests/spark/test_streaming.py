# SPDX-License-Identifier: Apache-2.0
"""Streams of a table and into a table, through restarts: a query whose first micro-batch fails begins where it began
before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lakeward.client import Client
from lakeward.spi import load_lake
from lakeward_testing.icebergforeign import IcebergForeignEngine
from tests.spark.processes import Job, Server, tier_now

pytestmark = [
    pytest.mark.spark,
    # Py4J leaves sockets to the garbage collector.
    pytest.mark.filterwarnings("ignore:.*socket.socket.*:pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore:.*unclosed <socket.*:ResourceWarning"),
]


@pytest.fixture(scope="module")
def job(server: Server) -> Iterator[Job]:
    made = Job(server, "threads", spark=False)
    yield made
    made.kill()


def test_a_stream_reads_lake_then_log_once_through_restarts(
    spark: Any, server: Server, client: Client, job: Job, tmp_path: Path
) -> None:
    table = client.create_table("db.stream", "id bigint not null", buckets=2, freshness="5 min")
    table.append([{"id": i} for i in range(60)])
    tier_now(client, table)
    table.append([{"id": i} for i in range(60, 90)])

    def run() -> None:
        source = (
            spark.readStream.format("lakeward").option("server", server.url).option("max_rows", "40").load("db.stream")
        )
        query = (
            source.writeStream.format("parquet")
            .option("path", str(tmp_path / "out"))
            .option("checkpointLocation", str(tmp_path / "check"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination(240)
        assert query.exception() is None

    run()
    table.append([{"id": i} for i in range(90, 110)])
    run()
    got = [r[0] for r in spark.read.parquet(str(tmp_path / "out")).collect()]
    assert sorted(got) == list(range(110))


def test_a_pk_stream_gives_the_snapshot_then_the_changelog(
    spark: Any, server: Server, client: Client, job: Job, tmp_path: Path
) -> None:
    table = client.create_table("db.changes", "id bigint not null, v string", primary_key="id", freshness="5 min")
    table.upsert([{"id": i, "v": "old"} for i in range(5)])
    tier_now(client, table)
    table.upsert([{"id": 0, "v": "new"}])
    table.delete([{"id": 4}])
    source = (
        spark.readStream.format("lakeward")
        .option("server", server.url)
        .option("system_columns", "true")
        .option("changelog", "true")
    )
    query = (
        source.load("db.changes")
        .writeStream.format("parquet")
        .option("path", str(tmp_path / "out"))
        .option("checkpointLocation", str(tmp_path / "check"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination(240)
    assert query.exception() is None
    got = spark.read.parquet(str(tmp_path / "out")).select("__change_type", "id", "v").collect()
    want = [("+I", i, "old") for i in range(5)] + [("-U", 0, "old"), ("+U", 0, "new"), ("-D", 4, "old")]
    assert sorted(map(tuple, got)) == sorted(want)


def test_a_streaming_write_that_is_run_again_adds_nothing(
    spark: Any, server: Server, client: Client, tmp_path: Path
) -> None:
    client.create_table("db.once", "id bigint not null", buckets=2, lake=False)
    (tmp_path / "in").mkdir()
    spark.range(500).write.mode("append").parquet(str(tmp_path / "in" / "one"))

    def run() -> None:
        source = spark.readStream.schema("id long").parquet(str(tmp_path / "in" / "*"))
        query = (
            source.writeStream.format("lakeward")
            .option("server", server.url)
            .option("checkpointLocation", str(tmp_path / "check"))
            .trigger(availableNow=True)
            .start("db.once")
        )
        query.awaitTermination(240)
        assert query.exception() is None

    run()
    for file in sorted((tmp_path / "check" / "commits").glob("*")):
        if file.name.isdigit() or file.name.startswith("."):
            file.unlink()
    run()
    assert sorted(client.read("db.once").to_table()["id"].to_pylist()) == list(range(500))


class Sink:
    """Keeps what a stream gave; fails on its first batch when told to, after Spark has written down how far the batch
    goes.
    """

    def __init__(self, *columns: str) -> None:
        self.columns, self.rows = columns, list[tuple[Any, ...]]()
        self.fails = False

    def __call__(self, batch: Any, _number: int) -> None:
        if self.fails:
            raise RuntimeError("the sink is full")
        self.rows += [tuple(r) for r in batch.select(*self.columns).collect()]


def run(source: Any, sink: Sink, checkpoint: Path, meanwhile: Callable[[], Any] | None = None) -> str:
    """One run until everything is read, or until it fails; returns what it failed with."""
    query = source.writeStream.foreachBatch(sink).option("checkpointLocation", str(checkpoint)).start()
    try:
        query.processAllAvailable()
        if meanwhile is not None:
            meanwhile()
            query.processAllAvailable()
        return ""
    except Exception as error:  # noqa: BLE001 - looked at by the test
        return str(error)
    finally:
        query.stop()


def test_a_first_batch_that_failed_begins_at_the_same_latest(
    spark: Any, server: Server, client: Client, tmp_path: Path
) -> None:
    table = client.create_table("db.latest", "id bigint not null", lake=False)
    table.append([{"id": 0}])
    source = spark.readStream.format("lakeward").options(server=server.url, starting="latest").load("db.latest")
    sink = Sink("id")
    sink.fails = True
    assert "the sink is full" in run(source, sink, tmp_path)
    table.append([{"id": 1}])
    sink.fails = False
    assert run(source, sink, tmp_path, lambda: table.append([{"id": 2}])) == ""
    assert sorted(sink.rows) == [(1,), (2,)], "row 1 came after the query began, and before it began again"


@pytest.mark.soak
def test_a_pk_stream_begins_again_on_the_snapshot_it_was_pinned_to_or_says_that_it_is_gone(
    spark: Any, server: Server, client: Client, job: Job, tmp_path: Path
) -> None:
    table = client.create_table("db.pinned", "id bigint not null, v string", primary_key="id", freshness="5 min")
    table.upsert([{"id": i, "v": "old"} for i in range(3)])
    tier_now(client, table)
    source = spark.readStream.format("lakeward").options(server=server.url, changelog="true").load("db.pinned")
    sink = Sink("__change_type", "id", "v")
    sink.fails = True
    for name in ("kept", "lost"):
        assert "the sink is full" in run(source, sink, tmp_path / name)
    table.upsert([{"id": 0, "v": "new"}])
    tier_now(client, table)
    sink.fails = False
    assert run(source, sink, tmp_path / "kept") == ""
    want = [*(("+I", i, "old") for i in range(3)), ("-U", 0, "old"), ("+U", 0, "new")]
    assert sorted(sink.rows) == sorted(want), "the changes after the first snapshot come as changes"
    lake, options = client.plugin.lake_options(table.info)
    connection: Any = getattr(load_lake(lake, options), "connection")  # noqa: B009 - a lake of Iceberg's
    IcebergForeignEngine(connection.catalog, table.info.path).expire()
    sink.rows.clear()
    said = run(source, sink, tmp_path / "lost")
    assert "SnapshotGone" in said
    assert sink.rows == []
    connection.close()


def test_a_stream_survives_added_columns_and_stops_at_other_changes(
    spark: Any, server: Server, client: Client, job: Job, tmp_path: Path
) -> None:
    table = client.create_table("db.changing", "id bigint not null, name string, n int", freshness="5 min")
    table.append([{"id": 1, "name": "a", "n": 1}])
    tier_now(client, table)

    def source() -> Any:
        return spark.readStream.format("lakeward").option("server", server.url).load("db.changing")

    def grow() -> None:
        added = client.alter_table("db.changing", add_columns="more string", after={"more": ""})
        added.append([{"id": 2, "name": "b", "more": "x", "n": 2}])
        table.append([{"id": 3, "name": "c", "n": 3}])

    sink = Sink("id", "name", "n")
    assert run(source(), sink, tmp_path / "check", grow) == ""
    assert sorted(sink.rows) == [(1, "a", 1), (2, "b", 2), (3, "c", 3)]

    def change() -> None:
        client.alter_table("db.changing", rename={"name": "title"}, widen={"n": "bigint"})

    failed = run(source(), sink, tmp_path / "check", change)
    assert "name is no longer there; n was int and is bigint; start the query again" in failed
    client.table("db.changing").append([{"id": 4, "title": "d", "n": 4}])
    later = Sink("id", "title", "n", "more")
    assert run(source(), later, tmp_path / "check") == ""
    assert later.rows == [(4, "d", 4, None)]
