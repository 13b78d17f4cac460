# SPDX-License-Identifier: Apache-2.0
"""Rows that a table did not take: kept for clients that read files themselves, listed, written again."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Annotated

import pyarrow as pa
from fastapi import APIRouter, Query, Request
from fastapi.responses import JSONResponse

from lakeward.errors import InvalidRequest
from lakeward.model import Column, TablePath
from lakeward.protocol.auth import Role, Token
from lakeward.protocol.quarantine import EvolveTable, QuarantineRows, QuarantineStored, RedriveRows
from lakeward.protocol.routes import EVOLVE, QUARANTINE, REDRIVE
from lakeward.protocol.tables import TableAnswer
from lakeward.read.arrow import request_of
from lakeward.server.admission.auth import caller, require
from lakeward.server.contract.quarantinetable import quarantine_path
from lakeward.server.contract.redrive import Redriver
from lakeward.server.messages import answer, described, read_message
from lakeward.server.query.localread import open_here
from lakeward.server.services import Services

MOST_LISTED = 10_000
MOST_KEPT = 10_000
"""Rows of one call."""


def router(services: Services) -> APIRouter:
    router = APIRouter(tags=["reads"])
    may_read, may_write = [require(services.tokens, Role.READ)], [require(services.tokens, Role.WRITE)]

    def read(path: TablePath, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        with open_here(services, request_of(str(path), columns=names)) as result:
            yield from result

    store = partial(_store_rows, services)
    redriver = Redriver(services.quarantine, read) if services.quarantine is not None else None

    @router.get(QUARANTINE, dependencies=may_read)
    async def list_quarantine(
        request: Request, table: str, limit: Annotated[int, Query(ge=0, le=MOST_LISTED)] = 100
    ) -> JSONResponse:
        """Rows that the table did not take and that wait to be corrected, the oldest first."""
        assert redriver is not None
        return answer(await services.lake_threads.ask(request, redriver.list_rows, TablePath.parse(table), limit))

    @router.post(QUARANTINE, dependencies=may_write, openapi_extra=described(QuarantineRows))
    async def keep_rows(request: Request, table: str) -> JSONResponse:
        """Stores rows of a file that do not fit, for clients that read files themselves."""
        message = await read_message(request, QuarantineRows, exact=True)
        return answer(await services.lake_threads.ask(request, store, TablePath.parse(table), message, caller(request)))

    def evolve(path: TablePath, message: EvolveTable) -> TableAnswer:
        columns = [Column.from_json(c) for c in message.columns]
        return TableAnswer(table=services.intake.contract.add_columns(services.store.load_table(path), columns))

    @router.post(EVOLVE, dependencies=may_write, openapi_extra=described(EvolveTable))
    async def evolve_table(request: Request, table: str) -> JSONResponse:
        """Adds nullable columns for rows of a file, where the table's contract is `evolve`."""
        message = await read_message(request, EvolveTable, exact=True)
        return answer(await services.lake_threads.ask(request, evolve, TablePath.parse(table), message))

    @router.post(REDRIVE, dependencies=may_write, openapi_extra=described(RedriveRows))
    async def redrive_rows(request: Request, table: str) -> JSONResponse:
        """Writes rows of the quarantine to the table, as they are or corrected, each once."""
        assert redriver is not None
        message = await read_message(request, RedriveRows, exact=True)
        return answer(await services.lake_threads.ask(request, redriver.redrive, TablePath.parse(table), message))

    return router


def _store_rows(services: Services, path: TablePath, message: QuarantineRows, token: Token) -> QuarantineStored:
    if len(message.rows) > MOST_KEPT:
        raise InvalidRequest(what=f"quarantine of {path}", reason=f"one call takes up to {MOST_KEPT} rows")
    quarantine = services.quarantine
    assert quarantine is not None
    table = services.store.load_table(path)
    text = f"{token.name}\n{table.table_id}\n{message.key}"
    writer = int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest()) >> 1
    ids = quarantine.find_ids(table, writer)
    rows = [row for row in message.rows if row.number not in ids]
    if rows:
        services.intake.writers.begin(token.name)
        quarantine.add(table, rows, message.source[:1000], message.operation, writer)
        ids = quarantine.find_ids(table, writer)
    chosen = tuple(ids[row.number] for row in message.rows)
    return QuarantineStored(path=path, quarantine=quarantine_path(path), ids=chosen)
