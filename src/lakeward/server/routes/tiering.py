# SPDX-License-Identifier: Apache-2.0
"""A table's tiering: queue, admission, and what operators do to it."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Annotated, TypeVar

from fastapi import APIRouter, Query, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import JSONResponse

from lakeward.coordinator.operations import POLL_S
from lakeward.coordinator.schedule.simulator import LIMIT_S, Budget
from lakeward.errors import QuotaExceeded
from lakeward.model import TablePath
from lakeward.protocol import routes
from lakeward.protocol.auth import Role
from lakeward.protocol.operate import (
    AdmissionQuery,
    AdoptTable,
    RebuildLake,
    ReconcileSchema,
    RestoreLake,
    ResyncTable,
    TierNowAnswer,
)
from lakeward.server.admission.auth import caller, require
from lakeward.server.lakerights import check_adopted
from lakeward.server.messages import Side, answer, described, read_message
from lakeward.server.services import Services

MOST_ADMITTED = 2_000
"""Each is simulated: ten times as many took 40 s."""

T = TypeVar("T")

LOOK_S = 0.5
"""Between two looks whether the caller of a what-if still waits."""

MOST_ASKING = 2
"""Simulations of one token at once: each takes seconds of a core where tables do not fit."""


def router(services: Services) -> APIRouter:
    router = APIRouter(tags=["tiering"])
    _add_questions(router, services)
    _add_operations(router, services)
    _add_repairs(router, services)
    return router


def _add_questions(router: APIRouter, services: Services) -> None:
    coordinator, may_read = services.coordinator, [require(services.tokens, Role.READ)]
    asking: Counter[str] = Counter()

    @router.get(routes.QUEUE, dependencies=may_read)
    def queue(request: Request) -> JSONResponse:
        """Tables that wait for a slot, or will, in the order of their latest start."""
        return answer({"queue": [q for q in coordinator.views.queue() if caller(request).may_use(q.path)]})

    @router.post(
        routes.ADMISSION,
        dependencies=[require(services.tokens, Role.READ, all_tables=True)],
        openapi_extra=described(AdmissionQuery),
    )
    async def admission(request: Request) -> JSONResponse:
        """Answers a what-if question: would every table keep its freshness with these slots, durations and goals?"""
        message = await read_message(request, AdmissionQuery)
        named = len({*message.freshness_ms, *message.round_ms})
        if named > MOST_ADMITTED:
            what = "tables named in one admission query"
            raise QuotaExceeded(token_name=caller(request).name, what=what, used=named, limit=MOST_ADMITTED)
        token = caller(request).name
        if asking[token] >= MOST_ASKING:
            what = "admission queries under way"
            raise QuotaExceeded(token_name=token, what=what, used=asking[token], limit=MOST_ASKING)
        asking[token] += 1
        try:
            return answer(await _while_asked(request, Budget(LIMIT_S), partial(coordinator.forecast.answer, message)))
        finally:
            asking[token] -= 1


async def _while_asked(request: Request, budget: Budget, work: Callable[[Budget], T]) -> T:
    """In a thread; a caller that hangs up cancels it."""
    task = asyncio.ensure_future(run_in_threadpool(work, budget))
    try:
        while not (await asyncio.wait({task}, timeout=LOOK_S))[0]:
            if await request.is_disconnected():
                budget.cancel()
    finally:
        budget.cancel()
    return await task


def _add_operations(router: APIRouter, services: Services) -> None:
    """Pauses, upkeep and rounds that are asked for."""
    coordinator = services.coordinator
    may_write, may_change = [require(services.tokens, Role.WRITE)], [require(services.tokens, Role.ADMIN)]

    @router.post(routes.PAUSE, dependencies=may_change)
    def pause(table: str, side: Side) -> JSONResponse:
        """Stops rounds of this table until it is resumed. Rows stay in the hot store."""
        path = TablePath.parse(table)
        coordinator.operations.pause(path, side)
        return answer(coordinator.views.table(path, side))

    @router.post(routes.RESUME, dependencies=may_change)
    def resume(table: str, side: Side) -> JSONResponse:
        """Ends a pause or a quarantine."""
        path = TablePath.parse(table)
        coordinator.operations.resume(path, side)
        return answer(coordinator.views.table(path, side))

    @router.post(routes.MAINTAIN, dependencies=may_change)
    def maintain(table: str, side: Side) -> JSONResponse:
        """Its next upkeep, a compaction, takes the first slot that is free. Answers at once."""
        path = TablePath.parse(table)
        coordinator.operations.maintain_now(path, side)
        return answer(coordinator.views.table(path, side))

    @router.post(routes.TIER_NOW, dependencies=may_write)
    async def tier_now(
        table: str, side: Side, limit_s: Annotated[float | None, Query(gt=0, allow_inf_nan=False)] = None
    ) -> JSONResponse:
        """Answers when everything acknowledged before the call is in the lake, or in each of them where no side is
        named; `timed-out` at the limit. Holds no thread."""
        path, done = TablePath.parse(table), list[TierNowAnswer]()
        for each in await run_in_threadpool(coordinator.ask_all_now, path, side):
            while (answered := coordinator.check_asked(each, limit_s)) is None:
                await asyncio.sleep(POLL_S)
            done.append(answered)
        return answer(replace(done[0], rounds=sum(d.rounds for d in done), took_ms=max(d.took_ms for d in done)))


def _add_repairs(router: APIRouter, services: Services) -> None:
    """Adoption of lake tables, and the ways back to a lake table that fits its hot store."""
    coordinator, may_change = services.coordinator, [require(services.tokens, Role.ADMIN)]

    @router.post(routes.ADOPT, dependencies=may_change, openapi_extra=described(AdoptTable))
    async def adopt(table: str, request: Request) -> JSONResponse:
        """Adopts a lake table that has snapshots of Lakeward: same table id, its offsets. With `foreign` a table of
        another engine, with its rows; with a key as well, the load continues after the answer: an `AdoptionStatus`."""
        message, path = await read_message(request, AdoptTable), TablePath.parse(table)
        check_adopted(services, caller(request), path, message)
        services.quota.check_new(caller(request), path, message.descriptor, services.store)
        federation = services.federation
        call = federation.adopt_keyed if message.foreign and message.primary_key else federation.adopt
        return answer(await services.lake_threads.ask(request, call, path, message))

    @router.get(routes.ADOPTION, dependencies=may_change)
    def adoption(table: str) -> JSONResponse:
        """How far a table that is adopted with a key is; what it was refused for."""
        return answer(services.federation.adoptions.status(TablePath.parse(table)))

    @router.post(routes.RECONCILE_SCHEMA, dependencies=may_change, openapi_extra=described(ReconcileSchema))
    async def reconcile_schema(table: str, side: Side, request: Request) -> JSONResponse:
        """Makes the lake table's columns and partitioning what rounds need, after another engine changed them."""
        message, federation = await read_message(request, ReconcileSchema), services.federation
        path, ask = TablePath.parse(table), services.lake_threads.ask
        reconcile, choices = federation.reconcile_schema, {"dry_run": message.dry_run, "take_over": message.take_over}
        return answer(await ask(request, reconcile, path, side, **choices))

    @router.post(routes.RESTORE_LAKE, dependencies=may_change, openapi_extra=described(RestoreLake))
    async def restore_lake(table: str, side: Side, request: Request) -> JSONResponse:
        """Restores a dropped lake table from the files that are left of it, or creates it empty."""
        message, path = await read_message(request, RestoreLake), TablePath.parse(table)
        restore, ask = services.federation.restore_lake, services.lake_threads.ask
        return answer(await ask(request, restore, path, side, anew=message.anew))

    @router.post(routes.REBUILD_LAKE, dependencies=may_change, openapi_extra=described(RebuildLake))
    async def rebuild_lake(table: str, side: Side, request: Request) -> JSONResponse:
        """Removes the lake table and writes it again from the hot store, by a resync."""
        message, path = await read_message(request, RebuildLake), TablePath.parse(table)
        rebuild, ask = services.federation.rebuild_lake, services.lake_threads.ask
        await ask(request, rebuild, path, side, discard_older=message.discard_older)
        return answer(coordinator.views.table(path, side))

    @router.post(routes.RESYNC, dependencies=may_change, openapi_extra=described(ResyncTable))
    async def resync(table: str, side: Side, request: Request) -> JSONResponse:
        """The next round makes lake and hot store meet again: by a resync, or by a gap recorded on purpose."""
        message, path = await read_message(request, ResyncTable), TablePath.parse(table)
        ask, newer = services.lake_threads.ask, message.discard_newer
        await ask(request, coordinator.operations.resync, path, message.choice, side, discard_newer=newer)
        return answer(coordinator.views.table(path, side))
