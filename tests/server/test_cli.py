# SPDX-License-Identifier: Apache-2.0
"""The commands against a real server and a real job (without Spark): what they print, and how they end."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.exceptions import BadRequestError

from lakeward.cli import app
from lakeward.cli.connection import open_client
from lakeward.cli.files.filerows import FileShape, Rejects
from lakeward.cli.files.filewrite import FileWrite
from lakeward.cli.files.journal import WriteJournal
from lakeward.cli.files.rowfiles import WriteFormat, read_file
from lakeward.cli.files.rowprint import ReadFormat
from lakeward.cli.files.writefiles import WriteFiles
from lakeward.cli.output import complete_table
from lakeward.cli.sql.sqlshell import SqlShell
from lakeward.client import Client
from lakeward.lake.iceberg.plugin import load
from lakeward.model import TablePath
from lakeward.protocol.flight import PutKind
from lakeward.protocol.routes import JOBS
from lakeward_testing.waiting import wait_until
from tests.spark.processes import Job, Server


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    made = Server(tmp_path_factory.mktemp("cli"))
    job = Job(made, "hand", spark=False)
    with made.connect() as client:
        wait_until(
            lambda: any(j["live"] for j in client.server.ask("GET", JOBS)["jobs"]),
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
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    return Calls(capsys)


def test_a_table_that_others_made_is_adopted(call: Calls, server: Server, tmp_path: Path) -> None:
    catalog = RestCatalog("theirs", uri=f"{server.url}/iceberg")
    catalog.create_namespace_if_not_exists("theirs")
    rows = pa.table({"id": pa.array([1, 2, 3], pa.int64())})
    catalog.create_table("theirs.visits", rows.schema).append(rows)
    call("table", "adopt", "theirs.visits", "--buckets", "2")
    assert "they are for tables that others made: --foreign" in call.err
    call("table", "adopt", "--foreign", "theirs.visits", "--key", "nope")
    assert "no such column; there are id" in call.err
    assert call("table", "adopt", "--foreign", "theirs.visits", "--buckets", "2") == "adopted theirs.visits\n", call.err
    (tmp_path / "more.jsonl").write_text('{"id": 4}\n')
    call("write", "theirs.visits", "more.jsonl")
    call("tier-now", "theirs.visits")
    assert sorted(catalog.load_table("theirs.visits").scan().to_arrow()["id"].to_pylist()) == [1, 2, 3, 4]
    call("write", "theirs.visits", "more.jsonl")
    found = call("read", "theirs.visits", "--json").splitlines()
    assert sorted(json.loads(line)["id"] for line in found) == [1, 2, 3, 4, 4]
    (told,) = call.json("verify", "theirs.visits", "--deep")
    assert (told["verdict"], told["holds"], told["findings"]) == ("partly checked, no fault found", False, [])
    assert "3 rows from before the table was adopted" in told["beyond"][0]
    call("table", "drop", "theirs.visits", "--yes")
    catalog.close()


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
    assert call.out == "1 row deleted from shop.orders\n"
    rows = call("read", "shop.orders", "--json").splitlines()
    assert [json.loads(r) for r in rows] == [{"id": 1, "total": "9.90", "at": "2026-01-31T12:00:00+00:00"}]
    assert "union read" in call.err
    assert len(call("read", "shop.orders", "--mode", "lake", "--json").splitlines()) == 2
    assert call("read", "shop.orders", "--format", "csv", "--columns", "id").splitlines() == ['"id"', "1"]
    assert json.loads(call("sql", "SELECT count(*) AS n FROM shop.orders AS o", "--json")) == {"n": 1}
    call("table", "alter", "shop.orders", "--add-column", "note string", "--freshness", "2 h")
    assert "freshness" in call("status", "shop.orders")
    assert [t["path"] for t in call.json("status", "shop.orders")["tables"]] == ["shop.orders"]
    assert call.json("table", "show", "shop.orders")["descriptor"]["properties"]["table.datalake.freshness"] == "2 h"
    assert call.json("rounds", "shop.orders")[0]["outcome"] == "done"
    assert call.json("jobs")[0]["name"] == "hand"
    call("status")
    assert (call.code, "shop.orders" in call.out) == (0, True)
    assert call.json("verify", "shop.orders", "--deep")[0]["holds"]
    assert call("maintain", "shop.orders") == "shop.orders: 1 data file, nothing to rewrite\n"
    assert call.json("maintain", "shop.orders", "--explain") == {
        "table": "shop.orders",
        "files": 1,
        "unplaced_files": 0,
        "groups": [],
    }
    assert call.json("maintain", "shop.orders", "--now")["path"] == "shop.orders"
    call("maintain", "shop.orders", "--off")
    shown = call.json("table", "show", "shop.orders")["descriptor"]["properties"]
    assert shown["table.datalake.auto-maintenance"] == "false"
    assert call.json("pause", "shop.orders")["state"] == "paused"
    call("maintain", "shop.orders", "--now")
    assert (call.code, "paused" in call.err) == (1, True)
    call("table", "create", "shop.dry", "id BIGINT", "--no-lake")
    call("maintain", "shop.dry")
    assert (call.code, "the lake is switched off for it" in call.err) == (1, True)
    call("table", "drop", "shop.dry", "--yes")
    call("maintain", "shop.nowhere", "--now")
    assert (call.code, "shop.nowhere" in call.err) == (3, True)
    assert call.json("resume", "shop.orders")["state"] != "paused"
    assert call.json("table", "drop", "shop.orders", "--yes") == {"dropped": "shop.orders"}
    assert call.json("table", "list") == []


def test_another_engine_deletes_rows_and_changes_a_column(call: Calls, server: Server, tmp_path: Path) -> None:
    """Status shows what is left at once; the table stops at the column, and reconcile-schema is the way back."""
    call("table", "create", "shop.stock", "id bigint not null, name string not null", "--primary-key", "id")
    (tmp_path / "three.jsonl").write_text("".join(json.dumps({"id": i, "name": f"n{i}"}) + "\n" for i in range(3)))
    call("write", "shop.stock", "three.jsonl")
    call("tier-now", "shop.stock")
    catalog = RestCatalog("theirs", uri=f"{server.url}/iceberg")
    table = catalog.load_table("shop.stock")
    with pytest.warns(UserWarning, match="Merge on read"):
        table.delete("id = 1")
    assert [t["lake_rows"] for t in call.json("status")["tables"] if t["path"] == "shop.stock"] == [2]
    with pytest.raises(BadRequestError, match="cannot be altered"), table.update_schema() as update:
        update.rename_column("__offset", "place")
    database, warehouse = server.folder / "data/iceberg/catalog.db", (server.folder / "data/warehouse").as_uri()
    elsewhere = load({"type": "sql", "uri": f"sqlite:///{database}", "warehouse": warehouse})
    with elsewhere.connection.load(TablePath("shop", "stock")).update_schema() as update:
        update.make_column_optional("name")
    elsewhere.connection.close()
    call("write", "shop.stock", "three.jsonl")
    assert call.json("table", "reconcile-schema", "shop.stock", "--dry-run")["dry_run"]
    assert call("table", "reconcile-schema", "shop.stock", "--dry-run") == "would change: column name: NOT NULL again\n"
    assert call("table", "reconcile-schema", "shop.stock") == "column name: NOT NULL again\n"
    assert call("table", "reconcile-schema", "shop.stock").startswith("the lake table of shop.stock fits")
    call("tier-now", "shop.stock")
    assert call.code == 0, call.err
    catalog.drop_table("shop.stock")
    assert call("table", "restore-lake", "shop.stock").startswith("the lake table of shop.stock is back, from ")
    call("write", "shop.stock", "three.jsonl")
    call("tier-now", "shop.stock")
    assert call.code == 0, call.err
    call("table", "drop", "shop.stock", "--yes")
    catalog.close()


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
        "CREATE TABLE web.t (id BIGINT, at DATE) PARTITIONED BY (month(at)) WITH ('bucket.num' = '3')"
    )
    call("table", "create", "--file", "t.sql")
    assert call.out == "made web.t, 3 buckets\n"
    (tmp_path / "t.jsonl").write_text('{"id": 1, "at": "1969-12-31"}\n{"id": 2, "at": "2026-11-18"}\n')
    call("write", "web.t", "t.jsonl")
    call("sql", "SELECT id FROM web.t WHERE at < DATE '1970-01-01'", "--json")
    assert [json.loads(line) for line in call.out.splitlines()] == [{"id": 1}]
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
        wait_until(lambda: call("status") and call.code == 1, what="a late table")
        client.drop_table("shop.late")


@pytest.fixture
def heard_interrupts() -> Iterator[None]:
    """Children hear SIGINT also where the tests themselves run in the background, with SIGINT ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("heard_interrupts")
def test_ctrl_c_ends_a_write_with_what_is_stored(server: Server, tmp_path: Path) -> None:
    """A write that waits for more rows on standard input. That it reads on shows that it heard of those before:
    the empty lines do not fit into the pipe."""
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
        child.stdin.write(b'{"id": 1}\n' * 10_000 + b"\n" * 1_000_000)
        child.stdin.flush()
        child.send_signal(signal.SIGINT)
        assert child.wait(120) == 130
    words = "10,000 rows of - are stored, the last of them in line 10000; those after it are not\n"
    assert (tmp_path / "errors").read_text() == words


def test_a_write_that_stops_says_what_is_stored_and_goes_on(call: Calls, tmp_path: Path) -> None:
    call("table", "create", "cli.honest", "id bigint not null, name string", "--buckets", "3")
    file = tmp_path / "rows.csv"
    lines = ["id,name", *(f'{i},"{"x" * (i % 3)}"' for i in range(25_000))]
    file.write_text("\n".join((*lines[:21_001], ",nameless", *lines[21_001:])) + "\n")
    call("write", "cli.honest", str(file), "--atomic")
    assert call.code == 2
    assert "line 21002, column id: null in a NOT NULL column" in call.err
    assert call.json("sql", "SELECT count(*) AS n FROM cli.honest") == {"n": 0}
    call("write", "cli.honest", str(file))
    assert call.code == 2
    assert "20,000 rows of" in call.err
    assert "in line 20001; those after it are not. --resume goes on" in call.err
    assert "nothing of this call" not in call.err
    assert call.json("sql", "SELECT count(*) AS n FROM cli.honest") == {"n": 20_000}
    file.write_text("\n".join(lines) + "\n")
    assert call.json("write", "cli.honest", str(file), "--resume")["rows"] == 5_000
    counted = "SELECT count(*) AS n, count(DISTINCT id) AS ids, count(name) AS named FROM cli.honest"
    assert call.json("sql", counted) == {"n": 25_000, "ids": 25_000, "named": 25_000}
    call("write", "cli.honest", str(file), "--resume")
    assert (call.code, "no write of it" in call.err) == (2, True)


def test_a_call_of_several_files_goes_on_where_it_stopped(call: Calls, tmp_path: Path) -> None:
    call("table", "create", "cli.several", "id bigint")
    files = [str(tmp_path / f"{name}.csv") for name in ("first", "second", "third")]
    for file, text in zip(files, ("id\n1\n", "id\nx\n", "id\n3\n"), strict=True):
        Path(file).write_text(text)
    call("write", "cli.several", *files, "--atomic")
    assert f"nothing of {' '.join(files)} is stored" in call.err
    call("write", "cli.several", files[1])
    assert f"nothing of {files[1]} is stored\n" in call.err
    call("write", "cli.several", *files)
    assert f"nothing of {files[1]} is stored; the files before it are, whole: 1. --resume" in call.err
    Path(files[1]).write_text("id\n2\n")
    assert call.json("write", "cli.several", *files, "--resume")["rows"] == 2
    assert call.json("sql", "SELECT list(id ORDER BY id) AS ids FROM cli.several") == {"ids": [1, 2, 3]}
    call("write", "cli.several", *files, "--resume")
    assert (call.code, "no write of it" in call.err) == (2, True)
    call("write", "cli.several", *files, "--atomic", "--skip-bad", str(tmp_path / "bad.csv"))
    assert (call.code, "give one of the two" in call.err) == (2, True)


def test_a_table_is_proposed_for_a_file_and_made(call: Calls, tmp_path: Path) -> None:
    rows = tmp_path / "odd rows.csv"
    rows.write_text('Order No;Name\n1;"a\nb"\n2;\n')
    assert "Order No  BIGINT" in call("table", "create", "shop.proposed", "--from", str(rows))
    assert (call.code, "nothing is made yet" in call.err) == (0, True)
    call("table", "show", "shop.proposed")
    assert call.code == 3
    made = call("table", "create", "shop.proposed", "--from", str(rows), "--yes", "--no-lake")
    assert (made.splitlines()[-1], "primary key: Order No" in call.err) == ("made shop.proposed, 1 bucket", True)
    assert call("write", "shop.proposed", str(rows)) == "2 rows written to shop.proposed\n"
    printed = call("sql", 'SELECT "Order No", Name FROM shop.proposed ORDER BY 1', "--json")
    assert [json.loads(line) for line in printed.splitlines()] == [
        {"Order No": 1, "Name": "a\nb"},
        {"Order No": 2, "Name": None},
    ]
    call("table", "create", "shop.blank", "Order No bigint")
    assert (call.code, "stands in backticks: `Order No`" in call.err) == (2, True)


def test_a_chunk_that_was_stored_unheard_is_not_stored_twice(call: Calls, server: Server, tmp_path: Path) -> None:
    """The process died after the server had the rows and before the journal did."""
    call("table", "create", "cli.unheard", "id bigint not null", "--buckets", "3", "--bucket-key", "id")
    file = tmp_path / "rows.jsonl"
    file.write_text("".join(f'{{"id": {i}}}\n' for i in range(30_000)))
    with server.connect() as client:
        table = client.table("cli.unheard")
        journal = WriteJournal.begin(str(table.info.table_id), str(file), str(PutKind.APPEND))
        chunks = list(read_file(str(file), WriteFormat.JSON, table.info.schema))
        FileWrite(table, PutKind.APPEND, journal).run(chunks[:2], Rejects(), lambda _rows, _part: None)
        assert journal.path is not None
        journal.path.write_text(json.dumps({"writer": journal.writer}) + "\n" + journal.digests[0] + "\n")
    call("write", "cli.unheard", str(file), "--resume")
    assert call.code == 0, call.err
    assert call.json("sql", "SELECT count(*) AS n, count(DISTINCT id) AS ids FROM cli.unheard") == {
        "n": 30_000,
        "ids": 30_000,
    }
    WriteJournal.begin(str(table.info.table_id), str(file), str(PutKind.APPEND)).add("other rows")
    call("write", "cli.unheard", str(file), "--resume")
    assert (call.code, "are not those that the stopped write stored" in call.err) == (2, True)


def test_columns_that_are_not_given_stay(call: Calls, tmp_path: Path) -> None:
    call("table", "create", "cli.partial", "k int, a string, b string", "--primary-key", "k")
    (tmp_path / "all.csv").write_text("k,a,b\n1,a1,b1\n2,a2,b2\n")
    (tmp_path / "some.csv").write_text("k,b\n1,new\n3,new\n")
    (tmp_path / "mixed.jsonl").write_text('{"k": 2, "a": "x"}\n{"k": 1, "b": null}\n')
    for file in ("all.csv", "some.csv", "mixed.jsonl"):
        call("write", "cli.partial", file)
        assert call.code == 0, call.err
    query = "SELECT * FROM cli.partial ORDER BY k"
    call("sql", query, "--json")
    assert [tuple(json.loads(line).values()) for line in call.out.splitlines()] == [
        (1, "a1", None),
        (2, "x", "b2"),
        (3, None, "new"),
    ]
    (tmp_path / "whole.csv").write_text("k,b\n2,only\n")
    call("write", "cli.partial", "whole.csv", "--replace")
    call("sql", query, "--json")
    assert json.loads(call.out.splitlines()[1]) == {"k": 2, "a": None, "b": "only"}


def test_sql_shows_every_column_by_the_name_that_was_asked_for(call: Calls) -> None:
    call("table", "create", "cli.left", "id int, v string")
    call("table", "create", "cli.right", "id int, w string")
    for table in ("left", "right"):
        Path(f"{table}.jsonl").write_text(f'{{"id": 1, "{"v" if table == "left" else "w"}": "{table}"}}\n')
        call("write", f"cli.{table}", f"{table}.jsonl")
    join = "FROM cli.left a JOIN cli.right b USING (id)"
    assert call.json("sql", f"SELECT a.v, b.w AS v, id {join}") == {"v": "left", "v_1": "right", "id": 1}
    assert call.json("sql", "SELECT cli.left.v FROM cli.left") == {"v": "left"}
    assert call.json("sql", "SELECT a FROM cli.left a") == {"a": {"id": 1, "v": "left"}}
    assert call.json("sql", "SELECT count(*) AS n FROM range(4)") == {"n": 4}
    for query in ("SELECT * FROM read_csv('/etc/passwd')", "SELECT * FROM '/etc/passwd.csv'"):
        call("sql", query)
        assert call.code == 2
        assert "reads Lakeward tables alone, no files" in call.err
    call("sql", "SELECT nope FROM cli.left")
    assert call.code == 2
    assert "lakeward_" not in call.err
    call("sql", "SELECT l.nope FROM cli.left l, cli.right")
    assert "lakeward_" not in call.err


def test_a_folder_is_followed_and_each_file_written_once(call: Calls, server: Server, tmp_path: Path) -> None:
    call("table", "create", "cli.followed", "id int")
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "a.csv").write_text("id\n1\n")
    for turn in (1, 2):
        with server.connect() as client, Rejects() as rejects:
            job, stop = WriteFiles(client.table("cli.followed"), FileShape(), None, rejects=rejects), threading.Event()
            thread = threading.Thread(target=job.follow, args=([str(folder)], stop))
            thread.start()
            rows = partial(_rows_are, client, turn)
            wait_until(rows, what="rows")
            stop.set()
            thread.join()
        (folder / "b.csv").write_text("id\n2\n")
    assert sorted(json.loads(line)["id"] for line in call("read", "cli.followed", "--json").splitlines()) == [1, 2]


def test_a_followed_folder_has_no_way_out(call: Calls, server: Server, tmp_path: Path, capsys: Any) -> None:
    """Those who put files there may not read what a link names; the table's readers would."""
    call("table", "create", "cli.dropped", "id string", "--property", "table.schema.contract=quarantine")
    folder, secret = tmp_path / "in", tmp_path / "secret.csv"
    folder.mkdir()
    secret.write_text("id\nsecret\n")
    (folder / "a.csv").symlink_to(secret)
    (folder / "b.csv").symlink_to(folder / "nowhere.csv")
    os.mkfifo(folder / "c.csv")
    (folder / "d.csv").mkdir()
    (folder / "e.csv").write_text("id\nown\n")
    with server.connect() as client, Rejects() as rejects:
        job, stop = WriteFiles(client.table("cli.dropped"), FileShape(), None, rejects=rejects), threading.Event()
        thread = threading.Thread(target=job.follow, args=([str(folder)], stop))
        thread.start()
        wait_until(lambda: client.read("cli.dropped").to_table().num_rows == 1, what="rows")
        (folder / "f.csv").write_text("id\nlast\n")
        wait_until(lambda: client.read("cli.dropped").to_table().num_rows == 2, what="rows")
        stop.set()
        thread.join()
        assert sorted(client.read("cli.dropped").to_table()["id"].to_pylist()) == ["last", "own"]
    assert capsys.readouterr().err.count("is a link out of its folder") == 1


def _rows_are(client: Client, count: int) -> bool:
    return bool(client.read("cli.followed").to_table().num_rows == count)


def test_sql_reads_statements_one_after_the_other(call: Calls, monkeypatch: pytest.MonkeyPatch) -> None:
    call("table", "create", "cli.shell", "id bigint not null", "--no-lake")
    monkeypatch.setattr("sys.stdin", io.StringIO('{"id": 1}\n{"id": 2}\n'))
    call("write", "cli.shell", "-")
    statements = (
        ".tables\n.schema cli.shell;\nSELECT max(id) AS s\nFROM cli.shell;\nSELECT count(*) AS n FROM cli.shell"
    )
    monkeypatch.setattr("sys.stdin", io.StringIO(statements))
    shown = call("sql", "--format", "json").splitlines()
    assert (call.code, "cli.shell" in [s.strip() for s in shown], shown[-2:]) == (0, True, ['{"s": 2}', '{"n": 2}'])
    assert any(line.startswith("id      BIGINT NOT NULL") for line in shown)
    monkeypatch.setattr("sys.stdin", io.StringIO("SELECT nothing FROM cli.shell; SELECT 1"))
    assert (call("sql"), call.code) == ("", 2)
    with open_client(None) as client:
        shell = SqlShell(client, "union", None, ReadFormat.JSON)
        assert shell.complete("cli.she") == ["cli.shell"]
        assert {"id", "SELECT"} <= {*shell.complete("i"), *shell.complete("sel")}
        assert (shell.answer(".as-of 2026-01-01"), shell.as_of, shell.answer(".quit")) == (True, "2026-01-01", False)
    assert complete_table("cli.she") == ["cli.shell"]
    monkeypatch.setenv("LAKEWARD_SERVER", "http://127.0.0.1:1")
    assert complete_table("cli.she") == []


def test_top_shows_once_where_no_terminal_is(call: Calls) -> None:
    call("table", "create", "cli.top", "id bigint not null", "--freshness", "1 h")
    shown = call("top")
    assert (call.code, "Jobs live / expected" in shown, "cli.top" in shown, "hand" in shown) == (0, True, True, True)
    assert len(call.json("top", "--rows", "1")["tables"]) == 1


def test_tier_now_from_python(server: Server, call: Calls) -> None:
    call("table", "create", "cli.soon", "id int")
    with server.connect() as client:
        client.table("cli.soon").append({"id": 1})
        answer = client.tier_now("cli.soon")
        assert (str(answer.path), answer.rounds) == ("cli.soon", 1)
        assert client.read("cli.soon", mode="lake").to_table().num_rows == 1


def test_the_base_package_names_the_extra_that_reads(server: Server) -> None:
    """As an environment without PyIceberg answers: its import fails there."""
    code = f"""
import sys
sys.modules["pyiceberg"] = None
from lakeward.client import connect
with connect({server.url!r}) as client:
    client.create_table("cli.extra", "id INT", if_not_exists=True)
    try:
        client.read("cli.extra")
    except Exception as error:
        print(type(error).__name__, error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.startswith("InvalidRequest a read of cli.extra: the package pyiceberg is not installed"), done
    assert "lakeward[iceberg]" in done.stdout


def test_a_round_that_is_asked_for_reaches_an_idle_job_at_once(tmp_path: Path) -> None:
    """Beats are a minute apart: whoever waits for one runs into the limit."""
    made = Server(tmp_path, {"coordinator.heartbeat.interval": "60 s"})
    job = Job(made, "idle", spark=False, settings={"LAKEWARD_TIERING__HEARTBEAT__INTERVAL": "60 s"})
    try:
        with made.connect() as client:
            wait_until(
                lambda: any(j["live"] for j in client.server.ask("GET", JOBS)["jobs"]),
                what="the job",
                state=job.text,
            )
            table = client.create_table("db.soon", "id int", freshness="1 h")
            table.append({"id": 1})
            assert client.tier_now("db.soon", limit_s=40).rounds == 1
    finally:
        job.kill()
        made.kill()
