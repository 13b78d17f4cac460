# SPDX-License-Identifier: Apache-2.0
"""Reports of commits: commit reports, committed offsets, and the intents of rounds."""

from __future__ import annotations

from fastapi import APIRouter, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import JSONResponse, Response

from lakeward.model import DEFAULT_SIDE, Intent, RoundId, TableId, TablePath
from lakeward.protocol.auth import Role
from lakeward.protocol.heartbeat import CommitReport
from lakeward.protocol.operate import KnownRound
from lakeward.protocol.routes import ABANDON_INTENT, COMMITS, COMMITTED, INTENTS, KNOWN_ROUND
from lakeward.server.admission.auth import check_job, require
from lakeward.server.messages import Side, answer, described, read_message
from lakeward.server.services import Services
from lakeward.spi import FrozenTable


def router(services: Services) -> APIRouter:
    router, coordinator = APIRouter(tags=["commits"]), services.coordinator
    may_read, may_work = (
        [require(services.tokens, Role.READ)],
        [require(services.tokens, Role.JOB, all_tables=True)],
    )

    def begin(intent: Intent, path: TablePath | None) -> FrozenTable | None:
        coordinator.record_intent(intent)
        return None if path is None else services.store.freeze_table(path)

    @router.post(COMMITS, dependencies=may_work, openapi_extra=described(CommitReport))
    async def commit(request: Request) -> JSONResponse:
        """Records a lake commit, or takes over what the lake holds. Idempotent per round."""
        message = await read_message(request, CommitReport)
        check_job(request, message.job, is_bound=services.bound_jobs)
        return answer(await services.lake_threads.ask(request, coordinator.commit, message))

    @router.get(COMMITTED, dependencies=may_read)
    def committed(table: str, side: Side) -> JSONResponse:
        """The offsets, round and generation that the lake stands at, as far as was reported."""
        return answer(coordinator.committed(TablePath.parse(table), side))

    @router.get(KNOWN_ROUND, dependencies=[require(services.tokens, Role.READ, all_tables=True)])
    def known_round(table_id: str, round_id: str, side: Side) -> JSONResponse:
        """Whether the ledger has this round: a job asks when it does not know how its commit ended."""
        known = coordinator.knows_round(TableId(table_id), RoundId(round_id), side or DEFAULT_SIDE)
        return answer(KnownRound(table_id=TableId(table_id), known=known))

    @router.post(INTENTS, dependencies=may_work, status_code=204, openapi_extra=described(Intent))
    async def record_intent(request: Request, freeze: str | None = None) -> Response:
        """Before the first file of a round is written. Recording a round twice keeps the first. `freeze`: a table whose
        log ends are then forced to disk and returned with it, which a plan begins with."""
        message = await read_message(request, Intent)
        path = None if freeze is None else TablePath.parse(freeze)
        frozen = await run_in_threadpool(begin, message, path)
        return Response(status_code=204) if frozen is None else answer(frozen)

    @router.post(ABANDON_INTENT, dependencies=may_work, status_code=204)
    def abandon_intent(round_id: str, unused: bool = False) -> Response:
        """Marks the intent of a round that gave up: its files become orphans once it can no longer be committed.
        `unused`: the round had nothing to write, and its intent is forgotten."""
        coordinator.abandon_intent(RoundId(round_id), unused=unused)
        return Response(status_code=204)

    return router
