# SPDX-License-Identifier: Apache-2.0
"""Contracts of tables against a real server: columns that rows add, rows that are quarantined and redriven."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from lakeward.cli import app
from lakeward.client import Client, Table
from lakeward.errors import InvalidRows, TimedOut
from tests.kit.serverprocess import ServerProcess

_NAMES = (f"contract.t{n}" for n in itertools.count())
JSON, LINES, CSV = "application/json", "application/x-ndjson", "text/csv"
QUARANTINE, EVOLVE = {"table.schema.contract": "quarantine"}, {"table.schema.contract": "evolve"}
Send = Callable[..., Any]


@pytest.fixture
def client(shared_server: ServerProcess) -> Iterator[Client]:
    with shared_server.client() as made:
        yield made


@pytest.fixture
def http(shared_server: ServerProcess) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=shared_server.url, timeout=60) as made:
        yield made


@pytest.fixture
def send(http: httpx.Client) -> Send:
    def post(table: Table, body: Any, kind: str = JSON, key: str | None = None, **params: Any) -> httpx.Response:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        headers = {"Content-Type": kind, **({} if key is None else {"Idempotency-Key": key})}
        return http.post(f"/api/v1/tables/{table.path}/rows", content=content, headers=headers, params=params)

    return post


def waiting(http: httpx.Client, table: Table) -> list[dict[str, Any]]:
    answer = http.get(f"/api/v1/tables/{table.path}/quarantine", params={"limit": 1000})
    assert answer.status_code == 200, answer.text
    rows: list[dict[str, Any]] = answer.json()["rows"]
    return rows


def redrive(http: httpx.Client, table: Table, **body: Any) -> dict[str, Any]:
    answer = http.post(f"/api/v1/tables/{table.path}/quarantine/redrive", json=body)
    assert answer.status_code == 200, answer.text
    read: dict[str, Any] = answer.json()
    return read


def log_table(client: Client, columns: str = "id bigint not null, name string", **properties: str) -> Table:
    return client.create_table(next(_NAMES), columns, properties=properties or QUARANTINE)


def rows_of(table: Table) -> list[dict[str, Any]]:
    return sorted(table.read().to_table().to_pylist(), key=lambda row: str(row["id"]))


@pytest.mark.parametrize(
    ("kind", "body", "texts"),
    [
        (JSON, b'[{"id": 1}, {"id": "x", "name": 1.10}, 7 , {"id": 2}]', ['{"id": "x", "name": 1.10}', "7"]),
        (LINES, b'{"id": 1}\n\n{"id": "x"\n{"name": "n"}\n{"id": 2}\n', ['{"id": "x"', '{"name": "n"}']),
        (CSV, b'id,name\n1,\nx,a\n2,\n1,2,3\n3,""\n', ['{"id": "x", "name": "a"}', "1,2,3"]),
    ],
    ids=["json", "lines", "csv"],
)
def test_bad_rows_are_kept_as_they_came_and_good_ones_stored(
    client: Client, http: httpx.Client, send: Send, kind: str, body: bytes, texts: list[str]
) -> None:
    table = log_table(client)
    answer = send(table, body, kind)
    assert answer.status_code == 207, answer.text
    assert (answer.json()["refused"], answer.json()["quarantined"]) == (0, 2)
    assert {1, 2} <= {row["id"] for row in rows_of(table)} <= {1, 2, 3}
    kept = waiting(http, table)
    assert [row["bad"]["row"] for row in kept] == texts
    ids = {row["quarantine_id"] for row in answer.json()["rows"] if "error" in row}
    assert ids == {row["id"] for row in kept}
    assert all(row["bad"]["reason"] and row["source"] == "http" for row in kept)


def test_a_retry_under_a_key_keeps_each_bad_row_once(client: Client, http: httpx.Client, send: Send) -> None:
    table = log_table(client)
    body = [{"id": 1}, {"id": "x"}, {"id": 2}]
    first, again = (send(table, body, key="k1").json() for _ in range(2))
    assert (again["duplicate"], again["quarantined"]) == (True, 1)
    assert [row.get("quarantine_id") for row in again["rows"]] == [row.get("quarantine_id") for row in first["rows"]]
    assert len(waiting(http, table)) == 1
    assert len(rows_of(table)) == 2


def test_rows_that_the_store_refuses_are_kept_too_also_under_a_key(
    client: Client, http: httpx.Client, send: Send
) -> None:
    columns = "id bigint, name string not null, n int"
    table = client.create_table(next(_NAMES), columns, primary_key="id", properties=QUARANTINE)
    send(table, {"id": 1, "name": "a"})
    for _ in range(2):
        answer = send(table, [{"id": 1, "n": 5}, {"id": 2, "n": 6}, {"id": "y", "n": 7}], key="k")
        assert answer.json()["quarantined"] == 2, answer.text
    assert rows_of(table) == [{"id": 1, "name": "a", "n": 5}]
    assert [row["bad"]["row"] for row in waiting(http, table)] == ['{"id": "y", "n": 7}', '{"id": 2, "n": 6}']


def test_corrected_rows_are_written_once_and_the_rest_stays(client: Client, http: httpx.Client, send: Send) -> None:
    table = log_table(client)
    send(table, [{"id": "x", "name": "a"}, {"id": "y", "name": "b"}, {"id": 1}])
    first, second = waiting(http, table)
    told = redrive(http, table, corrected={first["id"]: '{"id": 8, "name": "a"}', second["id"]: '{"id": "still"}'})
    assert told["redriven"] == [first["id"]]
    assert "still" in told["refused"][second["id"]]
    assert [row["id"] for row in waiting(http, table)] == [second["id"]]
    assert rows_of(table) == [{"id": 1, "name": None}, {"id": 8, "name": "a"}]
    again = redrive(http, table, corrected={first["id"]: '{"id": 9, "name": "again"}'})
    assert (again["redriven"], again["refused"]) == ([first["id"]], {})
    assert rows_of(table) == [{"id": 1, "name": None}, {"id": 8, "name": "a"}]
    answer = http.post(f"/api/v1/tables/{table.path}/quarantine/redrive", json={"ids": ["none"]})
    assert answer.status_code == 400
    assert "no such row waits" in answer.json()["message"]


def test_a_change_of_the_table_lets_csv_rows_through(client: Client, http: httpx.Client, send: Send) -> None:
    table = log_table(client, "id int not null, name string")
    assert send(table, b'id,name\n3000000000,big\n4000000000,""\n', CSV).json()["quarantined"] == 2
    client.alter_table(table.path, widen={"id": "bigint"})
    assert len(redrive(http, table)["redriven"]) == 2
    assert rows_of(client.table(table.path)) == [{"id": 3000000000, "name": "big"}, {"id": 4000000000, "name": ""}]
    assert waiting(http, table) == []


def test_too_many_bad_rows_stop_the_source_and_turn_a_tile_red(
    client: Client, http: httpx.Client, send: Send, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    table = log_table(client, **QUARANTINE, **{"table.schema.quarantine.max-rows-per-minute": "3"})
    assert send(table, [{"id": "x"}] * 3).json()["quarantined"] == 3
    answer = send(table, [{"id": 1}, {"id": "x"}])
    assert (answer.status_code, answer.json()["code"]) == (429, "too-many-bad-rows")
    assert rows_of(table) == []
    assert send(table, [{"id": 2}]).status_code == 200
    tiles = http.get("/api/v1/dashboard").json()["tiles"]
    (tile,) = [t for t in tiles if t["key"] == "quarantine"]
    assert not tile["ok"]
    assert f"lakeward quarantine list {table.path}" in tile["advice"]
    assert app.run(["quarantine", "list", table.path, "--server", str(http.base_url)]) == 0
    assert "'x' is no BIGINT" in capsys.readouterr().out
    assert app.run(["quarantine", "show", table.path, "--server", str(http.base_url)]) == 0
    corrected = tmp_path / "corrected.jsonl"
    corrected.write_text(capsys.readouterr().out.replace('"id": "x"', '"id": 7'))
    assert app.run(["quarantine", "redrive", table.path, "--rows", str(corrected), "--server", str(http.base_url)]) == 0
    assert f"3 rows written to {table.path}; 0 still do not fit" in capsys.readouterr().out
    assert [row["id"] for row in rows_of(table)] == [2, 7, 7, 7]


def test_a_quarantine_that_fails_never_stops_the_table(client: Client, send: Send) -> None:
    table = log_table(client)
    client.create_table(f"{table.path}__quarantine", "id bigint not null")
    answer = send(table, [{"id": 1}, {"id": "x"}])
    assert answer.status_code == 207, answer.text
    assert (answer.json()["accepted"], answer.json()["refused"], answer.json()["quarantined"]) == (1, 1, 0)
    assert rows_of(table) == [{"id": 1, "name": None}]


def test_typed_rows_stay_strict(client: Client) -> None:
    table = log_table(client)
    with pytest.raises(InvalidRows, match="'x'"):
        table.append([{"id": "x"}])


# ---- evolve ----------------------------------------------------------------------------------------------------------
def test_rows_add_nullable_columns_within_limits(client: Client, send: Send) -> None:
    limits = {**EVOLVE, "table.schema.evolve.max-columns": "6"}
    table = log_table(client, **limits)
    answer = send(table, [{"id": 1, "n": 5, "ok": True}, {"id": 2, "n": 2.5, "nothing": None}])
    assert answer.status_code == 200, answer.text
    assert answer.json()["added_columns"] == ["n", "ok"]
    answer = send(table, b"id,at,name\n3,2026-01-31,c\n", CSV)
    assert answer.status_code == 200, answer.text
    altered = client.table(table.path)
    types = {c.name: c.type.sql for c in altered.info.schema.columns}
    assert types == {"id": "BIGINT", "name": "STRING", "n": "DOUBLE", "ok": "BOOLEAN", "at": "DATE"}
    assert "added for a row of" in str(altered.info.schema.column("n").comment)
    answer = send(table, {"id": 4, "a": 1, "b": 2})
    assert answer.status_code == 400
    assert "more than 6 columns" in answer.json()["message"]
    assert [row["id"] for row in rows_of(altered)] == [1, 2, 3]


def test_names_of_nested_values_and_system_names_are_refused(client: Client, send: Send) -> None:
    table = log_table(client, **EVOLVE)
    for name, value in (("nested", {"a": 1}), ("__offset", 1), ("NAME", "x"), (" blank", 1)):
        answer = send(table, {"id": 1, name: value})
        assert answer.status_code == 400, (name, answer.text)
    assert client.table(table.path).info.schema.names == ("id", "name")


def test_strict_tables_get_no_column(client: Client, send: Send) -> None:
    table = client.create_table(next(_NAMES), "id bigint not null")
    assert send(table, {"id": 1, "new": 1}).status_code == 400


# ---- files -----------------------------------------------------------------------------------------------------------
def test_rows_of_files_go_by_the_contract(
    client: Client, http: httpx.Client, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """CSV and JSON lines; broken lines, cells and nulls; a resumed write keeps a row once."""
    table, server = log_table(client), ["--server", str(http.base_url)]
    comma = tmp_path / "bad.csv"
    comma.write_text('id,name\n1,a\nx,b\n2,"q"\n3,c,d\n,e\n')
    assert app.run(["write", table.path, str(comma), *server]) == 0
    assert f"3 rows did not fit: `lakeward quarantine list {table.path}`" in capsys.readouterr().err
    lines = tmp_path / "bad.jsonl"
    lines.write_text('{"id": 4}\n{"id": "y"}\nnot json\n{"id": 5, "other": 1}\n')
    assert app.run(["write", table.path, str(lines), *server]) == 0
    assert [row["id"] for row in rows_of(table)] == [1, 2, 4]
    kept = waiting(http, table)
    assert sorted(row["bad"]["row"] for row in kept) == sorted(
        ['{"id": "x", "name": "b"}', "3,c,d", '{"id": null, "name": "e"}', '{"id": "y"}', "not json",
         '{"id": 5, "other": 1}']
    )  # fmt: skip
    assert {row["source"] for row in kept} == {str(comma), str(lines)}
    assert app.run(["write", table.path, str(comma), "--atomic", *server]) == 2
    assert len(waiting(http, table)) == 6


def test_a_file_adds_columns(client: Client, http: httpx.Client, tmp_path: Path) -> None:
    table, server = log_table(client, **EVOLVE), ["--server", str(http.base_url)]
    file = tmp_path / "new.csv"
    file.write_text("id,name,price\n1,a,1.25\n2,b,\n")
    assert app.run(["write", table.path, str(file), *server]) == 0
    assert [row["price"] for row in rows_of(client.table(table.path))] == [1.25, None]
    strict = client.create_table(next(_NAMES), "id bigint not null, name string")
    assert app.run(["write", strict.path, str(file), *server]) == 2


# ---- a fuzzed feed with kills ----------------------------------------------------------------------------------------
FEED_POINTS = ("quarantine.after-put", "hotlog.after-write", "hotlog.before-fsync", "hotlog.after-fsync")
REDRIVE_POINTS = ("quarantine.between-redrive-and-record", "hotlog.after-write", "hotlog.after-fsync")


class KilledServer:
    """A server that ends at the faults given, one after the other; a request is sent until it is answered."""

    def __init__(self, start_server: Callable[..., ServerProcess], faults: list[str]) -> None:
        self.faults = faults
        self.server = start_server(environment=self._environment())
        self.kills = 0

    def _environment(self) -> dict[str, str]:
        return {"LAKEWARD_FAULTS": self.faults.pop(0)} if self.faults else {}

    def _restart(self) -> None:
        assert self.server.process is not None
        self.server.process.wait(60)
        self.kills += 1
        self.server.environment = self._environment()
        try:
            self.server.restart()
        except TimedOut:  # a fault of the log may end it while it starts
            self._restart()

    def ask(self, method: str, path: str, body: Any = None, key: str | None = None) -> Any:
        headers = {} if key is None else {"Idempotency-Key": key}
        while True:
            try:
                with httpx.Client(base_url=self.server.url, timeout=60) as http:
                    answer = http.request(method, f"/api/v1/tables/{path}", json=body, headers=headers)
            except httpx.HTTPError:
                self._restart()
            else:
                assert answer.status_code in (200, 207), answer.text
                return answer.json()


@pytest.mark.parametrize("seed", [1, *(pytest.param(n, marks=pytest.mark.soak) for n in range(2, 12))])
def test_each_row_of_a_feed_is_in_one_place_after_kills(start_server: Callable[..., ServerProcess], seed: int) -> None:
    draw = random.Random(seed)
    feed = [f"{draw.choice(FEED_POINTS)}=kill,hit={draw.randint(1, 4)}" for _ in range(2)]
    redrives = [f"{draw.choice(REDRIVE_POINTS)}=kill,hit={draw.randint(1, 2)}" for _ in range(2)]
    killed = KilledServer(start_server, [*feed, *redrives])
    client = killed.server.client()
    table = client.create_table("feed.events", "id bigint not null, name string", buckets=2, properties=QUARANTINE)
    good: list[int] = []
    bad: list[int] = []
    for request in range(12):
        rows = []
        for number in range(request * 20, request * 20 + draw.randint(1, 20)):
            is_bad = draw.random() < 0.3
            rows.append({"id": f"bad {number}" if is_bad else number, "name": f"n{number}"})
            (bad if is_bad else good).append(number)
        told = killed.ask("POST", f"{table.path}/rows", rows, key=f"k{request}")
        assert told["accepted"] + told["quarantined"] == len(rows)
    kept = killed.ask("GET", f"{table.path}/quarantine?limit=1000")["rows"]
    numbers = {row["id"]: int(json.loads(row["bad"]["row"])["id"].removeprefix("bad ")) for row in kept}
    assert sorted(numbers.values()) == bad
    assert sorted(row["id"] for row in rows_of(client.table(table.path))) == good
    for chosen in (list(numbers)[::2], list(numbers)[1::2]):
        corrected = {row_id: json.dumps({"id": numbers[row_id], "name": "corrected"}) for row_id in chosen}
        left = set(chosen)
        while left:  # a call that ended before its answer may have written some of them
            waits = {r["id"] for r in killed.ask("GET", f"{table.path}/quarantine?limit=1000")["rows"]}
            left &= waits
            if left:
                killed.ask("POST", f"{table.path}/quarantine/redrive", {"corrected": {i: corrected[i] for i in left}})
    assert sorted(row["id"] for row in rows_of(client.table(table.path))) == sorted([*good, *bad])
    assert killed.kills >= 2, killed.kills
