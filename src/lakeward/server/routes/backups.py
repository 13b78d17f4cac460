# SPDX-License-Identifier: Apache-2.0
"""Makes a backup of the server's folder while it runs."""

from __future__ import annotations

from fastapi import APIRouter, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import JSONResponse

from lakeward.protocol.auth import Role
from lakeward.protocol.routes import BACKUPS
from lakeward.protocol.tables import MakeBackup
from lakeward.server.admission.auth import require
from lakeward.server.backups import make_backup
from lakeward.server.messages import answer, described, read_message
from lakeward.server.services import Services


def router(services: Services) -> APIRouter:
    router = APIRouter(tags=["server"])
    may_change = [require(services.tokens, Role.ADMIN, all_tables=True)]

    @router.post(BACKUPS, dependencies=may_change, status_code=201, openapi_extra=described(MakeBackup))
    async def backup(request: Request) -> JSONResponse:
        """Copies the server's folder to another one, or to S3, with its lakes if asked for; returns when it is whole
        there."""
        message = await read_message(request, MakeBackup, exact=True)
        return answer(await run_in_threadpool(make_backup, services, message), status=201)

    return router
