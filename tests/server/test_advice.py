# SPDX-License-Identifier: Apache-2.0
"""Commands that messages recommend: each situation is brought about on a real server, and the command that is printed
is run until the situation is gone. tests/advice.md lists them."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.types import LongType

from lakeward.errors import InvalidRequest
from lakeward.model import TablePath
from lakeward.protocol.routes import PARTITION
from lakeward_testing.ports import free_port
from lakeward_testing.waiting import wait_until
from tests.kit.advice import Operator, Served, catalog_behind, put, start_job, wait_for_job
from tests.spark.processes import Job, Process, Server


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    made = Server(tmp_path_factory.mktemp("advice"))
    job = Job(made, "hand", spark=False)
    wait_for_job(made, job)
    yield made
    job.kill()
    made.kill()


@pytest.fixture
def operator(
    server: Server, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Operator:
    monkeypatch.setenv("LAKEWARD_SERVER", server.url)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    return Operator(server, capsys)


def test_names_that_are_not_there_are_looked_up(operator: Operator) -> None:
    operator.works("table", "create", "names.t", "id bigint", "--freshness", "1 h")
    assert "names.t" in operator.follow(operator.fails("table", "show", "names.typo"), "table list")
    operator.works("cut", "create", "one", "--tables", "names.t", "--wait", "60")
    assert "one" in operator.follow(operator.fails("read", "names.t", "--cut", "two"), "cut list")
    again = operator.fails("cut", "create", "one", "--tables", "names.t")
    operator.follow(again, "cut drop")
    operator.works("cut", "create", "one", "--tables", "names.t", "--wait", "60")
    schedule = ("cut", "schedule", "hourly", "--tables", "names.t", "--every", "1h", "--keep", "3")
    operator.works(*schedule)
    assert "hourly" in operator.follow(operator.fails("cut", "unschedule", "daily"), "cut list")
    operator.follow(operator.fails(*schedule), "cut unschedule")
    operator.works(*schedule)
    operator.works("cut", "unschedule", "hourly")


def test_a_cut_that_is_not_ready_is_followed_by_the_list(operator: Operator) -> None:
    operator.works("table", "create", "names.far", "id bigint", "--property", "table.datalake.pool=far")
    with operator.server.connect() as client:
        put(client, "names.far", 1)
    operator.works("cut", "create", "waiting", "--tables", "names.far")
    assert "waiting" in operator.follow(operator.fails("read", "names.far", "--cut", "waiting"), "cut list")
    operator.works("cut", "drop", "waiting")
    operator.works("table", "drop", "names.far", "--yes")


def test_options_that_are_wrong_are_looked_up(
    operator: Operator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "lakeward.toml"
    file.write_text('[datalake]\nformatt = "iceberg"\n')
    assert "`lakeward config` lists them all" in operator.fails("status")
    assert "datalake.format " in operator.fails("config"), "it lists them and says again what is wrong"
    file.write_text('[server]\nhost = "0.0.0.0"\nport = 0\nflight-port = 0\n')
    found = operator.fails("preflight", "--data", str(tmp_path / "data"))
    (command,) = [line.partition("-> lakeward ")[2] for line in found.splitlines() if "-> lakeward" in line]
    assert "0.0.0.0" in operator.works(*command.split())
    file.write_text("server.port = 0\nserver.flight-port = 0\n")
    monkeypatch.setenv("LAKEWARD_DATALAKE__FORMAT", "iceberg")
    monkeypatch.setenv("LAKEWARD_DATALAKE__ICEBERG__TYPE", "rest")
    monkeypatch.setenv("LAKEWARD_DATALAKE__ICEBERG__URI", "http://127.0.0.1:1")
    found = operator.fails("preflight", "--data", str(tmp_path / "data"))
    (command,) = [line.partition("-> lakeward ")[2] for line in found.splitlines() if "-> lakeward" in line]
    assert "http://127.0.0.1:1" in operator.works(*command.split())
    monkeypatch.delenv("LAKEWARD_DATALAKE__ICEBERG__URI")
    monkeypatch.delenv("LAKEWARD_DATALAKE__ICEBERG__TYPE")
    operator.works("preflight", "--data", str(tmp_path / "data"))


def test_a_server_that_does_not_run_is_started(
    operator: Operator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = free_port()
    monkeypatch.setenv("LAKEWARD_SERVER", f"http://127.0.0.1:{port}")
    monkeypatch.setenv("LAKEWARD_SERVER__PORT", str(port))
    monkeypatch.setenv("LAKEWARD_SERVER__FLIGHT_PORT", "0")
    monkeypatch.setenv("LAKEWARD_SERVER__DATA_DIR", str(tmp_path / "data"))
    assert "`lakeward server` starts it" in operator.fails("table", "list")
    process = Process(["-m", "lakeward.cli", "server"], tmp_path / "server.log", {})
    try:
        wait_until(lambda: operator.call("table", "list") and operator.code == 0, what="the server", poll_s=0.2)
        (command,) = re.findall(r"start one: (lakeward tier)", operator.works("jobs"))
        job = start_job(command, Served(f"http://127.0.0.1:{port}", tmp_path))
        job.kill()
        assert "advised" in operator.works("jobs")
    finally:
        process.kill()


def test_a_paused_table_is_resumed(operator: Operator) -> None:
    operator.works("table", "create", "ops.paused", "id bigint", "--freshness", "1 h")
    for told_by in ("tier-now", "tile", "doctor"):
        with operator.server.connect() as client:
            put(client, "ops.paused", 1)
        operator.works("pause", "ops.paused")
        if told_by == "tier-now":
            operator.follow(operator.fails("tier-now", "ops.paused"), "resume")
        elif told_by == "tile":
            operator.follow(operator.tiles()["rounds"]["advice"], "resume")
        else:
            operator.works(*operator.mend_of("blocked", "ops.paused").split()[1:])
        operator.works("tier-now", "ops.paused")
        assert operator.is_well("blocked", "ops.paused")
        assert operator.tiles()["rounds"]["advice"] == ""


def test_rounds_that_fail_are_shown_and_the_schema_is_reconciled(operator: Operator) -> None:
    operator.works("table", "create", "ops.altered", "id bigint not null, v string not null", "--freshness", "1 h")
    with (
        catalog_behind(operator.server) as lake,
        lake.connection.load(TablePath("ops", "altered")).update_schema() as update,
    ):
        update.make_column_optional("v")
    with operator.server.connect() as client:
        client.table("ops.altered").append([{"id": 1, "v": "a"}])
    told = operator.fails("tier-now", "ops.altered")
    assert "failed" in operator.follow(told, "rounds")
    operator.follow(told, "table reconcile-schema")
    operator.works("tier-now", "ops.altered")


def test_a_lake_table_that_cannot_go_back_is_rebuilt(operator: Operator) -> None:
    operator.works(
        "table", "create", "ops.widened", "id bigint not null, n int", "--primary-key", "id", "--freshness", "1 h"
    )
    with operator.server.connect() as client:
        put(client, "ops.widened", 1, 2, tier=True)
        with (
            catalog_behind(operator.server) as lake,
            lake.connection.load(TablePath("ops", "widened")).update_schema() as update,
        ):
            update.update_column("n", LongType())
        put(client, "ops.widened", 3)
    told = operator.fails("tier-now", "ops.widened")
    refused = operator.fails("table", *told.partition("`lakeward table ")[2].partition("`")[0].split())
    operator.follow(refused, "table rebuild-lake", "--yes")
    operator.works("tier-now", "ops.widened")
    assert "holds" in operator.works("verify", "ops.widened", "--deep")


def test_rows_that_the_lake_alone_has_are_let_go_where_that_is_said(operator: Operator) -> None:
    with operator.server.connect() as client:
        client.create_table("ops.shortlog", "id bigint, day string not null", partition_by="day", freshness="1 h")
        client.table("ops.shortlog").append([{"id": 1, "day": "mon"}, {"id": 2, "day": "tue"}])
        client.tier_now("ops.shortlog")
        client.server.ask("DELETE", PARTITION.format(table="ops.shortlog", partition="mon"))
    refused = operator.fails("table", "rebuild-lake", "ops.shortlog", "--yes")
    operator.follow(refused, "table rebuild-lake ops.shortlog --discard-older", "--yes")
    operator.works("tier-now", "ops.shortlog")


def test_a_lake_table_that_was_dropped_comes_back(operator: Operator) -> None:
    for name, is_purged in (("ops.dropped", False), ("ops.purged", True)):
        operator.works("table", "create", name, "id bigint not null", "--primary-key", "id", "--freshness", "1 h")
        with operator.server.connect() as client:
            put(client, name, 1, tier=True)
            RestCatalog("theirs", uri=f"{operator.server.url}/iceberg").drop_table(name)
            put(client, name, 2)
        if is_purged:
            (folder,) = (operator.server.folder / "data" / "warehouse").glob("**/purged*")
            shutil.rmtree(folder)
        told = operator.fails("tier-now", name)
        if is_purged:
            refused = operator.fails("table", "restore-lake", name)
            operator.follow(refused, f"table restore-lake {name} --anew")
        else:
            operator.follow(told, "table restore-lake")
        operator.works("tier-now", name)
        assert "holds" in operator.works("verify", name, "--deep")


def test_a_lake_table_of_another_table_makes_room(operator: Operator) -> None:
    operator.works("table", "create", "ops.mine", "id bigint", "--freshness", "1 h")
    operator.works("table", "create", "ops.other", "id bigint", "--freshness", "1 h")
    with operator.server.connect() as client:
        put(client, "ops.other", 7, tier=True)
    with catalog_behind(operator.server) as lake:
        catalog = lake.connection.catalog
        catalog.drop_table(("ops", "mine"))
        catalog.rename_table(("ops", "other"), ("ops", "mine"))
    with operator.server.connect() as client:
        put(client, "ops.mine", 1)
    told = operator.fails("tier-now", "ops.mine")
    with catalog_behind(operator.server) as lake:
        lake.connection.catalog.rename_table(("ops", "mine"), ("ops", "other"))
    operator.follow(told, "table restore-lake ops.mine --anew")
    operator.works("tier-now", "ops.mine")


def test_rows_of_an_earlier_table_are_in_the_way(operator: Operator) -> None:
    create = ("table", "create", "ops.again", "id bigint", "--freshness", "1 h")
    for columns in ("id bigint", "id bigint, more string"):
        operator.works(*create)
        with operator.server.connect() as client:
            put(client, "ops.again", 1, tier=True)
        operator.works("table", "drop", "ops.again", "--yes")
        refused = operator.fails(*create[:3], columns, *create[4:])
        operator.follow(refused, "table drop ops.again --with-lake", "--yes")
    operator.works(*create)


def test_foreign_rows_are_taken_out(operator: Operator) -> None:
    for name, begins in (("ops.foreign", "table resync"), ("ops.guests", "table alter")):
        operator.works("table", "create", name, "id bigint not null", "--primary-key", "id", "--freshness", "1 h")
        with operator.server.connect() as client:
            put(client, name, 1, tier=True)
            theirs = RestCatalog("theirs", uri=f"{operator.server.url}/iceberg").load_table(name)
            rows = theirs.scan().to_arrow()
            theirs.append(rows)
            put(client, name, 2)
        told = operator.fails("tier-now", name)
        assert "another engine inserted" in told
        operator.follow(told, begins)
        operator.works("tier-now", name)
        with operator.server.connect() as client:
            assert sorted(client.read(name, mode="lake").to_table()["id"].to_pylist()) == [1, 2]


def test_main_that_was_moved_back_is_resynced(operator: Operator) -> None:
    operator.works("table", "create", "ops.back", "id bigint not null", "--primary-key", "id", "--freshness", "1 h")
    with operator.server.connect() as client:
        put(client, "ops.back", 1, tier=True)
        put(client, "ops.back", 2, tier=True)
        with catalog_behind(operator.server) as lake:
            table = lake.connection.load(TablePath("ops", "back"))
            first = next(s for s in table.snapshots() if s.parent_snapshot_id is None)
            table.manage_snapshots().rollback_to_snapshot(first.snapshot_id).commit()
        put(client, "ops.back", 3)
    told = operator.fails("tier-now", "ops.back")
    operator.follow(told, "table resync")
    operator.works("tier-now", "ops.back")
    assert "holds" in operator.works("verify", "ops.back", "--deep")


def test_a_fixed_property_is_changed_by_bringing_the_rows_over(operator: Operator, tmp_path: Path) -> None:
    operator.works("table", "create", "ops.old", "id bigint", "--no-lake", "--buckets", "1")
    with operator.server.connect() as client:
        put(client, "ops.old", *range(50))
    told = operator.fails("table", "alter", "ops.old", "--set", "bucket.num=4")
    pipe = told.partition("bring the rows over: ")[2].splitlines()[0].strip(" .`")
    assert pipe.count("|") == 1, told
    operator.works("table", "create", "ops.new", "id bigint", "--no-lake", "--buckets", "4")
    pipe = pipe.replace("OLD", "ops.old").replace("NEW", "ops.new")
    program = f"{sys.executable} -m lakeward.cli "
    assert os.system(pipe.replace("lakeward ", program) + f" >{tmp_path}/pipe 2>&1") == 0, (
        tmp_path / "pipe"
    ).read_text()
    with operator.server.connect() as client:
        assert client.read("ops.new").to_table().num_rows == 50


def test_sql_that_only_reads_names_the_command_that_writes(operator: Operator, tmp_path: Path) -> None:
    operator.works("table", "create", "ops.sql", "id bigint", "--no-lake")
    (tmp_path / "rows.csv").write_text("id\n1\n2\n")
    for query in ("SELECT * FROM read_csv('rows.csv')", "INSERT INTO ops.sql VALUES (1)"):
        assert "`lakeward write`" in operator.fails("sql", query)
    operator.works("write", "ops.sql", "rows.csv")
    assert "2" in operator.works("sql", "SELECT count(*) AS n FROM ops.sql")
    with operator.server.connect() as client, pytest.raises(InvalidRequest, match="ask `lakeward sql`"):
        client.read("ops.sql", filter="id > 1")
    assert "2" in operator.works("sql", "SELECT id FROM ops.sql WHERE id > 1")
