# SPDX-License-Identifier: Apache-2.0
"""Reads of a past moment with the columns of that moment: their names, types and order, dropped ones included."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from lakeward.cli import app
from lakeward.client import Client
from lakeward.errors import InvalidRequest
from lakeward.protocol.routes import SQL
from tests.spark.processes import Job, Server, tier_now

NAME = "shop.goods"


@pytest.fixture(params=["iceberg", "delta", "lance", "paimon"])
def client(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Client]:
    server = Server(tmp_path / "server", {"datalake.format": request.param})
    job = Job(server, "job", spark=False)
    with server.connect() as client:
        yield client
    job.kill()
    server.kill()


def now_after(client: Client) -> str:
    """A moment of the server's clock that is after everything before, and before everything behind it."""
    at = datetime.now(UTC)
    while datetime.now(UTC) == at or client.server.info() is None:
        time.sleep(0)
    return datetime.now(UTC).isoformat()


@pytest.mark.parametrize("key", ["", "id"])
def test_a_past_moment_has_the_columns_of_that_moment(
    client: Client, key: str, capsys: pytest.CaptureFixture[str]
) -> None:
    table = client.create_table(NAME, "id BIGINT NOT NULL, name STRING, n INT", primary_key=key, freshness="1 h")
    (table.upsert if key else table.append)([{"id": 1, "name": "cup", "n": 5}])
    tier_now(client, table)
    first, at = client.read(NAME, mode="lake").bound.snapshot_id, now_after(client)
    client.alter_table(NAME, rename={"name": "title"}, drop="n", after={"title": ""})
    table = client.alter_table(NAME, add_columns="n STRING")
    (table.upsert if key else table.append)([{"id": 2, "title": "plate", "n": "new"}])
    tier_now(client, table)
    then, today = [{"id": 1, "name": "cup", "n": 5}], [{"title": "cup", "id": 1, "n": None}]
    for as_of in (first, at):
        assert client.read(NAME, as_of=as_of).to_table().to_pylist() == today
        past = client.read(NAME, as_of=as_of, as_of_schema=True).to_table()
        assert past.to_pylist() == then
        assert str(past.schema.field("n").type) == "int32"
        named = client.read(NAME, as_of=as_of, as_of_schema=True, columns=["name"], filter=[("n", "=", 5)])
        assert named.to_table().to_pylist() == [{"name": "cup"}]
        with pytest.raises(InvalidRequest, match="there are id, name, n"):
            client.read(NAME, as_of=as_of, as_of_schema=True, columns=["title"])
    query = f"SELECT name, n + 1 AS m FROM {NAME}"
    options = ["--as-of", str(first), "--as-of-schema", "--server", client.url, "--json"]
    assert app.run(["sql", query, *options]) == 0
    assert json.loads(capsys.readouterr().out) == {"name": "cup", "m": 6}
    assert app.run(["read", NAME, *options]) == 0
    assert json.loads(capsys.readouterr().out) == then[0]
    answer = client.server.ask("POST", SQL, {"query": query, "as_of": str(first), "as_of_schema": True})
    assert answer["rows"] == [["cup", "6"]]
    with pytest.raises(InvalidRequest, match="name as_of or cut"):
        client.read(NAME, as_of_schema=True)
