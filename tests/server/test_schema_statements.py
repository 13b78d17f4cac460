# SPDX-License-Identifier: Apache-2.0
"""ALTER TABLE as a statement, in the shell and over HTTP, on a Lance lake; columns that another engine adds there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from pypaimon import CatalogFactory
from pypaimon.schema.data_types import AtomicType
from pypaimon.schema.schema_change import SchemaChange

from lakeward.cli import app
from lakeward.client import Client
from lakeward.errors import InvalidAlter, InvalidRequest
from lakeward.protocol.routes import SQL
from tests.spark.processes import Job, Server, tier_now

NAME = "shop.goods"


@pytest.fixture
def client(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Client]:
    server = Server(tmp_path / "server", {"datalake.format": getattr(request, "param", "lance")})
    job = Job(server, "job", spark=False)
    with server.connect() as client:
        client.create_table(NAME, "id BIGINT NOT NULL, name STRING, n INT", primary_key="id", freshness="1 h")
        put(client, {"id": 1, "name": "cup", "n": 5})
        yield client
    job.kill()
    server.kill()


def put(client: Client, row: dict[str, object]) -> None:
    table = client.table(NAME)
    table.upsert([row])
    tier_now(client, table)


def rows(client: Client, mode: str = "union") -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = client.read(NAME, mode=mode).to_table().to_pylist()
    return sorted(found, key=lambda r: int(next(iter(r.values()))))


def ask(client: Client, query: str) -> list[str]:
    return [row[0] for row in client.server.ask("POST", SQL, {"query": query})["rows"]]


def test_a_statement_prints_its_plan_and_changes_the_columns(
    client: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    statement = (
        f"ALTER TABLE {NAME} RENAME COLUMN name TO title, ADD COLUMN name STRING AFTER id, DROP COLUMN n, ADD stock INT"
    )
    assert ask(client, f"EXPLAIN {statement}")[-1] == f"nothing was changed; {NAME} would have schema 2"
    assert client.show_table(NAME).schema.schema_id == 1
    assert app.run(["sql", statement, "--server", client.url]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[-1] == f"altered {NAME}: schema 2"
    assert said[0].startswith("lake default: drop column n, add between others column name STRING, rename column name")
    put(client, {"id": 2, "name": "new", "title": "plate", "stock": 3})
    old, new = (
        {"id": 1, "name": None, "title": "cup", "stock": None},
        {"id": 2, "name": "new", "title": "plate", "stock": 3},
    )
    assert rows(client) == rows(client, "lake") == [old, new]
    with pytest.raises(InvalidAlter, match="lance"):
        ask(client, f"ALTER TABLE {NAME} ADD COLUMN c INT, ALTER COLUMN stock TYPE BIGINT")
    with pytest.raises(InvalidRequest, match="ADD COLUMN"):
        ask(client, f"ALTER TABLE {NAME} FROB")
    assert client.show_table(NAME).schema.schema_id == 2


def add_by_lance(folder: Path) -> None:
    (table,) = folder.rglob("goods.lance")
    lance.dataset(str(table)).add_columns(pa.schema([pa.field("stars", pa.int64())]))


def add_by_paimon(folder: Path) -> None:
    (table,) = folder.rglob("shop.db/goods")
    catalog = CatalogFactory.create({"warehouse": str(table.parent.parent)})
    catalog.alter_table("shop.goods", [SchemaChange.add_column("stars", AtomicType("BIGINT"))], False)


@pytest.mark.parametrize(("client", "add"), [("lance", add_by_lance), ("paimon", add_by_paimon)], indirect=["client"])
def test_a_column_of_another_engine_is_shown_and_taken_over(
    client: Client, add: Callable[[Path], None], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    add(tmp_path / "server")
    put(client, {"id": 2, "name": "plate", "n": 6})
    assert app.run(["table", "reconcile-schema", NAME, "--server", client.url]) == 0
    assert "column stars BIGINT: another engine added it" in capsys.readouterr().out
    planned = client.reconcile_schema(NAME, take_over=True, dry_run=True)
    assert planned == ("column stars BIGINT: taken over",)
    assert client.show_table(NAME).schema.names == ("id", "name", "n")
    assert client.reconcile_schema(NAME, take_over=True) == planned
    put(client, {"id": 3, "name": "fork", "n": 7, "stars": 5})
    assert [r["stars"] for r in rows(client, "lake")] == [None, None, 5]
    assert client.reconcile_schema(NAME, take_over=True) == ()
