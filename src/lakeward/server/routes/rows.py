# SPDX-License-Identifier: Apache-2.0
"""Rows for the pages: a sample of one table, and SQL over tables, read-only and within limits."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import JSONResponse

from lakeward.protocol.auth import Role
from lakeward.protocol.operate import SqlQuery
from lakeward.protocol.routes import SAMPLE, SQL
from lakeward.read.arrow import request_of
from lakeward.server.admission.auth import caller, require
from lakeward.server.messages import answer, described, read_message
from lakeward.server.query.atonce import AtOnce
from lakeward.server.query.localread import MOST_SAMPLED, sample
from lakeward.server.query.sql import SqlDoor
from lakeward.server.services import Services

MOST_OF_TOKEN, MOST_AT_ONCE = 4, 16


def router(services: Services) -> APIRouter:
    router, door = APIRouter(tags=["reads"]), SqlDoor(services)
    may_read = [require(services.tokens, Role.READ)]
    sampling = AtOnce("samples under way", of_token=MOST_OF_TOKEN, in_all=MOST_AT_ONCE)

    @router.get(SAMPLE, dependencies=may_read)
    def sample_table(
        request: Request,
        table: str,
        mode: Annotated[str, Query(max_length=10)] = "union",
        as_of: Annotated[str | None, Query(max_length=40)] = None,
        limit: Annotated[int, Query(ge=1, le=MOST_SAMPLED)] = 20,
    ) -> JSONResponse:
        """Some rows of a table as texts: of lake and hot store together, or of one of them. For people to look at."""
        with sampling.counted(caller(request).name):
            return answer(sample(services, request_of(table, mode=mode, as_of=as_of), limit))

    @router.post(SQL, dependencies=may_read, openapi_extra=described(SqlQuery))
    async def sql(request: Request) -> JSONResponse:
        """One SELECT over tables that the token may read, within limits of rows, time and memory."""
        message = await read_message(request, SqlQuery, exact=True)
        return answer(await run_in_threadpool(door.answer, message, caller(request)))

    return router
