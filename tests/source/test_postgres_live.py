# SPDX-License-Identifier: Apache-2.0
"""A Postgres source that runs: compared and cut at an LSN, paused, stopped in its snapshot, its primary restarted."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import typer

from lakeward.cli import app
from lakeward.cli.source import hold, release, verify_postgres
from lakeward.errors import LakewardError
from lakeward.protocol import routes
from lakeward.source.ingest import Ingest
from lakeward.source.postgres.plugin import PostgresKind
from lakeward_testing.waiting import wait_until
from tests.kit.postgres import Postgres
from tests.kit.serverprocess import ServerProcess
from tests.source.conftest import Pair
from tests.spark.processes import Job, Server

pytestmark = pytest.mark.soak


@contextmanager
def running(pair: Pair, is_stopping: Callable[[Ingest], bool] = lambda run: False) -> Iterator[Ingest]:
    config, stop = pair.config(), threading.Event()
    body = {"name": pair.name, "kind": "postgres", "config": config, "if_not_exists": True}
    pair.client.server.ask("POST", routes.SOURCES, body)
    source = PostgresKind().open(config, pair.url)
    run = Ingest(pair.client, pair.name, source, lambda: stop.is_set() or is_stopping(run))
    thread = threading.Thread(target=run.run)
    thread.start()
    try:
        yield run
    finally:
        stop.set()
        thread.join(60)


def status(pair: Pair) -> dict[str, Any]:
    body: dict[str, Any] = pair.client.server.ask("GET", routes.SOURCE.format(source=pair.name))
    return body


def wait_for_phase(pair: Pair, phase: str) -> None:
    wait_until(lambda: status(pair)["phase"] == phase, what=f"phase {phase}", state=lambda: str(status(pair)))


def test_both_sides_are_compared_at_one_lsn(
    pair: Pair, source_server: ServerProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    pair.sql("CREATE TABLE t (id int PRIMARY KEY, n int)", "INSERT INTO t SELECT g, g FROM generate_series(1, 200) g")
    stop = threading.Event()

    def change() -> None:
        n = 1000
        while not stop.is_set():
            pair.sql(f"BEGIN; INSERT INTO t VALUES ({n}, 0); UPDATE t SET n = n + 1 WHERE id <= 20; COMMIT")
            n += 1

    with running(pair):
        wait_for_phase(pair, "streaming")
        writer = threading.Thread(target=change)
        writer.start()
        try:
            verify_postgres(pair.name, source_server.url, as_json=False)
        finally:
            stop.set()
            writer.join(60)
        assert "equal" in capsys.readouterr().out
        expected = sorted(pair.sql("SELECT id, n FROM t"), key=repr)
        wait_until(lambda: pair.stored("t", "id, n") == expected, what="the last changes")
        pair.client.table(f"{pair.name}.t").delete([{"id": 5}])
        with pytest.raises(typer.Exit):
            verify_postgres(pair.name, source_server.url, as_json=False)
        assert "1 missing" in capsys.readouterr().out


def test_a_hold_at_an_lsn_has_every_transaction_below_it_and_no_other(pair: Pair) -> None:
    pair.sql("CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    with running(pair):
        wait_for_phase(pair, "streaming")
        server = pair.client.server
        hold(server, pair.name, "now", 60)
        pair.sql("INSERT INTO t VALUES (2)")
        (lsn,) = pair.sql("SELECT pg_current_wal_lsn()")[0]
        pair.sql("INSERT INTO t VALUES (3)")
        assert pair.stored("t", "id") == [(1,)]
        hold(server, pair.name, str(lsn), 60)
        assert pair.stored("t", "id") == [(1,), (2,)]
        release(server, pair.name)
        wait_until(lambda: len(pair.stored("t", "id")) == 3, what="the rows behind the hold")


def test_a_cut_at_an_lsn_reads_as_postgres_was_there(postgres: Postgres, tmp_path: Path) -> None:
    server, name = Server(tmp_path / "server", {"table.datalake.freshness": "1 s"}), "cut_at"
    job = Job(server, "a", spark=False)
    postgres.run(f"DROP DATABASE IF EXISTS {name}", f"CREATE DATABASE {name}")
    try:
        with server.connect() as client:
            pair = Pair(postgres, client, name)
            pair.sql("CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t VALUES (1)")
            with running(pair):
                wait_for_phase(pair, "streaming")
                hold(client.server, name, "now", 60)
                pair.sql("BEGIN; INSERT INTO t VALUES (2), (3); COMMIT")
                (lsn,) = pair.sql("SELECT pg_current_wal_lsn()")[0]
                pair.sql("INSERT INTO t VALUES (4)")
                assert app.run(["source", "cut", name, "month-end", "--at", str(lsn), "--server", server.url]) == 0
                wait_until(lambda: len(pair.stored("t", "id")) == 4, what="the row behind the cut")

                def cut_rows() -> list[int]:
                    return sorted(client.read(f"{name}.t", cut="month-end").to_table()["id"].to_pylist())

                wait_until(
                    lambda: cut_rows() == [1, 2, 3],
                    limit_s=180,
                    what="the cut in the lake",
                    tolerate=(LakewardError,),
                    state=job.text,
                )
            postgres.run(
                f"SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE database = '{name}'"
            )
    finally:
        job.kill()
        server.kill()


def test_a_snapshot_that_is_stopped_half_way_goes_on(pair: Pair) -> None:
    pair.sql("CREATE TABLE t (id int PRIMARY KEY, n int)", "INSERT INTO t SELECT g, g FROM generate_series(1, 5000) g")
    with running(pair, lambda run: run.status.source.rows >= 200) as run:
        wait_until(lambda: run.last.phase == "ended", what="the end of the first run")
    state = status(pair)["source"]["state"]["tables"]["public.t"]
    assert not state["done"]
    assert 0 < state["rows"] < 5000
    pair.sql("UPDATE t SET n = 0 WHERE id % 7 = 0", "DELETE FROM t WHERE id % 5 = 0", "INSERT INTO t VALUES (-1, 1)")
    pair.ingest()
    assert pair.check("t", "id, n") == 4001


def test_pause_and_resume_and_a_primary_that_restarts(pair: Pair, postgres: Postgres) -> None:
    pair.sql("CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    with running(pair):
        wait_for_phase(pair, "streaming")
        pair.client.server.ask("POST", routes.SOURCE_PAUSE.format(source=pair.name))
        wait_for_phase(pair, "paused")
        pair.sql("INSERT INTO t VALUES (2)")
        pair.client.server.ask("POST", routes.SOURCE_RESUME.format(source=pair.name))
        wait_until(lambda: len(pair.stored("t", "id")) == 2, what="the row behind the pause")
        postgres.kill()
        postgres.start()
        pair.sql("INSERT INTO t VALUES (3)")
        wait_until(lambda: len(pair.stored("t", "id")) == 3, what="the row behind the restart")
