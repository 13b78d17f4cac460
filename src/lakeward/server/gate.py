# SPDX-License-Identifier: Apache-2.0
"""In front of every HTTP resource: refuses peers of an unfit protocol version and bodies over the limit."""

from __future__ import annotations

from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from lakeward.errors import InvalidRequest, LakewardError, to_wire
from lakeward.protocol.version import PROTOCOL, PROTOCOL_HEADER, check_peer

BODY_TOO_LARGE = 413


class RequestGate:
    """ASGI middleware. The size is checked on what is announced and again on what arrives (chunked bodies announce
    none).
    """

    def __init__(self, app: ASGIApp, max_body_bytes: int) -> None:
        self.app, self.max_body_bytes = app, max_body_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        refusal = self._refusal(headers)
        if refusal is not None:
            await refusal(scope, receive, _stamped(send))
            return
        await self.app(scope, self._counted(receive), _stamped(send))

    def _refusal(self, headers: Headers) -> JSONResponse | None:
        try:
            check_peer("the client", headers.get(PROTOCOL_HEADER))
        except LakewardError as error:
            return JSONResponse(to_wire(error), status_code=error.http_status)
        announced = headers.get("content-length", "")
        if announced.isdigit() and int(announced) > self.max_body_bytes:
            return JSONResponse(to_wire(self._too_large(f"{announced} bytes")), status_code=BODY_TOO_LARGE)
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


def _stamped(send: Send) -> Send:
    async def stamped(message: Message) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [*message.get("headers", []), (PROTOCOL_HEADER.lower().encode(), PROTOCOL.encode())]
        await send(message)

    return stamped
