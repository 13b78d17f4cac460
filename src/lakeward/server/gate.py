# SPDX-License-Identifier: Apache-2.0
"""In front of every HTTP resource: foreign pages, unknown callers, unfit versions and long bodies are refused before
anything of the body is read. Writes the audit log.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from contextlib import suppress

from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from lakeward.errors import InvalidRequest, LakewardError, QuotaExceeded, Unauthorized, to_wire
from lakeward.protocol.auth import TokenSet
from lakeward.protocol.routes import API, ICEBERG
from lakeward.protocol.version import PROTOCOL, PROTOCOL_HEADER, check_peer
from lakeward.server.audit import AuditLog
from lakeward.server.auth import secret_of
from lakeward.server.callers import Callers

log = logging.getLogger(__name__)

BODY_TOO_LARGE = 413
BODY_PAUSE_S = 30.0
"""Between two pieces of a body: a peer that stops in the middle holds what it has sent in memory."""


class RequestGate:
    """ASGI middleware. The size is checked on what is announced and again on what arrives (chunked bodies announce
    none).
    """

    def __init__(
        self,
        app: ASGIApp,
        max_body_bytes: int,
        callers: Callers,
        tokens: TokenSet,
        audit: AuditLog | None = None,
        body_pause_s: float = BODY_PAUSE_S,
        max_requests: int = 500,
        before_change: Callable[[], None] = lambda: None,
    ) -> None:
        self.app, self.max_body_bytes, self.callers, self.tokens = app, max_body_bytes, callers, tokens
        self.audit, self.body_pause_s, self.max_requests = audit, body_pause_s, max_requests
        self._under_way: Counter[str] = Counter()
        self._before_change = before_change

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        scope.setdefault("state", {})
        send = self._recorded(scope, _stamped(send))
        refusal = self._refusal(scope)
        if refusal is not None:
            await refusal(scope, receive, send)
            return
        token = scope["state"].get("token")
        who = "" if token is None else token.name
        self._under_way[who] += 1
        try:
            if scope["method"] not in ("GET", "HEAD"):
                with suppress(OSError):
                    self._before_change()
            await self.app(scope, self._counted(receive), send)
        finally:
            self._under_way[who] -= 1

    def _refusal(self, scope: Scope) -> JSONResponse | None:
        method, path, headers = scope["method"], scope["path"], Headers(scope=scope)
        try:
            self.callers.check(method, path, headers)
            check_peer("the client", headers.get(PROTOCOL_HEADER))
            if path.startswith((f"{API}/", f"{ICEBERG}/")):
                shown = secret_of(headers.get("authorization"))
                token = scope["state"]["token"] = self.tokens.identify(shown, f"{method} {path}")
                used = self._under_way[token.name]
                if used >= self.max_requests:
                    raise QuotaExceeded(
                        token_name=token.name, what="HTTP calls under way", used=used, limit=self.max_requests
                    )
        except LakewardError as error:
            if isinstance(error, Unauthorized):
                log.warning("refused %s %s from %s: no valid token", method, path[:200], peer_of(scope))
            return refuse(path, error)
        announced = headers.get("content-length", "")
        if announced.isdigit() and int(announced[:20]) > self.max_body_bytes:
            return refuse(path, self._too_large(f"{announced[:20]} bytes"), BODY_TOO_LARGE)
        return None

    def _too_large(self, size: str) -> InvalidRequest:
        return InvalidRequest(what="request body", reason=f"{size}, at most {self.max_body_bytes} bytes are taken")

    def _counted(self, receive: Receive) -> Receive:
        seen, is_whole = 0, False

        async def counted() -> Message:
            nonlocal seen, is_whole
            if is_whole:
                return await receive()
            try:
                message = await asyncio.wait_for(receive(), self.body_pause_s)
            except TimeoutError:
                raise InvalidRequest(what="request body", reason=f"nothing came for {self.body_pause_s:g} s") from None
            seen += len(message.get("body", b""))
            is_whole = not message.get("more_body", False)
            if seen > self.max_body_bytes:
                raise self._too_large("too long")
            return message

        return counted

    def _recorded(self, scope: Scope, send: Send) -> Send:
        audit = self.audit
        if audit is None:
            return send

        async def recorded(message: Message) -> None:
            if message["type"] == "http.response.start":
                token, table = scope["state"].get("token"), scope["state"].get("table")
                audit.http(
                    "nobody" if token is None else token.name,
                    peer_of(scope),
                    scope["method"],
                    scope["path"][:300],
                    str(table or scope.get("path_params", {}).get("table", "")) or None,
                    message["status"],
                )
            await send(message)

        return recorded


def peer_of(scope: Scope) -> str:
    client = scope.get("client")
    return f"{client[0]}:{client[1]}" if client else "unknown"


def refuse(path: str, error: LakewardError, status: int | None = None) -> JSONResponse:
    """In the form that callers of this path read. The connection ends: what is still to come of the body is not
    read."""
    code, headers = status or error.http_status, {"Connection": "close"}
    if path.startswith(f"{ICEBERG}/"):
        body = {"error": {"message": str(error), "type": type(error).__name__, "code": code}}
        return JSONResponse(body, status_code=code, headers=headers)
    return JSONResponse(to_wire(error), status_code=code, headers=headers)


def _stamped(send: Send) -> Send:
    async def stamped(message: Message) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [*message.get("headers", []), (PROTOCOL_HEADER.lower().encode(), PROTOCOL.encode())]
        await send(message)

    return stamped
