# SPDX-License-Identifier: Apache-2.0
"""Data of pages beside a table's tiering: properties with their source, the hot side, maintenance debt, cost."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import JSONResponse

from lakeward.coordinator.state.storedrecords import COST_DAYS
from lakeward.hot.embedded.hottable import writer_of
from lakeward.model import Bucket, TablePath
from lakeward.protocol.auth import Role
from lakeward.protocol.routes import COST, HOT, MAINTENANCE, PROPERTIES, WRITER
from lakeward.server.admission.auth import caller, require
from lakeward.server.messages import answer
from lakeward.server.services import Services
from lakeward.server.show import tablepage


def router(services: Services) -> APIRouter:
    router = APIRouter(tags=["tables"])
    may_read = [require(services.tokens, Role.READ)]

    @router.get(PROPERTIES, dependencies=may_read)
    def properties(table: str) -> JSONResponse:
        """Every property of a table: its value, and whether the table, the server or the default says so."""
        return answer({"properties": tablepage.properties(services, TablePath.parse(table))})

    @router.get(HOT, dependencies=may_read)
    def hot(table: str) -> JSONResponse:
        """The table's logs, and who follows them how far behind."""
        return answer(tablepage.hot_side(services, TablePath.parse(table)))

    @router.get(WRITER, dependencies=may_read)
    def writer(
        table: str,
        bucket: Annotated[int, Query(ge=0)],
        offset: Annotated[int, Query(ge=0)],
        partition: Annotated[str, Query(max_length=2_000)] = "",
    ) -> JSONResponse:
        """Which writer stored a record of the log, and in which of its batches; null where it gave no id."""
        info = services.store.load_table(TablePath.parse(table))
        by = writer_of(services.store.hot_table(info), Bucket(partition, bucket), offset)
        return answer({"writer": by and str(by.writer_id), "batch": by and by.sequence})

    @router.get(MAINTENANCE, dependencies=may_read)
    def maintenance(request: Request) -> JSONResponse:
        """Compaction debt, table by table, most first."""
        return answer({"tables": tablepage.debts(services, caller(request).may_use)})

    @router.get(COST, dependencies=may_read)
    def cost(request: Request, days: Annotated[int, Query(ge=1, le=COST_DAYS)] = 14) -> JSONResponse:
        """Processor time, bytes written and bytes rewritten per table and day (UTC), of rounds that ended well."""
        return answer({"days": tablepage.costs(services, days, caller(request).may_use)})

    return router
