# SPDX-License-Identifier: Apache-2.0
"""The server's lakes: which there are, and whether one answers."""

from __future__ import annotations

from dataclasses import replace

from fastapi import APIRouter
from fastapi.responses import JSONResponse

from lakeward.errors import LakeNotFound
from lakeward.protocol.auth import Role
from lakeward.protocol.lakes import LakeStatus
from lakeward.protocol.routes import LAKE_CHECK, LAKES
from lakeward.server.door.auth import require
from lakeward.server.messages import answer
from lakeward.server.services import Services


def router(services: Services) -> APIRouter:
    router, lakes = APIRouter(tags=["lakes"]), services.coordinator.lakes
    may_read, may_check = [require(services.tokens, Role.READ)], [require(services.tokens, Role.ADMIN)]

    def find(name: str) -> LakeStatus:
        listed = lakes.listed()
        for lake in listed:
            if lake.name == name:
                return lake
        raise LakeNotFound(lake=name, lakes=", ".join(known.name for known in listed) or "none")

    @router.get(LAKES, dependencies=may_read)
    def list_lakes() -> JSONResponse:
        """Every lake that is configured, the one of tables that name none first."""
        return answer({"lakes": lakes.listed()})

    @router.post(LAKE_CHECK, dependencies=may_check)
    def check_lake(lake: str) -> JSONResponse:
        """Asks the lake's catalog now, and says what it answered."""
        find(lake)
        started = services.clock.monotonic()
        lakes.ask(lake)
        return answer(replace(find(lake), took_ms=int(1_000 * (services.clock.monotonic() - started))))

    return router
