# SPDX-License-Identifier: Apache-2.0
"""Rows over HTTP: rows into a table, a sample of a table, and SQL over tables."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import JSONResponse

from lakeward.model import TablePath
from lakeward.protocol.alterstatement import is_alter
from lakeward.protocol.auth import Role
from lakeward.protocol.operate import SqlQuery
from lakeward.protocol.routes import SAMPLE, SQL, TABLE_ROWS
from lakeward.read.arrow import request_of
from lakeward.server.admission.auth import caller, require
from lakeward.server.ingest.bodies import RowFormat, find_format
from lakeward.server.ingest.fitting import RowOp
from lakeward.server.ingest.rowput import RowOutcomes, RowRequest
from lakeward.server.lakethreads import AtOnce
from lakeward.server.messages import answer, described, read_message
from lakeward.server.query.localread import MOST_SAMPLED, sample
from lakeward.server.query.sql import SqlDoor, run_alter
from lakeward.server.services import Services

MOST_OF_TOKEN, MOST_AT_ONCE = 4, 16

SOME_ROWS_REFUSED = 207
_EXAMPLE_ROWS = [{"id": 1, "name": "anvil"}, {"id": 2, "name": "rope"}]
_EXAMPLE_ANSWER = {
    "table": "shop.items",
    "accepted": 1,
    "refused": 1,
    "duplicate": False,
    "token": "eyJ0YWJsZV9pZCI6...",
    "rows": [
        {"row": 0, "bucket": "0", "offset": 17},
        {"row": 1, "error": {"column": "id", "reason": "'x' is no BIGINT NOT NULL"}},
    ],
}
_DESCRIPTION = {
    "requestBody": {
        "required": True,
        "description": "Rows: an object or an array of objects, one object a line, CSV with a header, or an "
        "Arrow stream. `Content-Encoding` may be gzip or zstd.",
        "content": {
            RowFormat.JSON: {"schema": {"title": "rows"}, "example": _EXAMPLE_ROWS},
            RowFormat.LINES: {"schema": {"type": "string"}, "example": '{"id": 1, "name": "anvil"}\n'},
            RowFormat.CSV: {"schema": {"type": "string"}, "example": "id,name\n1,anvil\n"},
            RowFormat.ARROW: {"schema": {"type": "string", "format": "binary"}},
        },
    },
    "responses": {
        "200": {
            "description": "Every row is stored.",
            "content": {"application/json": {"schema": {"type": "object"}, "example": _EXAMPLE_ANSWER}},
        },
        "207": {"description": "Some rows are stored; `rows` says which are not, and why."},
        "429": {"description": "The server is busy; send the request again after `Retry-After` seconds."},
    },
}


class OnError(StrEnum):
    REFUSE = "refuse"
    SKIP = "skip"


class Outcomes(StrEnum):
    ALL = "all"
    ERRORS = "errors"


def router(services: Services) -> APIRouter:
    router, door = APIRouter(tags=["reads"]), SqlDoor(services)
    may_read = [require(services.tokens, Role.READ)]
    sampling = AtOnce("samples under way", of_token=MOST_OF_TOKEN, in_all=MOST_AT_ONCE)

    @router.post(TABLE_ROWS, dependencies=[require(services.tokens, Role.WRITE)], openapi_extra=_DESCRIPTION)
    async def put_rows(
        request: Request,
        table: str,
        op: RowOp | None = None,
        on_error: Annotated[OnError, Query(alias="on-error")] = OnError.REFUSE,
        outcomes: Outcomes = Outcomes.ALL,
        key: Annotated[str | None, Header(alias="Idempotency-Key", min_length=1, max_length=200)] = None,
    ) -> JSONResponse:
        """Stores rows and answers once they are durable. `op`: `append` (log tables), `upsert`, `replace` or `delete`
        (tables with a primary key). One bad row refuses the request, or with `on-error=skip` itself alone; a table
        whose contract is `quarantine` keeps it aside. A retry with the same `Idempotency-Key` within ten minutes stores
        nothing twice."""
        headers = request.headers
        rows = RowRequest(
            path=TablePath.parse(table),
            body=await request.body(),
            format=find_format(headers.get("content-type", RowFormat.JSON)),
            encoding=headers.get("content-encoding", ""),
            op=op,
            each=on_error is OnError.SKIP,
            key=key,
        )
        stored = await run_in_threadpool(services.intake.put, rows, caller(request))
        return JSONResponse(_spelled(stored, outcomes), SOME_ROWS_REFUSED if stored.problems else 200)

    @router.get(SAMPLE, dependencies=may_read)
    async def sample_table(
        request: Request,
        table: str,
        mode: Annotated[str, Query(max_length=10)] = "union",
        as_of: Annotated[str | None, Query(max_length=40)] = None,
        as_of_schema: bool = False,
        limit: Annotated[int, Query(ge=1, le=MOST_SAMPLED)] = 20,
    ) -> JSONResponse:
        """Some rows of a table as texts: of lake and hot store together, or of one of them. For people to look at."""
        with sampling.counted(caller(request).name):
            asked = request_of(table, mode=mode, as_of=as_of, as_of_schema=as_of_schema)
            return answer(await services.lake_threads.ask(request, sample, services, asked, limit))

    @router.post(SQL, dependencies=may_read, openapi_extra=described(SqlQuery))
    async def sql(request: Request) -> JSONResponse:
        """One SELECT over tables that the token may read, within limits of rows, time and memory; or an ALTER TABLE, as
        the table's PATCH, which answers its plan. EXPLAIN ALTER TABLE answers the plan alone."""
        message = await read_message(request, SqlQuery, exact=True)
        if is_alter(message.query):
            return answer(await services.lake_threads.ask(request, run_alter, services, message, caller(request)))
        return answer(await services.lake_threads.ask(request, door.answer, message, caller(request)))

    return router


def _spelled(stored: RowOutcomes, outcomes: Outcomes) -> dict[str, Any]:
    refused: dict[int, dict[str, Any]] = {
        p.row: {"row": p.row, "error": {"column": p.column, "reason": p.reason}} for p in reversed(stored.problems)
    }
    for place, row_id in stored.quarantined.items():
        refused[place]["quarantine_id"] = row_id
    rows = [*refused.values()]
    if outcomes is Outcomes.ALL:
        rows += [{"row": row, "bucket": str(bucket), "offset": offset} for row, bucket, offset in stored.accepted]
    return {
        "table": str(stored.table.path),
        "accepted": len(stored.accepted),
        "refused": len(refused) - len(stored.quarantined),
        "quarantined": len(stored.quarantined),
        "added_columns": list(stored.added),
        "duplicate": stored.is_duplicate,
        "token": stored.token,
        "rows": sorted(rows, key=lambda row: row["row"]),
    }
