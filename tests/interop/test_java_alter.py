# SPDX-License-Identifier: Apache-2.0
"""Java Iceberg alters a table of ours between rounds through the catalog, and reads files from before and after."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog import load_catalog

from lakeward.client import Client
from lakeward.read.duckdblake import connect_duckdb
from tests.interop.javaiceberg import JavaIceberg, start_java
from tests.spark.processes import Job, Server, tier_now

pytestmark = pytest.mark.soak

NAME = "shop.goods"
COLUMNS = (
    "id BIGINT NOT NULL, name STRING, n INT, r FLOAT, at ROW<city STRING, zip INT>, tags ARRAY<ROW<k STRING, v INT>>"
)
OLD = {"name": "cup", "n": 5, "r": 0.5, "at": {"city": "Ulm", "zip": 1}, "tags": [{"k": "a", "v": 1}]}


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    server = Server(tmp_path / "server", {"datalake.format": "iceberg"})
    job = Job(server, "job", spark=False)
    with server.connect() as client:
        yield client
    job.kill()
    server.kill()


@pytest.fixture
def java(client: Client) -> Iterator[JavaIceberg]:
    with start_java(f"{client.url}/iceberg") as started:
        yield started


def plain(value: Any) -> Any:
    """Without nulls, which JSON of Spark leaves out."""
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items() if v is not None and not k.startswith("__")}
    return [plain(v) for v in value] if isinstance(value, list) else value


def shown(rows: Any) -> list[Any]:
    return sorted((plain(r) for r in rows), key=lambda r: r["id"])


def check(client: Client, java: JavaIceberg, expected: list[dict[str, Any]]) -> None:
    """Every reader shows old and new files alike."""
    tier_now(client, client.table(NAME))
    assert shown(java.sql(f"SELECT * FROM lake.{NAME}")) == expected
    for mode in ("union", "lake"):
        assert shown(client.read(NAME, mode=mode).to_table().to_pylist()) == expected
    assert shown(connect_duckdb(client.url).sql(f"SELECT * FROM lake.{NAME}").to_arrow_table().to_pylist()) == expected
    lake = load_catalog("lake", type="rest", uri=f"{client.url}/iceberg").load_table(NAME)
    seen = shown(lake.scan().to_arrow().to_pylist())
    # PyIceberg shows a list that is NULL as empty where its fields differ from the file's.
    assert [{k: v for k, v in row.items() if v != []} for row in seen] == expected


@pytest.mark.parametrize("key", ["", "id"])
def test_java_alters_between_rounds_and_reads_all_files(client: Client, java: JavaIceberg, key: str) -> None:
    properties = {"iceberg.format-version": "3"}
    table = client.create_table(NAME, COLUMNS, primary_key=key, freshness="1 h", properties=properties)
    put = table.upsert if key else table.append
    put([{"id": 1, **OLD}])
    tier_now(client, table)
    put([{"id": 2, **OLD}])
    for change in (
        "ADD COLUMN note STRING AFTER id",
        "RENAME COLUMN name TO title",
        "ALTER COLUMN n TYPE BIGINT",
        "DROP COLUMN r",
    ):
        java.sql(f"ALTER TABLE lake.{NAME} {change}")
    assert client.show_table(NAME).schema.names == ("id", "note", "title", "n", "at", "tags")
    put([{"id": 3, **OLD}])
    now = client.table(NAME)
    (now.upsert if key else now.append)([{"id": 4, "note": "x", "title": "jug", "n": 2**40}])
    old = {"title": "cup", "n": 5, "at": OLD["at"], "tags": OLD["tags"]}
    expected = [*({"id": i, **old} for i in (1, 2, 3)), {"id": 4, "note": "x", "title": "jug", "n": 2**40}]
    check(client, java, expected)
    with pytest.raises(AssertionError, match="only whole columns can be followed"):
        java.sql(f"ALTER TABLE lake.{NAME} ADD COLUMN at.street STRING")
    client.alter_table(
        NAME,
        rename={"at.city": "town"},
        widen={"at.zip": "BIGINT"},
        drop="tags.element.k",
        add_columns="state STRING NOT NULL DEFAULT 'new', rank INT DEFAULT 7, tags.element.note STRING",
    )
    new = client.table(NAME)
    (new.upsert if key else new.append)([{"id": 5, "tags": [{"v": 2, "note": "n"}], "state": "old", "rank": None}])
    fields = {"at": {"town": "Ulm", "zip": 1}, "tags": [{"v": 1}]}
    for row in expected:
        row |= {"state": "new", "rank": 7, **(fields if "at" in row else {})}
    expected.append({"id": 5, "tags": [{"v": 2, "note": "n"}], "state": "old"})
    check(client, java, expected)
