# SPDX-License-Identifier: Apache-2.0
"""Columns that are added with a default: older rows and rows that leave them out have it, wherever they are."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest

from lakeward.cli import app
from lakeward.client import Client
from lakeward.errors import InvalidAlter
from lakeward.read.duckdblake import connect_duckdb
from tests.spark.processes import Job, Server, tier_now

LOG, PK = "shop.calls", "shop.goods"
DEFAULTED = "ADD COLUMN state STRING NOT NULL DEFAULT 'new' AFTER id, ADD COLUMN rank INT DEFAULT 7"


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    server = Server(tmp_path / "server", {"datalake.format": "iceberg"})
    job = Job(server, "job", spark=False)
    with server.connect() as client:
        for name, key in ((LOG, ""), (PK, "id")):
            table = client.create_table(name, "id BIGINT NOT NULL, n INT", primary_key=key, freshness="1 h")
            put(table, [{"id": 1, "n": 1}])
            tier_now(client, table)
            put(table, [{"id": 2, "n": 2}])
        yield client
    job.kill()
    server.kill()


def put(table: Any, rows: Any) -> None:
    (table.upsert if table.info.is_pk else table.append)(rows)


def shown(client: Client, name: str, **options: Any) -> dict[int, tuple[Any, ...]]:
    rows = client.read(name, **options).to_table().to_pylist()
    return {r["id"]: (r["state"], r["rank"]) for r in rows}


def test_version_2_refuses_a_default_and_its_advice_helps(client: Client, capsys: pytest.CaptureFixture[str]) -> None:
    for name in (LOG, PK):
        arguments = ["table", "alter", name, "--add", "e string default 'x'", "--server", client.url]
        assert app.run(arguments) == 2
        refused = capsys.readouterr().err
        command = refused.split("`")[1]
        assert command == f"lakeward table alter {name} --set iceberg.format-version=3"
        assert client.show_table(name).schema.names == ("id", "n")
        assert app.run([*command.split()[1:], "--server", client.url]) == 0
        assert app.run(arguments) == 0
        assert {r["e"] for r in client.read(name).to_table().to_pylist()} == {"x"}
        assert app.run(["table", "show", name, "--server", client.url]) == 0
        assert "STRING DEFAULT 'x'" in capsys.readouterr().out


@pytest.mark.parametrize("name", [LOG, PK])
def test_older_rows_and_rows_without_it_have_the_default(client: Client, name: str) -> None:
    before = client.read(name, mode="lake").bound.snapshot_id
    client.alter_table(name, properties={"iceberg.format-version": "3"})
    old_writer, kind = client.table(name), "upsert" if name == PK else "append"
    assert app.run(["sql", f"ALTER TABLE {name} {DEFAULTED}", "--server", client.url]) == 0
    assert shown(client, name) == dict.fromkeys((1, 2), ("new", 7))
    assert shown(client, name, mode="lake") == {1: ("new", 7)}
    assert shown(client, name, as_of=before) == {1: ("new", 7)}
    table = client.table(name)
    put(old_writer, [{"id": 3, "n": 3}])
    put(table, [{"id": 4, "n": 4}, {"id": 5, "rank": None}])
    put(table, pa.table({"id": pa.array([6], pa.int64())}))
    url = f"{client.url}/api/v1/tables/{name}/rows?op={kind}"
    httpx.post(url, content=json.dumps([{"id": 7}]), headers={"Content-Type": "application/json"}).raise_for_status()
    expected = {**dict.fromkeys((1, 2, 3, 4, 6, 7), ("new", 7)), 5: ("new", None)}
    assert shown(client, name) == expected
    changes = client.changes(name, columns=["id", "state", "rank"]).to_table().to_pylist()
    assert {r["id"]: (r["state"], r["rank"]) for r in changes} == expected
    batch = next(iter(client.subscribe(name, idle_s=60)))
    assert set(batch.column("state").to_pylist()) == {"new"}
    tier_now(client, table)
    assert shown(client, name, mode="lake") == expected
    filtered = client.read(name, mode="lake", filter=[("rank", "=", 7)]).to_table()
    assert sorted(filtered.column("id").to_pylist()) == [1, 2, 3, 4, 6, 7]
    duckdb = connect_duckdb(client.url).sql(f"SELECT id, state, rank FROM lake.{name}").fetchall()
    assert {row[0]: row[1:] for row in duckdb} == expected
    from pyiceberg.catalog.rest import RestCatalog

    lake = RestCatalog("lake", uri=f"{client.url}/iceberg").load_table(name)
    rows_of_pyiceberg = lake.scan(selected_fields=("id", "state", "rank")).to_arrow().to_pylist()
    assert {r["id"]: (r["state"], r["rank"]) for r in rows_of_pyiceberg} == expected
    state = lake.schema().find_field("state")
    assert (state.initial_default, state.write_default, state.required) == ("new", "new", True)
    client.alter_table(name, rename={"state": "phase"}, widen={"rank": "BIGINT"})
    rows_now = client.read(name).to_table().to_pylist()
    assert {r["id"]: (r["phase"], r["rank"]) for r in rows_now} == expected


@pytest.mark.parametrize("format", ["delta", "hudi", "lance", "paimon"])
def test_formats_without_defaults_refuse_by_name_before_anything_changes(tmp_path: Path, format: str) -> None:
    server = Server(tmp_path / "server", {"datalake.format": format})
    with server.connect() as client:
        client.create_table(PK, "id BIGINT NOT NULL, n INT DEFAULT 3", primary_key="id")
        with pytest.raises(InvalidAlter, match=f"{format}.*without a default"):
            client.alter_table(PK, add_columns="e STRING DEFAULT 'x'")
        assert client.show_table(PK).schema.names == ("id", "n")
        client.table(PK).upsert([{"id": 1}])
        assert client.read(PK).to_table().to_pylist() == [{"id": 1, "n": 3}]
    server.kill()
