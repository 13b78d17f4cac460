# SPDX-License-Identifier: Apache-2.0
"""The Iceberg catalog's resources over a real catalog, without a server: quotas, and whose snapshots are whose."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from pyiceberg.catalog.sql import SqlCatalog

from lakeward.lake.iceberg.meta.connection import OWN_CALL
from lakeward.protocol.auth import TokenSet
from lakeward.server.iceberg.catalog import iceberg_router
from lakeward.spi.snapshotkeys import TABLE_ID_KEY

SCHEMA = {"type": "struct", "schema-id": 0, "fields": [{"id": 1, "name": "n", "required": False, "type": "long"}]}


class IcebergDoor:
    def __init__(self, catalog: SqlCatalog, max_tables: int = 100) -> None:
        self.app = FastAPI()
        self.foreign: list[str] = []
        self.read: list[str] = []
        told = lambda path: self.foreign.append(str(path))  # noqa: E731
        read = lambda path: self.read.append(str(path))  # noqa: E731
        self.app.include_router(iceberg_router(catalog, TokenSet.parse([]), max_tables, told, read))

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> httpx.Response:
        return asyncio.run(self._ask(method, path, body, headers))

    async def _ask(self, method: str, path: str, body: Any, headers: dict[str, str]) -> httpx.Response:
        transport = httpx.ASGITransport(app=self.app)
        async with httpx.AsyncClient(transport=transport, base_url="http://here") as client:
            return await client.request(method, f"/iceberg/v1{path}", json=body, headers=headers)

    def create(self, name: str, *, stage: bool = False) -> httpx.Response:
        body = {"name": name, "schema": SCHEMA, "stage-create": stage}
        return self.ask("POST", "/namespaces/s/tables", body)


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[SqlCatalog]:
    catalog = SqlCatalog("c", uri=f"sqlite:///{tmp_path}/c.db", warehouse=f"file://{tmp_path}/w")
    catalog.create_namespace("s")
    yield catalog
    catalog.close()


def test_loads_of_other_engines_are_told(catalog: SqlCatalog) -> None:
    door = IcebergDoor(catalog)
    door.create("a")
    door.ask("GET", "/namespaces/s/tables/a", **{OWN_CALL: "1"})
    assert door.read == []
    assert door.ask("GET", "/namespaces/s/tables/nope").status_code == 404
    door.ask("GET", "/namespaces/s/tables/a")
    assert door.read == ["s.a"]


def test_snapshots_of_others_are_told_and_ours_are_not(catalog: SqlCatalog) -> None:
    door = IcebergDoor(catalog)
    door.create("a")
    for number, keys in ((1, {}), (2, {TABLE_ID_KEY: "x"})):
        snapshot = {
            "snapshot-id": number,
            "sequence-number": number,
            "timestamp-ms": 2**42 + number,
            "manifest-list": "file:///nowhere",
            "summary": {"operation": "append", **keys},
            "schema-id": 0,
        }
        body = {"requirements": [], "updates": [{"action": "add-snapshot", "snapshot": snapshot}]}
        answer = door.ask("POST", "/namespaces/s/tables/a", body)
        assert answer.status_code == 200, answer.text
    assert door.foreign == ["s.a"]


def test_a_namespace_takes_so_many_tables(catalog: SqlCatalog) -> None:
    door = IcebergDoor(catalog, max_tables=1)
    first = door.create("a")
    assert first.status_code == 200
    body = {"requirements": [{"type": "assert-create"}], "updates": []}
    for refused in (
        door.create("b"),
        door.create("b", stage=True),
        door.ask("POST", "/namespaces/s/tables/b", body),
        door.ask(
            "POST", "/namespaces/s/register", {"name": "b", "metadata-location": first.json()["metadata-location"]}
        ),
    ):
        assert (refused.status_code, refused.json()["error"]["type"]) == (429, "QuotaExceeded"), refused.text
    assert door.ask("POST", "/namespaces/s/tables/a", {"requirements": [], "updates": []}).status_code == 200
