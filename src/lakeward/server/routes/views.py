# SPDX-License-Identifier: Apache-2.0
"""Views for people: status, jobs, rounds, and the state of one table. Of a server, or of a cluster."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import JSONResponse

from lakeward.model import TablePath, WorkKind
from lakeward.protocol import routes
from lakeward.protocol.auth import Role
from lakeward.protocol.tables import TableAnswer
from lakeward.server.admission.auth import caller, require
from lakeward.server.messages import Side, answer
from lakeward.server.services import PageServices
from lakeward.server.show.shown import limit_status

Limit = Annotated[int, Query(ge=1, le=10_000)]
MoreLimit = Annotated[int, Query(ge=1, le=100_000)]


def router(services: PageServices) -> APIRouter:
    router, source = APIRouter(tags=["views"], dependencies=[require(services.tokens, Role.READ)]), services.source

    @router.get(routes.STATUS)
    def status(request: Request) -> JSONResponse:
        """Tables, jobs, lakes and figures in one answer; of the tables those that the token may use."""
        return answer(limit_status(source.status(), caller(request)))

    @router.get(routes.JOBS, dependencies=[require(services.tokens, Role.READ, all_tables=True)])
    def list_jobs() -> JSONResponse:
        """Jobs that registered, and those that are expected and did not."""
        return answer({"jobs": source.jobs()})

    @router.get(routes.ROUNDS)
    def rounds(
        request: Request, side: Side, table: str | None = None, kind: str | None = None, limit: Limit = 100
    ) -> JSONResponse:
        """Rounds that ended, newest first, each with its phases; of every kind of work unless one is named."""
        path, work = None if table is None else TablePath.parse(table), None if kind is None else WorkKind(kind)
        rounds = source.rounds(path, limit, side, work)
        return answer({"rounds": [r for r in rounds if caller(request).may_use(r.path)]})

    @router.get(routes.TABLE)
    def show_table(table: str) -> JSONResponse:
        """One table: schema versions, keys, properties."""
        return answer(TableAnswer(table=source.load_table(TablePath.parse(table))))

    @router.get(routes.TABLE_STATUS)
    def table_status(table: str, side: Side) -> JSONResponse:
        """One table's state, lag, deadline and lake totals."""
        return answer(source.table_status(TablePath.parse(table), side))

    @router.get(routes.EXPLAIN)
    def explain(table: str, side: Side) -> JSONResponse:
        """Explains the table's present lag, in numbers and as text."""
        return answer(source.explain(TablePath.parse(table), side))

    @router.get(routes.MAINTAIN)
    def lake_files(table: str, side: Side) -> JSONResponse:
        """The effect of a compaction on the table's lake files, and their sizes and ages before and after it."""
        return answer(source.lake_files(TablePath.parse(table), side))

    @router.get(routes.LEDGER)
    def ledger(table: str, side: Side, limit: MoreLimit = 1_000, before: int | None = None) -> JSONResponse:
        """Which offset range of which bucket each lake snapshot added; the newest `limit` entries below `before`."""
        return answer(source.ledger(TablePath.parse(table), limit, before, side))

    return router
