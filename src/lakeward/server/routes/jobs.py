# SPDX-License-Identifier: Apache-2.0
"""Heartbeat and lease check, called by jobs."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace

from fastapi import APIRouter, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import JSONResponse

from lakeward.coordinator.operations import POLL_S
from lakeward.errors import QuotaExceeded
from lakeward.protocol.auth import Role
from lakeward.protocol.heartbeat import HeartbeatRequest, LeaseCheck
from lakeward.protocol.routes import HEARTBEAT, LEASE_CHECK
from lakeward.server.admission.auth import caller, check_job, require
from lakeward.server.messages import answer, described, read_message
from lakeward.server.services import Services

MOST_JOBS = 1_000
"""Names that are remembered for a day each, with a record on disk."""

LONGEST_HOLD_MS = 10_000
"""An idle job's beat is answered after so long at the most, well below the time that its HTTP client waits."""


def router(services: Services) -> APIRouter:
    router, coordinator = APIRouter(tags=["jobs"]), services.coordinator
    may_work = [require(services.tokens, Role.JOB, all_tables=True)]

    @router.post(HEARTBEAT, dependencies=may_work, openapi_extra=described(HeartbeatRequest))
    async def heartbeat(request: Request) -> JSONResponse:
        """Reports what a job works on and takes what it may work on next. Safe to repeat."""
        message = await read_message(request, HeartbeatRequest)
        check_job(request, message.job, is_bound=services.bound_jobs)
        jobs = coordinator.board.jobs
        if message.job not in jobs and len(jobs) >= MOST_JOBS:
            what = "jobs of other names beside it"
            raise QuotaExceeded(token_name=caller(request).name, what=what, used=len(jobs), limit=MOST_JOBS)
        asks = coordinator.operations.asks
        told = await run_in_threadpool(coordinator.heartbeat, message)
        if told.tables or not message.room or message.wait_ms <= 0:
            return answer(told)
        until = time.monotonic() + min(message.wait_ms, told.next_beat_ms, LONGEST_HOLD_MS) / 1000
        while coordinator.operations.asks == asks and time.monotonic() < until:
            await asyncio.sleep(POLL_S)
        return answer(replace(told, next_beat_ms=0))

    @router.post(LEASE_CHECK, dependencies=may_work, openapi_extra=described(LeaseCheck))
    async def check_lease(request: Request) -> JSONResponse:
        """Asked right before a lake commit: does this round still hold its table?"""
        message = await read_message(request, LeaseCheck)
        check_job(request, message.job, is_bound=services.bound_jobs)
        return answer(await run_in_threadpool(coordinator.check_lease, message))

    return router
