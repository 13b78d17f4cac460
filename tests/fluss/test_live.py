# SPDX-License-Identifier: Apache-2.0
"""Warehouse `live` of a cluster's console: engines read lake and tail by URL alone, and write nothing."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import duckdb
import httpx
import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.table import Table

from lakeward.cli.app import run
from lakeward.cli.run.console import open_console
from lakeward.lake.iceberg.plugin import IcebergLakeStorage
from lakeward.model import OffsetMap
from lakeward.protocol import routes
from lakeward.protocol.heartbeat import TableFinished
from lakeward.protocol.readplan import WriteToken
from lakeward.server.cluster.console import Console
from lakeward_testing.waiting import wait_until
from tests.fluss.ondemand import OnDemand
from tests.fluss.steps import DATABASE, EVENTS, USERS, Append, Delete, MakePartition, MakeTable, Upsert, events
from tests.fluss.world import FlussWorld
from tests.kit.iceberg.engines import duckdb_connection

pytestmark = [pytest.mark.fluss, pytest.mark.soak]

SPLIT = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("day", pa.string(), nullable=False)])


@pytest.fixture
def console(world: FlussWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Console]:
    monkeypatch.setenv("LAKEWARD_SERVER__DATA_DIR", str(tmp_path))
    monkeypatch.setenv("LAKEWARD_LIVE__HOLD", "0 s")
    page = open_console(world.plugin, 0)
    page.start()
    yield page
    page.stop()


class Reader:
    """The engines that read by URL alone; each answer must be the same."""

    def __init__(self, console: Console) -> None:
        self.url = f"{console.url}/iceberg"

    def rows(self, table: str, *columns: str) -> list[tuple[object, ...]]:
        catalog = load_catalog("live", type="rest", uri=self.url, warehouse="live")
        loaded = catalog.load_table(f"{DATABASE}.{table}").scan(selected_fields=columns).to_arrow()
        found = sorted(zip(*(loaded.column(name).to_pylist() for name in columns), strict=True))
        with duckdb_connection() as engine:
            engine.execute(f"ATTACH 'live' AS fresh (TYPE iceberg, ENDPOINT '{self.url}', AUTHORIZATION_TYPE 'none')")
            query = f"SELECT {', '.join(columns)} FROM fresh.{DATABASE}.{table}"
            assert sorted(engine.execute(query).fetchall()) == found
        return found


def test_engines_read_lake_and_tail_of_a_cluster(world: FlussWorld, rounds: OnDemand, console: Console) -> None:
    """A PK table whose tail replaces and deletes rows of the lake, step by step; then a round lands."""
    reader, expected = Reader(console), {n: f"user {n}" for n in range(40)}
    table = MakeTable(name="live_pk", schema=USERS, primary_key=("id",), freshness="1h")
    world.produce(table, upsert("live_pk", expected))
    assert reader.rows("live_pk", "id", "name") == sorted(expected.items()), "no round was there"
    assert isinstance(rounds.run("live_pk"), TableFinished)
    for step in range(3):
        changed = {n: f"step {step} of {n}" for n in range(step, 50, 7)}
        gone = list(range(step, 40, 11))
        world.produce(upsert("live_pk", changed), Delete(table="live_pk", keys=[{"id": n} for n in gone]))
        expected = {n: name for n, name in {**expected, **changed}.items() if n not in gone}
        assert reader.rows("live_pk", "id", "name") == sorted(expected.items())
    assert isinstance(rounds.run("live_pk"), TableFinished)
    assert reader.rows("live_pk", "id", "name") == sorted(expected.items())


def upsert(table: str, rows: dict[int, str]) -> Upsert:
    return Upsert(table=table, rows=[{"id": n, "name": name} for n, name in rows.items()])


def test_log_tables_and_partitions_that_come_later(world: FlussWorld, rounds: OnDemand, console: Console) -> None:
    reader = Reader(console)
    world.produce(
        MakeTable(name="live_log", schema=EVENTS, freshness="1h"),
        Append(table="live_log", rows=events(0, 30)),
        MakeTable(name="live_days", schema=SPLIT, partition_keys=("day",), freshness="1h"),
    )
    assert isinstance(rounds.run("live_log"), TableFinished)
    world.produce(Append(table="live_log", rows=events(30, 45)))
    assert [row[0] for row in reader.rows("live_log", "id")] == list(range(45))
    for number, day in enumerate(("2026-01-01", "2026-01-02")):
        rows = pa.RecordBatch.from_pylist([{"id": number * 10 + n, "day": day} for n in range(10)], schema=SPLIT)
        world.produce(
            MakePartition(table="live_days", spec={"day": day}), Append(table="live_days", rows=rows, is_by_row=True)
        )
        assert [row[0] for row in reader.rows("live_days", "id", "day")] == list(range((number + 1) * 10))


def test_nothing_is_written_through_a_console(world: FlussWorld, rounds: OnDemand, console: Console) -> None:
    world.produce(MakeTable(name="live_ro", schema=USERS, primary_key=("id",), freshness="1h"))
    world.produce(upsert("live_ro", {1: "one"}))
    assert isinstance(rounds.run("live_ro"), TableFinished)
    world.produce(upsert("live_ro", {2: "two"}))
    table = world.table("live_ro")
    before = world.plugin.open_reader(table).load_base().head
    url = f"{console.url}/iceberg"
    refused = httpx.post(f"{url}/v1/live/namespaces/{DATABASE}/tables/live_ro", json={})
    assert refused.status_code == 403
    assert "write to the Fluss cluster" in refused.json()["error"]["message"]
    other = httpx.get(f"{url}/v1/config", params={"warehouse": "default"})
    assert (other.status_code, "only `live` is served here" in other.text) == (400, True)
    with duckdb_connection() as engine:
        engine.execute(f"ATTACH 'live' AS fresh (TYPE iceberg, ENDPOINT '{url}', AUTHORIZATION_TYPE 'none')")
        for words in ("INSERT INTO {} VALUES (3, 'x')", "DELETE FROM {}", "DROP TABLE {}"):
            with pytest.raises(duckdb.Error):
                engine.execute(words.format(f"fresh.{DATABASE}.live_ro"))
            with suppress(duckdb.Error):
                engine.execute("ROLLBACK")
    assert world.plugin.open_reader(table).load_base().head == before
    assert Reader(console).rows("live_ro", "id") == [(1,), (2,)]


class ConsoleProcess:
    """`lakeward console` as people start it."""

    def __init__(self, bootstrap: str, folder: Path) -> None:
        settings = {"SERVER__DATA_DIR": str(folder), "LIVE__KEEP": "20 s", "LIVE__HOLD": "10 s"}
        environment = {**os.environ, **{f"LAKEWARD_{name}": value for name, value in settings.items()}}
        command = [sys.executable, "-m", "lakeward.cli", "console", "--fluss", bootstrap, "--port", "0", "--json"]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
        assert self._process.stdout is not None
        self.url = f"{json.loads(self._process.stdout.readline())['url']}/iceberg"

    def load(self, table: str) -> Table:
        return load_catalog("live", type="rest", uri=self.url, warehouse="live").load_table(f"{DATABASE}.{table}")

    def end(self, how: signal.Signals = signal.SIGTERM) -> None:
        self._process.send_signal(how)
        self._process.wait(120)
        assert self._process.stdout is not None
        self._process.stdout.close()


def ids(table: Table) -> list[int]:
    return sorted(table.scan().to_arrow().column("id").to_pylist())


def live_files(table: Table) -> set[Path]:
    paths = (Path(task.file.file_path.removeprefix("file:")) for task in table.scan().plan_files())
    return {path for path in paths if path.name.startswith("lw-live-")}


def test_a_killed_console_leaves_answers_readable_and_its_successor_cleans_up(
    world: FlussWorld,
    rounds: OnDemand,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """And loads of two tables show one moment, whose width the answer names."""
    for name in ("kill_a", "kill_b"):
        world.produce(MakeTable(name=name, schema=EVENTS, freshness="1h"), Append(table=name, rows=events(0, 20)))
    assert isinstance(rounds.run("kill_a"), TableFinished)
    world.produce(Append(table="kill_a", rows=events(20, 30)))
    first = ConsoleProcess(world.cluster.bootstrap, tmp_path)
    try:
        tables = [first.load("kill_a"), first.load("kill_b")]
        moments = {t.properties["lakeward.live.moment-ms"] for t in tables}
        windows = {int(t.properties["lakeward.live.window-ms"]) for t in tables}
        assert (len(moments), len(windows), min(windows) > 0) == (1, 1, True)
        monkeypatch.setenv("LAKEWARD_SERVER__DATA_DIR", str(tmp_path))
        assert run(["doctor", "--fluss", world.cluster.bootstrap, "--table", f"{DATABASE}.kill_b"]) == 0
        assert "1 lake table, the console's live files;" in capsys.readouterr().out
    finally:
        first.end(signal.SIGKILL)
    files = set.union(*map(live_files, tables))
    assert files
    assert [ids(table) for table in tables] == [list(range(30)), list(range(20))]
    second = ConsoleProcess(world.cluster.bootstrap, tmp_path)
    try:
        assert [ids(table) for table in tables] == [list(range(30)), list(range(20))], "the files of the killed one"
        again = second.load("kill_a")
        wait_until(lambda: not any(file.exists() for file in files), limit_s=300, what="the killed console's files")
        assert ids(second.load("kill_a")) == list(range(30))
        assert ids(again) == list(range(30)), "answers of the new console name files of its own"
    finally:
        second.end()


def test_a_lake_head_that_could_expire_is_kept_for_its_readers(
    world: FlussWorld, rounds: OnDemand, console: Console
) -> None:
    world.produce(
        MakeTable(name="live_old", schema=EVENTS, freshness="1h"), Append(table="live_old", rows=events(0, 9))
    )
    assert isinstance(rounds.run("live_old"), TableFinished)
    table = world.table("live_old")
    lake = world.plugin.load_lake(table)
    assert isinstance(lake, IcebergLakeStorage)
    with lake.connection.load(table.path).transaction() as change:
        change.set_properties({"history.expire.max-snapshot-age-ms": "1"})
    catalog = load_catalog("live", type="rest", uri=f"{console.url}/iceberg", warehouse="live")
    answered = catalog.load_table(f"{DATABASE}.live_old")
    head = world.plugin.open_reader(table).load_base().head
    world.produce(Append(table="live_old", rows=events(9, 12)))
    assert isinstance(rounds.run("live_old"), TableFinished)
    lake.connection.load(table.path).maintenance.expire_snapshots().older_than(datetime.now(UTC)).commit()
    retained = {str(s.snapshot_id) for s in lake.connection.load(table.path).metadata.snapshots}
    assert head in retained
    assert ids(answered) == list(range(9))
    assert ids(catalog.load_table(f"{DATABASE}.live_old")) == list(range(12))


def test_pages_and_tokens_of_a_live_table(world: FlussWorld, console: Console) -> None:
    """A write token is what a Fluss writer makes of the offsets that it wrote."""
    world.produce(MakeTable(name="live_page", schema=EVENTS, buckets=1, freshness="1h"))
    world.produce(Append(table="live_page", rows=events(0, 5)))
    name, table = f"{DATABASE}.live_page", world.table("live_page")
    with httpx.Client(base_url=console.url, timeout=120) as client:
        assert client.get(routes.LIVE.format(table=name)).json()["figures"] is None
        assert "live" in client.get(routes.DASHBOARD).json()["actions"]
        ends = OffsetMap({b: bound.end for b, bound in world.plugin.store().bounds(table).items()})
        for more, status in ((0, 200), (1, 409)):
            offsets = OffsetMap({bucket: end + more for bucket, end in ends.items()})
            asked = WriteToken(table_id=table.table_id, offsets=offsets)
            url = f"/iceberg/v1/live/namespaces/{DATABASE}/tables/live_page"
            answer = client.get(url, headers={"X-Lakeward-At-Least": str(asked)})
            assert answer.status_code == status, answer.text
        figures = client.get(routes.LIVE.format(table=name)).json()["figures"]
        assert (figures["liveTailRows"], figures["liveComplete"]) == (5, 1.0)
        assert "lakeward_live_tail_rows{" in client.get(routes.METRICS).text
