# SPDX-License-Identifier: Apache-2.0
"""The server's lakes: which there are, and whether one answers."""

from __future__ import annotations

from dataclasses import replace

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse

from lakeward.errors import LakeNotFound
from lakeward.protocol.auth import Role, Token
from lakeward.protocol.routes import LAKE_CHECK, LAKES
from lakeward.protocol.tables import LakeStatus
from lakeward.server.admission.auth import caller, require
from lakeward.server.lakerights import seen_lakes
from lakeward.server.messages import answer
from lakeward.server.services import Services


def router(services: Services) -> APIRouter:
    router, lakes = APIRouter(tags=["lakes"]), services.coordinator.lakes
    may_read, may_check = [require(services.tokens, Role.READ)], [require(services.tokens, Role.ADMIN)]

    def listed_for(token: Token) -> list[LakeStatus]:
        seen = seen_lakes(services, token)
        listed = lakes.listed(lambda path: token.may_use(str(path)))
        return [lake for lake in listed if lake.name in seen]

    def find(name: str, token: Token) -> LakeStatus:
        listed = listed_for(token)
        for lake in listed:
            if lake.name == name:
                return lake
        raise LakeNotFound(lake=name, lakes=", ".join(known.name for known in listed) or "none")

    @router.get(LAKES, dependencies=may_read)
    def list_lakes(request: Request) -> JSONResponse:
        """Every lake that is configured and that tables of the token may be in, the one of tables that name none
        first."""
        return answer({"lakes": listed_for(caller(request))})

    @router.post(LAKE_CHECK, dependencies=may_check)
    async def check_lake(request: Request, lake: str) -> JSONResponse:
        """Asks the lake's catalog now, and says what it answered."""
        find(lake, caller(request))
        started = services.clock.monotonic()
        await services.lake_threads.ask(request, lakes.ask, lake)
        return answer(replace(find(lake, caller(request)), took_ms=int(1_000 * (services.clock.monotonic() - started))))

    return router
