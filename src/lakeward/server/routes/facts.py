# SPDX-License-Identifier: Apache-2.0
"""Facts for `lakeward doctor`."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import JSONResponse

from lakeward.model import TablePath
from lakeward.protocol.auth import Role
from lakeward.protocol.routes import FACTS, PROBE
from lakeward.server.admission.auth import caller, require
from lakeward.server.messages import answer
from lakeward.server.services import Services
from lakeward.server.show.facts import gather_facts, probe_lakes

MAX_PROBED = 100


def router(services: Services) -> APIRouter:
    router = APIRouter(tags=["server"])
    may_look = [require(services.tokens, Role.ADMIN)]

    @router.get(FACTS, dependencies=may_look)
    def facts(request: Request) -> JSONResponse:
        """The machine under the server, its logs and its doors, for `lakeward doctor`; of the logs those of tables that
        the token may use."""
        return answer(gather_facts(services, caller(request).may_use))

    @router.post(PROBE, dependencies=may_look)
    async def probe(request: Request, table: Annotated[str | None, Query()] = None) -> JSONResponse:
        """Writes a small file into the lake of each table that the token may use (a hundred at the most) and deletes
        it."""
        chosen = TablePath.parse(table) if table else None
        may_use = caller(request).may_use
        return answer(await services.lake_threads.ask(request, probe_lakes, services, chosen, MAX_PROBED, may_use))

    return router
