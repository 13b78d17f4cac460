# SPDX-License-Identifier: Apache-2.0
"""`/healthz` (the process answers) and `/readyz` (it takes reads and writes). Open to all: load balancers have no
token.
"""

from __future__ import annotations

from fastapi import APIRouter
from fastapi.responses import JSONResponse

from lakeward.protocol.routes import HEALTH, READY
from lakeward.server.services import PageServices


def router(services: PageServices) -> APIRouter:
    router = APIRouter(tags=["server"])

    @router.get(HEALTH)
    def health() -> JSONResponse:
        """The process answers."""
        return JSONResponse({"status": "ok"})

    @router.get(READY)
    def ready() -> JSONResponse:
        """503 until the store has recovered, while a background thread stands still, and once a shutdown began."""
        still = [beat.name for beat in services.background() if not beat.is_well]
        is_ready = services.ready() and not still
        return JSONResponse({"ready": is_ready, "still": still}, status_code=200 if is_ready else 503)

    return router
