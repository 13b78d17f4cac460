# SPDX-License-Identifier: Apache-2.0
"""Storage that hangs under one tenant's tables keeps nobody else from the catalog, and no thread of other calls."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import httpx
import pytest
from fastapi import FastAPI, Response
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table
from starlette.concurrency import run_in_threadpool

from lakeward.errors import TimedOut
from lakeward.protocol.auth import TokenSet
from lakeward.server.iceberg.catalog import iceberg_router
from lakeward.server.lakethreads import LakeThreads

SO_LONG_S = 60
"""Longer than any of it takes on a busy machine; a server that waits for hanging storage waits for ever."""


class HangingCatalog(SqlCatalog):
    """Tables of namespace `ann` do not load before `is_back` is set."""

    is_back: threading.Event

    def load_table(self, identifier: str | tuple[str, ...]) -> Table:
        if identifier[0] == "ann":
            self.is_back.wait(SO_LONG_S)
        return super().load_table(identifier)


def test_a_tenant_whose_storage_hangs_stops_nobody_else(tmp_path: Path) -> None:
    catalog = HangingCatalog("c", uri=f"sqlite:///{tmp_path}/c.db", warehouse=f"file://{tmp_path}/w")
    catalog.is_back = threading.Event()
    app = FastAPI()
    app.include_router(iceberg_router(catalog, TokenSet.parse(["ann:read:ann:ann.*", "ben:read:ben:ben.*"])))

    async def attack() -> int:
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url="http://here", timeout=SO_LONG_S) as client:
            hanging = [
                asyncio.create_task(
                    client.get(f"/iceberg/v1/namespaces/ann/tables/t{n}", headers={"Authorization": "Bearer ann"})
                )
                for n in range(60)
            ]
            await asyncio.sleep(0)
            other = client.get("/iceberg/v1/namespaces/ben/tables/t", headers={"Authorization": "Bearer ben"})
            answer = await asyncio.wait_for(other, SO_LONG_S / 2)
            await asyncio.wait_for(run_in_threadpool(int), SO_LONG_S / 2)
            catalog.is_back.set()
            assert {task.status_code for task in await asyncio.gather(*hanging)} == {404}
            return answer.status_code

    assert asyncio.run(attack()) == 404
    catalog.close()


def test_a_call_that_does_not_end_is_answered() -> None:
    is_back = threading.Event()

    def hang() -> Response:
        is_back.wait(SO_LONG_S)
        return Response()

    async def ask() -> None:
        with pytest.raises(TimedOut, match="nobody knows"):
            await LakeThreads(limit_s=0.01).run("ann", "GET /there", hang)
        is_back.set()

    asyncio.run(ask())
