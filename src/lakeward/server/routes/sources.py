# SPDX-License-Identifier: Apache-2.0
"""Sources: made, listed, paused, dropped; the groups of rows that their ingest processes send; and consumer groups."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import JSONResponse

from lakeward.model import TablePath
from lakeward.protocol.auth import Role
from lakeward.protocol.groups import GroupBeat
from lakeward.protocol.routes import (
    GROUP_MEMBERS,
    SOURCE,
    SOURCE_BEAT,
    SOURCE_FILE,
    SOURCE_GROUPS,
    SOURCE_HOLD,
    SOURCE_OPEN,
    SOURCE_PAUSE,
    SOURCE_RESUME,
    SOURCES,
)
from lakeward.protocol.sources import CommitGroup, CreateSource, HoldSource, SourceBeat, SourceList
from lakeward.server.admission.auth import caller, require
from lakeward.server.ingest.consumergroups import ConsumerGroups
from lakeward.server.ingest.sources import SourceDesk
from lakeward.server.messages import answer, described, read_message
from lakeward.server.services import Services


def router(services: Services) -> APIRouter:
    router, desk = APIRouter(tags=["sources"]), services.sources
    if desk is None:
        return router
    may_read, may_write = [require(services.tokens, Role.READ)], [require(services.tokens, Role.WRITE)]

    @router.get(SOURCES, dependencies=may_read)
    def list_sources(request: Request) -> JSONResponse:
        """Every source, how far it has come and how far it is behind. Safe to repeat."""
        return answer(SourceList(sources=tuple(desk.listed(caller(request)))))

    @router.post(SOURCES, dependencies=may_write, openapi_extra=described(CreateSource))
    async def create_source(request: Request) -> JSONResponse:
        """Registers a source; an ingest process then opens it. With `if_not_exists` safe to repeat."""
        message = await read_message(request, CreateSource, exact=True)
        return answer(await run_in_threadpool(desk.create, message, caller(request)), status=201)

    @router.get(SOURCE, dependencies=may_read)
    def show_source(request: Request, source: str) -> JSONResponse:
        """One source. Safe to repeat."""
        return answer(desk.show(source, caller(request)))

    @router.delete(SOURCE, dependencies=may_write)
    def drop_source(request: Request, source: str) -> JSONResponse:
        """Forgets the source and its position; tables and rows stay."""
        desk.drop(source, caller(request))
        return answer({})

    @router.post(SOURCE_PAUSE, dependencies=may_write)
    def pause_source(request: Request, source: str) -> JSONResponse:
        """The ingest process stores no more rows until the source is resumed. Safe to repeat."""
        return answer(desk.pause(source, caller(request), paused=True))

    @router.post(SOURCE_RESUME, dependencies=may_write)
    def resume_source(request: Request, source: str) -> JSONResponse:
        """Ends a pause or a stop. Safe to repeat."""
        return answer(desk.pause(source, caller(request), paused=False))

    @router.post(SOURCE_HOLD, dependencies=may_write, openapi_extra=described(HoldSource))
    async def hold_source(request: Request, source: str) -> JSONResponse:
        """Holds the ingest process at a position of the origin, so that both sides can be compared or cut there."""
        message = await read_message(request, HoldSource, exact=True)
        return answer(desk.hold(source, message, caller(request)))

    _add_ingest_routes(router, services, desk)
    _add_group_routes(router, services)
    return router


def _add_ingest_routes(router: APIRouter, services: Services, desk: SourceDesk) -> None:
    may_write = [require(services.tokens, Role.WRITE)]

    @router.post(SOURCE_OPEN, dependencies=may_write)
    def open_source(request: Request, source: str) -> JSONResponse:
        """For an ingest process: the position, and an epoch under which it sends groups. Earlier epochs end."""
        return answer(desk.open(source, caller(request)))

    @router.put(SOURCE_FILE, dependencies=may_write)
    async def write_file(
        request: Request,
        source: str,
        file: str,
        epoch: Annotated[int, Query(ge=0)],
        at: Annotated[int, Query(ge=0)] = 0,
    ) -> JSONResponse:
        """Bytes of a file of the next group, from byte `at` on. Safe to repeat."""
        body = await request.body()
        size = await run_in_threadpool(desk.write, source, file, epoch, at, body, caller(request))
        return answer({"size": size})

    @router.post(SOURCE_GROUPS, dependencies=may_write, openapi_extra=described(CommitGroup))
    async def commit_group(request: Request, source: str) -> JSONResponse:
        """Stores a group's rows in all its tables, and the position behind them, together. Safe to repeat."""
        message = await read_message(request, CommitGroup, exact=True)
        return answer(await run_in_threadpool(desk.commit, source, message, caller(request)))

    @router.post(SOURCE_BEAT, dependencies=may_write, openapi_extra=described(SourceBeat))
    async def beat(request: Request, source: str) -> JSONResponse:
        """Records the phase and lag of the ingest process. Safe to repeat."""
        message = await read_message(request, SourceBeat, exact=True)
        return answer(desk.beat(source, message, caller(request)))


def _add_group_routes(router: APIRouter, services: Services) -> None:
    groups = ConsumerGroups(services.store, services.data, services.clock)
    may_read = [require(services.tokens, Role.READ)]

    @router.post(GROUP_MEMBERS, dependencies=may_read, openapi_extra=described(GroupBeat))
    async def beat(request: Request, table: str, group: str) -> JSONResponse:
        """Heartbeat of a member: commits offsets and answers with its buckets. Safe to repeat."""
        message = await read_message(request, GroupBeat, exact=True)
        info = services.store.load_table(TablePath.parse(table))
        return answer(await run_in_threadpool(groups.beat, info, group, message))

    @router.get(GROUP_MEMBERS, dependencies=may_read)
    def show(table: str, group: str) -> JSONResponse:
        """Members, their buckets, committed offsets and lag of a group. Safe to repeat."""
        return answer(groups.show(services.store.load_table(TablePath.parse(table)), group))
