# SPDX-License-Identifier: Apache-2.0
"""`/api/v1/info`: what a client asks first."""

from __future__ import annotations

from fastapi import APIRouter
from fastapi.responses import JSONResponse

from lakeward.protocol.auth import Role
from lakeward.protocol.routes import INFO
from lakeward.server.door.auth import require
from lakeward.server.messages import answer
from lakeward.server.services import Services


def router(services: Services) -> APIRouter:
    router = APIRouter(tags=["server"])

    @router.get(INFO, dependencies=[require(services.tokens, Role.READ)])
    def info() -> JSONResponse:
        """Versions, and where Flight and the Iceberg catalog are."""
        return answer(services.info())

    return router
