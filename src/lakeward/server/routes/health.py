# SPDX-License-Identifier: Apache-2.0
"""`/healthz` (the process answers) and `/readyz` (it takes reads and writes). Open to all: load balancers have no
token.
"""

from __future__ import annotations

from fastapi import APIRouter
from fastapi.responses import JSONResponse

from lakeward.protocol.routes import HEALTH, READY
from lakeward.server.services import Services


def router(services: Services) -> APIRouter:
    made = APIRouter(tags=["server"])

    @made.get(HEALTH)
    def health() -> JSONResponse:
        """The process answers."""
        return JSONResponse({"status": "ok"})

    @made.get(READY)
    def ready() -> JSONResponse:
        """503 until the store has recovered, and again once a shutdown began."""
        is_ready = services.ready()
        return JSONResponse({"ready": is_ready}, status_code=200 if is_ready else 503)

    return made
