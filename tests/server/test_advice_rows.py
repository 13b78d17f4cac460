# SPDX-License-Identifier: Apache-2.0
"""Commands recommended where rows, files or snapshots are missing or in the way: in the log, the lake, the live
warehouse and the quarantine. Each situation is made on a real server, and the printed command must end it."""

from __future__ import annotations

import re
import shlex
import shutil
import signal
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import httpx
import pyarrow as pa
import pytest
from pyiceberg.catalog.rest import RestCatalog

from lakeward.model import TablePath
from lakeward.spi import OFFSETS_KEY
from lakeward_testing.icebergforeign import IcebergForeignEngine
from lakeward_testing.waiting import wait_until
from tests.kit.advice import Operator, catalog_behind, commands_of, put, start_job, wait_for_job
from tests.spark.processes import Job, Server

SETTINGS = {
    "log.segment.file-size": "4kb",
    "log.retention.check-interval": "100 ms",
    "live.max-tail-rows": "5",
    "kv.snapshot.interval": "200 ms",
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("advice"), SETTINGS)
    yield server
    server.kill()


@pytest.fixture(scope="module")
def job(server: Server) -> Iterator[Job]:
    job = Job(server, "hand", spark=False, slots=1)
    wait_for_job(server, job)
    yield job
    job.kill()


@pytest.fixture
def operator(
    server: Server, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Operator:
    monkeypatch.setenv("LAKEWARD_SERVER", server.url)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    return Operator(server, capsys)


def create(operator: Operator, name: str, *more: str) -> None:
    operator.works("table", "create", name, "id bigint not null, words string", "--freshness", "1 h", *more)


def lake_ids(operator: Operator, name: str) -> list[int]:
    with operator.server.connect() as client:
        return sorted(client.read(name, mode="lake").to_table()["id"].to_pylist())


def test_a_server_without_tables_gets_one(operator: Operator) -> None:
    assert "`lakeward table create`" in operator.works("table", "list")
    create(operator, "first.t", "--no-lake")
    assert "first.t" in operator.works("table", "list")
    operator.works("table", "drop", "first.t", "--yes")


def test_rows_that_wait_in_quarantine_are_listed(operator: Operator, job: Job, tmp_path: Path) -> None:
    create(operator, "rows.bad", "--property", "table.schema.contract=quarantine")
    (tmp_path / "bad.csv").write_text("id,words\n1,a\nx,b\n")
    wrote = operator.works("write", "rows.bad", "bad.csv")
    first = operator.follow(wrote, "quarantine list")
    assert "'x' is no whole number" in first
    for command in (("show",), ("redrive",)):
        refused = operator.fails("quarantine", *command, "rows.bad", "0-0")
        assert operator.follow(refused, "quarantine list") == first
    (tmp_path / "corrected.jsonl").write_text('{"words": "no row of it"}\n')
    refused = operator.fails("quarantine", "redrive", "rows.bad", "--rows", "corrected.jsonl")
    assert "`lakeward quarantine show`" in refused
    shown = operator.works("quarantine", "show", "rows.bad")
    (tmp_path / "corrected.jsonl").write_text(shown.replace('"x"', "2"))
    operator.works("quarantine", "redrive", "rows.bad", "--rows", "corrected.jsonl")
    assert "no row" in operator.works("quarantine", "list", "rows.bad")
    operator.works("table", "drop", "rows.bad", "--yes")


def test_a_tail_too_long_for_the_live_warehouse_is_tiered(operator: Operator, job: Job) -> None:
    create(operator, "rows.long")
    with operator.server.connect() as client:
        put(client, "rows.long", 0, tier=True)
        job.send_all(signal.SIGSTOP)
        put(client, "rows.long", *range(1, 9))
    live = f"{operator.server.url}/iceberg/v1/live/namespaces/rows/tables/long"
    try:
        assert httpx.get(live).status_code == 200
        wait_until(lambda: not operator.is_well("live", "rows.long"), what="the finding of a tail that is cut")
    finally:
        job.send_all(signal.SIGCONT)
    operator.works(*shlex.split(operator.mend_of("live", "rows.long").partition(",")[0])[1:])
    assert operator.is_well("live", "rows.long")
    operator.works("table", "drop", "rows.long", "--yes")


@pytest.mark.parametrize("pool", ["default", pytest.param("slow", marks=pytest.mark.soak)])
def test_a_table_with_long_rounds_gets_a_pool_of_its_own(operator: Operator, job: Job, pool: str) -> None:
    """The doctor compares the last rounds: both tables get rounds until the one with many buckets was slower."""
    named, serving = f"table.datalake.pool={pool}", None
    if pool != "default":
        serving = start_job(f"lakeward tier --name {pool} --pool {pool} --slots 1", operator.server)
    create(operator, "rows.slow", "--primary-key", "id", "--buckets", "16", "--property", named)
    quick = ("--buckets", "1", "--freshness", "10 ms", "--property", named)
    operator.works("table", "create", "rows.quick", "id bigint", *quick)
    with operator.server.connect() as client:

        def advice() -> list[str]:
            put(client, "rows.quick", 1, tier=True)
            put(client, "rows.slow", *range(64), tier=True)
            return [f["mend"] for f in operator.findings() if (f["check"], f["about"]) == ("pools", "rows.quick")]

        (mend,) = wait_until(advice, what="the finding of a table that waits for another", state=operator.findings)
    another, _, separate = mend.partition(", or a pool of its own: ")
    alter, _, tier = separate.partition(", and ")
    operator.works(*shlex.split(alter)[1:])
    own = start_job(tier, operator.server)
    operator.works("tier-now", "rows.slow")
    assert operator.is_well("pools", "rows.quick")
    own.kill()
    operator.works("table", "alter", "rows.slow", "--set", named)
    second = start_job(f"{another} --name second", operator.server)
    operator.works("tier-now", "rows.slow")
    assert operator.is_well("pools", "rows.quick")
    for process in (second, serving):
        if process is not None:
            process.kill()
    operator.works("table", "drop", "rows.quick", "--with-lake", "--yes")
    operator.works("table", "drop", "rows.slow", "--with-lake", "--yes")


@pytest.mark.parametrize("key", [(), ("--primary-key", "id")], ids=["log", "pk"])
def test_a_log_that_no_longer_reaches_the_lake(operator: Operator, job: Job, key: tuple[str, ...]) -> None:
    """The lake was switched off for longer than the log is kept."""
    name = "rows.pk" if key else "rows.log"
    create(operator, name, *key, "--buckets", "1", "--property", "table.log.ttl=1 s")
    with operator.server.connect() as client:
        put(client, name, 0, tier=True)
        operator.works("table", "alter", name, "--set", "table.datalake.enabled=false")
        table = client.table(name)
        for turn in range(4):
            rows = pa.table({"id": range(1 + turn * 100, 101 + turn * 100), "words": ["w" * 100] * 100})
            table.upsert(rows) if key else table.append(rows)
        wait_until(lambda: all(b.start > 1 for b in table.bounds().values()), what="the log's first rows to go")
    operator.works("table", "alter", name, "--set", "table.datalake.enabled=true")
    wait_until(lambda: "paused" in operator.call("status", name), what="the table to be paused")
    refused = operator.fails("tier-now", name)
    operator.follow(refused, "table resync", "--wait", "120")
    operator.works("tier-now", name)
    assert operator.is_well("blocked", name)
    if key:
        assert lake_ids(operator, name) == list(range(401))
        assert "holds" in operator.works("verify", name, "--deep")


def test_a_cut_of_a_table_whose_log_began_later(operator: Operator, job: Job) -> None:
    create(
        operator, "rows.cut", "--primary-key", "id", "--buckets", "1", "--property", "table.log.ttl=1 s", "--no-lake"
    )
    with operator.server.connect() as client:
        table = client.table("rows.cut")
        for turn in range(4):
            table.upsert(pa.table({"id": range(turn * 100, 100 + turn * 100), "words": ["w" * 100] * 100}))
        wait_until(lambda: all(b.start > 0 for b in table.bounds().values()), what="the log's first rows to go")
    operator.works("table", "alter", "rows.cut", "--set", "table.datalake.enabled=true")
    refused = operator.fails("cut", "create", "early", "--tables", "rows.cut")
    operator.follow(refused, "tier-now")
    operator.works("cut", "create", "early", "--tables", "rows.cut", "--wait", "120")
    operator.works("cut", "drop", "early")


def point_at(server: Server, table: TablePath, metadata: str) -> str:
    """Changes the metadata file that the catalog names, as a restored copy of the catalog would; the one before."""
    where = "WHERE table_namespace = ? AND table_name = ?"
    with closing(sqlite3.connect(server.folder / "data" / "iceberg" / "catalog.db")) as database:
        named = (table.database, table.table)
        (before,) = database.execute(f"SELECT metadata_location FROM iceberg_tables {where}", named).fetchone()
        database.execute(f"UPDATE iceberg_tables SET metadata_location = ? {where}", (metadata or before, *named))
        database.commit()
    return str(before)


def test_a_lake_table_put_back_to_an_older_copy_is_written_again(operator: Operator, job: Job) -> None:
    create(operator, "lost.older", "--primary-key", "id")
    path = TablePath("lost", "older")
    with operator.server.connect() as client:
        put(client, "lost.older", 1, tier=True)
        older = point_at(operator.server, path, "")
        put(client, "lost.older", 2, tier=True)
        point_at(operator.server, path, older)
        put(client, "lost.older", 3)
    operator.follow(operator.fails("tier-now", "lost.older"), "table resync", "--wait", "120")
    operator.works("tier-now", "lost.older")
    assert lake_ids(operator, "lost.older") == [1, 2, 3]
    assert "holds" in operator.works("verify", "lost.older", "--deep")


def tamper(server: Server, path: TablePath, pattern: str, by: str) -> None:
    """Changes the table's newest metadata; under a new name, as jobs keep what they read."""
    file = Path(point_at(server, path, "").removeprefix("file://"))
    other = file.with_name("99999-tampered.metadata.json")
    text, changes = re.subn(pattern, by, file.read_text())
    assert changes, file.read_text()
    other.write_text(text)
    point_at(server, path, other.as_uri())


@pytest.mark.soak
def test_a_metadata_file_that_is_gone_is_replaced_by_what_is_left(operator: Operator, job: Job) -> None:
    """As after a restore without the lake, whose table was dropped and made again meanwhile."""
    for name, is_left in (("lost.pointer", True), ("lost.folder", False)):
        create(operator, name, "--primary-key", "id")
        with operator.server.connect() as client:
            put(client, name, 1, tier=True)
            old = point_at(operator.server, TablePath.parse(name), "")
            point_at(operator.server, TablePath.parse(name), old.replace("/metadata/0", "/metadata/9"))
            if not is_left:
                shutil.rmtree(Path(old.removeprefix("file://")).parents[1])
            put(client, name, 2)
        refused = operator.fails("tier-now", name)
        if not is_left:
            refused = operator.fails("table", "restore-lake", name)
        operator.follow(refused, "table restore-lake")
        operator.works("tier-now", name)
        assert lake_ids(operator, name) == [1, 2]
        assert "holds" in operator.works("verify", name, "--deep")


def test_a_snapshot_whose_offsets_cannot_be_read_is_written_again(operator: Operator, job: Job) -> None:
    create(operator, "lost.offsets", "--primary-key", "id")
    path = TablePath("lost", "offsets")
    with operator.server.connect() as client:
        put(client, "lost.offsets", 1, tier=True)
        value = rf'("{re.escape(OFFSETS_KEY)}"): ?"(?:[^"\\]|\\.)*"'
        tamper(operator.server, path, value, r'\1: "no offsets"')
        put(client, "lost.offsets", 1, 2)
    operator.follow(operator.fails("tier-now", "lost.offsets"), "table rebuild-lake", "--yes")
    operator.works("tier-now", "lost.offsets")
    assert lake_ids(operator, "lost.offsets") == [1, 2]


def test_a_history_that_others_expired_is_compared(operator: Operator, job: Job) -> None:
    create(operator, "lost.history", "--primary-key", "id")
    with operator.server.connect() as client:
        put(client, "lost.history", 1, tier=True)
        theirs = RestCatalog("theirs", uri=f"{operator.server.url}/iceberg").load_table("lost.history")
        theirs.append(theirs.scan().to_arrow())
        with catalog_behind(operator.server) as lake:
            table = lake.connection.load(TablePath("lost", "history"))
            ours = next(s for s in table.snapshots() if s.parent_snapshot_id is None)
            with table.manage_snapshots() as manage:
                for name in table.refs():
                    if name != "main":
                        manage.remove_tag(name)
            table.maintenance.expire_snapshots().by_id(ours.snapshot_id).commit()
        put(client, "lost.history", 2)
    operator.follow(operator.fails("tier-now", "lost.history"), "table resync", "--wait", "120")
    operator.works("tier-now", "lost.history")
    assert lake_ids(operator, "lost.history") == [1, 2]
    assert "holds" in operator.works("verify", "lost.history", "--deep")


def test_rows_that_a_compaction_of_others_lost_are_written_again(operator: Operator, job: Job) -> None:
    """Recorded as a compaction, so no round takes it that a row is gone."""
    create(operator, "lost.rows", "--primary-key", "id", "--buckets", "1")
    with operator.server.connect() as client:
        put(client, "lost.rows", 1, 2, 3, tier=True)
        with catalog_behind(operator.server) as lake:
            IcebergForeignEngine(lake.connection.catalog, TablePath("lost", "rows")).delete("id = 2")
        tamper(
            operator.server, TablePath("lost", "rows"), '"operation": ?"(delete|overwrite)"', '"operation": "replace"'
        )
        client.table("lost.rows").upsert([{"id": 2, "words": "again"}])
    refused = operator.fails("tier-now", "lost.rows")
    assert "replaced rows that are in no lake file: 1, the first at offset 1" in refused
    (verify,) = [command for command in commands_of(refused) if command.startswith("verify")]
    assert "missing" in operator.fails(*shlex.split(verify))
    operator.follow(refused, "table resync", "--wait", "120")
    operator.works("tier-now", "lost.rows")
    assert lake_ids(operator, "lost.rows") == [1, 2, 3]
    assert "holds" in operator.works("verify", "lost.rows", "--deep")


def test_restoring_a_lake_table_that_is_there_names_the_rebuild(operator: Operator, job: Job) -> None:
    create(operator, "lost.there", "--primary-key", "id")
    with operator.server.connect() as client:
        put(client, "lost.there", 1, tier=True)
    operator.follow(operator.fails("table", "restore-lake", "lost.there"), "table rebuild-lake", "--yes")
    operator.works("tier-now", "lost.there")
    assert lake_ids(operator, "lost.there") == [1]


def test_an_adopted_table_keeps_its_history_longer(operator: Operator, job: Job) -> None:
    catalog = RestCatalog("theirs", uri=f"{operator.server.url}/iceberg")
    catalog.create_namespace_if_not_exists("theirs")
    rows = pa.table({"id": pa.array([1], pa.int64())})
    table = catalog.create_table("theirs.t", rows.schema)
    table.append(rows)
    table.append(rows)
    adopted = operator.works("table", "adopt", "--foreign", "theirs.t")
    command = adopted.partition("to keep a week of them: ")[2].splitlines()[0]
    operator.works(*shlex.split(command)[1:])
    kept = catalog.load_table("theirs.t").properties["history.expire.max-snapshot-age-ms"]
    assert kept == "604800000"


def test_what_the_pages_say_of_history_works(operator: Operator, job: Job) -> None:
    create(operator, "use.t", "--buckets", "1")
    with operator.server.connect() as client:
        put(client, "use.t", 1, tier=True)
        snapshot = client.read("use.t", mode="lake").bound.snapshot_id
        put(client, "use.t", 2, tier=True)
    operator.works("read", "use.t", "--columns", "id", "--as-of", str(snapshot), "--format", "json")
    assert operator.out.splitlines() == ['{"id": 1}']
    assert '"id": 2' in operator.works("changes", "use.t", "--since", "1h", "--json")
    assert "gap" in operator.works("table", "resync", "use.t", "--gap")
    assert "resync" in operator.works("table", "resync", "use.t", "--lake", "default")


@pytest.mark.soak
def test_a_query_that_is_too_large_for_the_page_runs_in_the_shell(operator: Operator, job: Job) -> None:
    create(operator, "use.large", "--no-lake")
    with operator.server.connect() as client:
        table = client.table("use.large")
        for turn in range(4):
            rows = range(turn * 400_000, (turn + 1) * 400_000)
            table.append(pa.table({"id": rows, "words": [f"{row:0200}" for row in rows]}))
    query = "SELECT count(DISTINCT words) AS n FROM use.large"
    refused = httpx.post(f"{operator.server.url}/api/v1/sql", json={"query": query}, timeout=120).json()
    assert "`lakeward sql`" in refused["message"], refused
    assert "1600000" in operator.works("sql", query, "--json")
