# SPDX-License-Identifier: Apache-2.0
"""Cuts, the live warehouse, the changelog in a lake, subscriptions and engines across changes of columns."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog import load_catalog

from lakeward.client import Client
from lakeward.model import CutState
from lakeward.read.duckdblake import connect_duckdb
from lakeward_testing.waiting import wait_until
from tests.spark.processes import Job, Server, tier_now

NAME = "shop.goods"
PROPERTIES = {"table.datalake.changelog": "default", "iceberg.format-version": "3"}
COLUMNS = "id BIGINT NOT NULL, name STRING, n INT, at ROW<city STRING, zip INT>, tags ARRAY<ROW<k STRING, v INT>>"
FIRST = {"id": 1, "name": "cup", "n": 5, "at": {"city": "Ulm", "zip": 1}, "tags": [{"k": "a", "v": 1}]}
SECOND = {"id": 2, "name": "jug", "n": 6, "at": {"city": "Bonn", "zip": None}, "tags": None}
NEW = {
    "id": 3,
    "title": "fork",
    "n": 2**40,
    "at": {"street": "x", "town": "Jena", "zip": 2**40},
    "tags": [{"v": 7, "note": "n"}],
    "state": "old",
}


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    server = Server(tmp_path / "server", {"datalake.format": "iceberg"})
    job = Job(server, "job", spark=False)
    with server.connect() as client:
        yield client
    job.kill()
    server.kill()


def change(client: Client) -> None:
    client.alter_table(
        NAME,
        rename={"name": "title", "at.city": "town"},
        widen={"n": "BIGINT", "at.zip": "BIGINT"},
        drop=["tags.element.k"],
        add_columns="state STRING NOT NULL DEFAULT 'new', at.street STRING, tags.element.note STRING",
        after={"at.street": ""},
    )


def today(row: dict[str, Any]) -> dict[str, Any]:
    """A row from before the change."""
    tags = row["tags"] and [{"v": t["v"], "note": None} for t in row["tags"]]
    at = {"street": None, "town": row["at"]["city"], "zip": row["at"]["zip"]}
    return {"id": row["id"], "title": row["name"], "n": row["n"], "at": at, "tags": tags, "state": "new"}


def by_id(rows: Any) -> list[dict[str, Any]]:
    return sorted(({k: v for k, v in r.items() if not k.startswith("__")} for r in rows), key=lambda r: r["id"])


def of_pyiceberg(table: Any) -> list[dict[str, Any]]:
    """PyIceberg shows a list that is NULL as an empty one where its fields differ from the file's."""
    return by_id({**row, "tags": row["tags"] or None} for row in table.scan().to_arrow().to_pylist())


def test_every_door_shows_todays_columns_or_those_of_that_moment(client: Client) -> None:
    table = client.create_table(NAME, COLUMNS, primary_key="id", freshness="1 h", properties=PROPERTIES)
    table.upsert([FIRST])
    tier_now(client, table)
    table.upsert([SECOND])
    client.create_cut("before", [NAME])
    tier_now(client, table)
    moment = datetime.now(UTC)
    change(client)
    client.table(NAME).upsert([NEW])
    old, everything = [today(FIRST), today(SECOND)], [today(FIRST), today(SECOND), NEW]
    catalog = load_catalog("lake", type="rest", uri=f"{client.url}/iceberg", warehouse="live")
    assert of_pyiceberg(catalog.load_table(NAME)) == everything
    assert by_id(client.read(NAME).to_table().to_pylist()) == everything
    client.create_cut("after", [NAME])
    tier_now(client, client.table(NAME))
    client.tier_now(NAME, limit_s=60)
    wait_until(lambda: {client.cut(n).state for n in ("before", "after")} == {CutState.READY}, what="two cuts")
    assert by_id(client.read(NAME, cut="before").to_table().to_pylist()) == old
    assert by_id(client.read(NAME, cut="after").to_table().to_pylist()) == everything
    past = client.read(NAME, cut="before", as_of_schema=True).to_table()
    assert by_id(past.to_pylist()) == [FIRST, SECOND]
    assert by_id(client.read(NAME, as_of=moment).to_table().to_pylist()) == old
    assert by_id(client.read(NAME, as_of=moment, as_of_schema=True).to_table().to_pylist()) == [FIRST, SECOND]
    assert by_id(client.changes(NAME).to_table().to_pylist()) == everything
    assert by_id(client.table(NAME).subscribe(idle_s=1).rows()) == everything
    for door in ("", "__changelog"):
        lake = load_catalog("lake", type="rest", uri=f"{client.url}/iceberg").load_table(f"{NAME}{door}")
        assert of_pyiceberg(lake) == everything
        rows = connect_duckdb(client.url).sql(f"SELECT * FROM lake.{NAME}{door}").to_arrow_table().to_pylist()
        assert by_id(rows) == everything


def test_fields_of_old_writers_land_where_they_belong(client: Client) -> None:
    table = client.create_table(NAME, COLUMNS, primary_key="id", freshness="1 h", properties=PROPERTIES)
    change(client)
    table.upsert([FIRST])
    table.upsert([{"id": 1, "at": {"city": "Jena", "zip": 3}}])
    log = client.create_table("shop.calls", COLUMNS, freshness="1 h", properties={"iceberg.format-version": "3"})
    client.alter_table("shop.calls", rename={"at.city": "town"}, drop="tags.element.k")
    log.append([FIRST])
    tier_now(client, client.table(NAME))
    tier_now(client, client.table("shop.calls"))
    for mode in ("union", "lake"):
        (row,) = client.read(NAME, mode=mode).to_table().to_pylist()
        assert row == {**today(FIRST), "at": {"street": None, "town": "Jena", "zip": 3}}
        (called,) = client.read("shop.calls", mode=mode).to_table().to_pylist()
        assert (called["at"], called["tags"]) == ({"town": "Ulm", "zip": 1}, [{"v": 1}])
