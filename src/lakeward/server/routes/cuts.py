# SPDX-License-Identifier: Apache-2.0
"""Cuts: made, listed, looked up for a read, dropped."""

from __future__ import annotations

from dataclasses import replace

from fastapi import APIRouter, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import JSONResponse

from lakeward.errors import CutNotFound, CutScheduleNotFound
from lakeward.model import CutSchedule
from lakeward.protocol.auth import Role, Token
from lakeward.protocol.routes import CUT, CUT_SCHEDULE, CUT_SCHEDULES, CUTS
from lakeward.protocol.tables import CreateCut, CutStatus
from lakeward.server.admission.auth import caller, require
from lakeward.server.messages import answer, described, read_message
from lakeward.server.services import Services


def router(services: Services) -> APIRouter:
    router, cuts = APIRouter(tags=["cuts"]), services.coordinator.cuts
    may_read, may_change = [require(services.tokens, Role.READ)], [require(services.tokens, Role.ADMIN)]

    def find(cut: str, token: Token) -> CutStatus:
        """Raises `CutNotFound` also where it is of tables of others alone."""
        seen = _seen(cuts.load_cut(cut), token)
        if not seen.cut.tables:
            raise CutNotFound(cut=cut)
        return seen

    @router.get(CUTS, dependencies=may_read)
    def list_cuts(request: Request) -> JSONResponse:
        """Every cut, oldest first, with those of its tables that the token may use."""
        shown = [_seen(status, caller(request)) for status in cuts.listed()]
        return answer({"cuts": [status for status in shown if status.cut.tables]})

    @router.post(CUTS, dependencies=may_change, openapi_extra=described(CreateCut))
    async def create_cut(request: Request) -> JSONResponse:
        """One moment across tables: their logs are frozen together, and lakes follow."""
        message = await read_message(request, CreateCut, exact=True)
        for path in message.tables:
            caller(request).check_table(path, f"a cut of {path}")
        return answer(await run_in_threadpool(cuts.create, message.name, message.tables), status=201)

    @router.get(CUT, dependencies=may_read)
    def show_cut(request: Request, cut: str) -> JSONResponse:
        """A cut, and for each table the snapshots that show it."""
        return answer(find(cut, caller(request)))

    @router.delete(CUT, dependencies=may_change)
    def drop_cut(request: Request, cut: str) -> JSONResponse:
        """Its snapshots may expire from now on."""
        if len(find(cut, caller(request)).cut.tables) < len(cuts.load_cut(cut).cut.tables):
            raise caller(request).refuse(f"the end of cut {cut}", "a right to every table of it")
        cuts.drop(cut)
        return answer({})

    _add_schedules(router, services)
    return router


def _add_schedules(router: APIRouter, services: Services) -> None:
    schedules = services.coordinator.cut_schedules
    may_read, may_change = [require(services.tokens, Role.READ)], [require(services.tokens, Role.ADMIN)]

    @router.get(CUT_SCHEDULES, dependencies=may_read)
    def list_schedules(request: Request) -> JSONResponse:
        """Schedules of cuts, those alone of whose tables the token may use every one."""
        token = caller(request)
        seen = [s for s in schedules.listed() if all(token.may_use(path) for path in s.schedule.tables)]
        return answer({"schedules": seen})

    @router.post(CUT_SCHEDULES, dependencies=may_change, openapi_extra=described(CutSchedule))
    async def add_schedule(request: Request) -> JSONResponse:
        """A cut every so often; the newest are kept."""
        message = await read_message(request, CutSchedule, exact=True)
        for path in message.tables:
            caller(request).check_table(path, f"a cut of {path}")
        return answer(await run_in_threadpool(schedules.add, replace(message, made_at_ms=0)), status=201)

    @router.delete(CUT_SCHEDULE, dependencies=may_change)
    def remove_schedule(request: Request, schedule: str) -> JSONResponse:
        """No more cuts are made; those that were stay."""
        if not all(caller(request).may_use(path) for path in schedules.find(schedule).tables):
            raise CutScheduleNotFound(schedule=schedule)
        schedules.remove(schedule)
        return answer({})


def _seen(status: CutStatus, token: Token) -> CutStatus:
    tables = tuple(table for table in status.cut.tables if token.may_use(table.path))
    if len(tables) == len(status.cut.tables):
        return status
    return replace(status, cut=replace(status.cut, tables=tables), notes=())
