# SPDX-License-Identifier: Apache-2.0
"""In front of every HTTP resource: refuses foreign pages, peers of an unfit protocol version, bodies over the limit."""

from __future__ import annotations

from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from lakeward.errors import InvalidRequest, LakewardError, to_wire
from lakeward.protocol.routes import ICEBERG
from lakeward.protocol.version import PROTOCOL, PROTOCOL_HEADER, check_peer
from lakeward.server.callers import Callers

BODY_TOO_LARGE = 413


class RequestGate:
    """ASGI middleware. The size is checked on what is announced and again on what arrives (chunked bodies announce
    none).
    """

    def __init__(self, app: ASGIApp, max_body_bytes: int, callers: Callers) -> None:
        self.app, self.max_body_bytes, self.callers = app, max_body_bytes, callers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        refusal = self._refusal(scope["method"], scope["path"], headers)
        if refusal is not None:
            await refusal(scope, receive, _stamped(send))
            return
        await self.app(scope, self._counted(receive), _stamped(send))

    def _refusal(self, method: str, path: str, headers: Headers) -> JSONResponse | None:
        try:
            self.callers.check(method, path, headers)
            check_peer("the client", headers.get(PROTOCOL_HEADER))
        except LakewardError as error:
            return refuse(path, error)
        announced = headers.get("content-length", "")
        if announced.isdigit() and int(announced) > self.max_body_bytes:
            return refuse(path, self._too_large(f"{announced} bytes"), BODY_TOO_LARGE)
        return None

    def _too_large(self, size: str) -> InvalidRequest:
        return InvalidRequest(what="request body", reason=f"{size}, at most {self.max_body_bytes} bytes are taken")

    def _counted(self, receive: Receive) -> Receive:
        seen = 0

        async def counted() -> Message:
            nonlocal seen
            message = await receive()
            seen += len(message.get("body", b""))
            if seen > self.max_body_bytes:
                raise self._too_large("too long")
            return message

        return counted


def refuse(path: str, error: LakewardError, status: int | None = None) -> JSONResponse:
    """In the form that callers of this path read."""
    code = status or error.http_status
    if path.startswith(f"{ICEBERG}/"):
        body = {"error": {"message": str(error), "type": type(error).__name__, "code": code}}
        return JSONResponse(body, status_code=code)
    return JSONResponse(to_wire(error), status_code=code)


def _stamped(send: Send) -> Send:
    async def stamped(message: Message) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [*message.get("headers", []), (PROTOCOL_HEADER.lower().encode(), PROTOCOL.encode())]
        await send(message)

    return stamped
