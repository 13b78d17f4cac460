# SPDX-License-Identifier: Apache-2.0
"""The commands against a real server and a real job (without Spark): what they print, and how they end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lakeward.cli import app
from lakeward.protocol.routes import JOBS
from lakeward.testing.waiting import wait_until
from tests.spark.processes import Job, Server


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    made = Server(tmp_path_factory.mktemp("cli"))
    job = Job(made, "hand", spark=False)
    with made.connect() as client:
        wait_until(
            lambda: any(j["live"] for j in client.server.ask("GET", JOBS)["jobs"]),
            limit_s=60,
            what="the job",
            state=job.text,
        )
    yield made
    job.kill()
    made.kill()


class Calls:
    """Runs commands in this process and keeps what they said."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys
        self.code, self.out, self.err = 0, "", ""

    def __call__(self, *arguments: str) -> str:
        self.code = app.run(arguments)
        self.out, self.err = self._capsys.readouterr()
        return self.out

    def json(self, *arguments: str) -> Any:
        self(*arguments, "--json")
        assert self.code == 0, self.err
        return json.loads(self.out)


@pytest.fixture
def call(server: Server, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Calls:
    monkeypatch.setenv("LAKEWARD_SERVER", server.url)
    monkeypatch.chdir(tmp_path)
    return Calls(capsys)


def test_a_table_from_cradle_to_grave(call: Calls, tmp_path: Path) -> None:
    made = call.json(
        "table",
        "create",
        "shop.orders",
        "id bigint not null, total decimal(10,2), at timestamp_ltz(3)",
        "--primary-key",
        "id",
        "--freshness",
        "1 h",
    )
    assert made["advice"] is None
    (tmp_path / "orders.jsonl").write_text(
        '{"id": 1, "total": 9.90, "at": "2026-01-31T12:00:00Z"}\n{"id": 2, "total": "4.50"}\n'
    )
    assert call.json("write", "shop.orders", "orders.jsonl")["rows"] == 2
    assert "2 rows wait" in call("explain", "shop.orders")
    lag = call.json("explain", "shop.orders")
    assert [row["bucket"] for row in lag["next_round"]] == ["0"]
    assert call.json("tier-now", "shop.orders")["rounds"] == 1
    (tmp_path / "gone.csv").write_text("id\n2\n")
    call("write", "shop.orders", "gone.csv", "--delete")
    assert call.out == "1 rows deleted from shop.orders\n"
    rows = call("read", "shop.orders", "--json").splitlines()
    assert [json.loads(r) for r in rows] == [{"id": 1, "total": "9.90", "at": "2026-01-31T12:00:00+00:00"}]
    assert "union read" in call.err
    assert len(call("read", "shop.orders", "--mode", "lake", "--json").splitlines()) == 2
    assert call("read", "shop.orders", "--format", "csv", "--columns", "id").splitlines() == ['"id"', "1"]
    assert json.loads(call("sql", "SELECT count(*) AS n FROM shop.orders AS o", "--json")) == {"n": 1}
    call("table", "alter", "shop.orders", "--add-column", "note string", "--set", "table.datalake.freshness=2 h")
    assert call.json("table", "show", "shop.orders")["descriptor"]["properties"]["table.datalake.freshness"] == "2 h"
    assert call.json("rounds", "shop.orders")[0]["outcome"] == "done"
    assert call.json("jobs")[0]["name"] == "hand"
    call("status")
    assert (call.code, "shop.orders" in call.out) == (0, True)
    assert call.json("verify", "shop.orders", "--deep")[0]["holds"]
    assert call.json("pause", "shop.orders")["state"] == "paused"
    assert call.json("resume", "shop.orders")["state"] != "paused"
    assert call.json("table", "drop", "shop.orders", "--yes") == {"dropped": "shop.orders"}
    assert call.json("table", "list") == []


def test_a_pool_that_nobody_serves_is_said_with_the_command_that_would(call: Calls, server: Server) -> None:
    call("table", "create", "shop.far", "id bigint", "--property", "table.datalake.pool=far")
    assert call.code == 0
    assert "no live job serves pool 'far'" in call.err
    assert f"lakeward tier --server {server.url} --pool far" in call.err
    call("table", "create", "shop.hot", "id bigint", "--no-lake")
    assert (call.code, call.err) == (0, "")
    for name in ("shop.far", "shop.hot"):
        call("table", "drop", name, "--yes")


def test_a_whole_statement_from_a_file(call: Calls, tmp_path: Path) -> None:
    (tmp_path / "t.sql").write_text(
        "CREATE TABLE web.t (id BIGINT, day STRING) PARTITIONED BY (day) WITH ('bucket.num' = '3')"
    )
    call("table", "create", "--file", "t.sql")
    assert call.out == "made web.t, 3 buckets\n"
    call("table", "drop", "web.t", "--yes")


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["read", "no.such"], 3, "there is no table no.such"),
        (["table", "create", "shop.bad", "id bigintt"], 2, "bigintt"),
        (["table", "drop", "shop.orders"], 2, "--yes"),
        (["write", "no.such", "none.jsonl"], 3, "no.such"),
        (["sql", "DELETE FROM shop.orders"], 2, "only SELECT"),
        (["status", "--server", "http://127.0.0.1:1"], 5, "is the server running?"),
    ],
)
def test_errors_are_one_paragraph_and_a_code(call: Calls, arguments: list[str], code: int, words: str) -> None:
    call(*arguments)
    assert call.code == code
    assert words in call.err
    assert call.err.startswith("lakeward: ")
    assert len(call.err.splitlines()) == 1


def test_status_ends_with_1_when_a_table_is_late(call: Calls, server: Server) -> None:
    with server.connect() as client:
        late = client.create_table(
            "shop.late", "id bigint", freshness="100 ms", properties={"table.datalake.pool": "far"}
        )
        late.append([{"id": 1}])
        wait_until(lambda: call("status") and call.code == 1, limit_s=30, what="a late table")
        client.drop_table("shop.late")


@pytest.fixture
def heard_interrupts() -> Iterator[None]:
    """Children hear SIGINT also where the tests themselves run in the background, with SIGINT ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("heard_interrupts")
def test_ctrl_c_ends_a_command_quietly(server: Server, tmp_path: Path) -> None:
    """A write that waits for more rows on standard input."""
    with server.connect() as client:
        client.create_table("shop.pipe", "id bigint")
    command = [sys.executable, "-m", "lakeward.cli", "write", "shop.pipe", "-", "--server", server.url]
    errors = (tmp_path / "errors").open("w")
    with (
        errors,
        subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=errors, env=os.environ
        ) as child,
    ):
        assert child.stdin is not None
        lines = b'{"id": 1}\n' * 10_000
        feeder = threading.Thread(
            target=lambda: (child.stdin.write(lines), child.stdin.flush()) if child.stdin else None
        )
        feeder.start()
        with server.connect() as client:
            table = client.table("shop.pipe")
            wait_until(lambda: sum(b.end for b in table.bounds().values()) == 10_000, limit_s=60, what="the first rows")
        child.send_signal(signal.SIGINT)
        assert child.wait(60) == 130
        feeder.join()
    assert (tmp_path / "errors").read_text() == ""
