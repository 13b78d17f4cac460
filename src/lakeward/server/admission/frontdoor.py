# SPDX-License-Identifier: Apache-2.0
"""Answers HTTP from the start of the process: health at once, so that a probe does not end a long recovery; everything
else once the application is ready."""

from __future__ import annotations

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from lakeward.errors import ServerUnavailable
from lakeward.protocol.routes import HEALTH, READY, STARTING
from lakeward.server.admission.gate import refuse


class FrontDoor:
    """An ASGI application that hands all calls to `app`, as soon as it is set."""

    def __init__(self) -> None:
        self.app: ASGIApp | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        app = self.app
        if app is not None:
            await app(scope, receive, send)
        elif scope["type"] == "http":
            await _while_starting(scope["path"])(scope, receive, send)


def _while_starting(path: str) -> JSONResponse:
    if path == HEALTH:
        return JSONResponse({"status": "starting"})
    if path == READY:
        return JSONResponse({"ready": False}, status_code=503)
    return refuse(path, ServerUnavailable(address="this server", reason=STARTING, what=path[:200]))
