# SPDX-License-Identifier: Apache-2.0
"""Databases: the lake of each one's new tables, and who may use it."""

from __future__ import annotations

from dataclasses import replace

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse

from lakeward.protocol.auth import GRANTS, Role, Token
from lakeward.protocol.routes import DATABASE, DATABASES
from lakeward.protocol.tables import AlterDatabase, DatabaseStatus
from lakeward.server.admission.auth import caller, require
from lakeward.server.lakerights import check_lakes
from lakeward.server.messages import answer, described, read_message
from lakeward.server.services import Services


def router(services: Services) -> APIRouter:
    router, databases = APIRouter(tags=["databases"]), services.coordinator.databases
    may_read, may_change = [require(services.tokens, Role.READ)], [require(services.tokens, Role.ADMIN)]

    def with_tokens(status: DatabaseStatus, asking: Token) -> DatabaseStatus:
        """To an administrator of all of it."""
        if asking.tables or Role.ADMIN not in GRANTS[asking.role]:
            return status
        return replace(status, tokens=tuple(t.name for t in services.tokens.known() if t.may_see(status.name)))

    @router.get(DATABASES, dependencies=may_read)
    def list_databases(request: Request) -> JSONResponse:
        """Every database that the token may see something of."""
        asking = caller(request)
        listed = [status for status in databases.listed() if asking.may_see(status.name)]
        return answer({"databases": [with_tokens(status, asking) for status in listed]})

    @router.patch(DATABASE, dependencies=may_change, openapi_extra=described(AlterDatabase))
    async def alter_database(database: str, request: Request) -> JSONResponse:
        """Names the lake that its new tables are made in."""
        message, asking = await read_message(request, AlterDatabase, exact=True), caller(request)
        asking.check_database(database, f"a change of database {database}")
        check_lakes(services, asking, database, [] if message.lake is None else [message.lake])
        return answer(with_tokens(databases.alter(database, message.lake), asking))

    return router
