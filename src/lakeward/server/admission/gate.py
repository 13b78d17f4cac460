# SPDX-License-Identifier: Apache-2.0
"""In front of every HTTP resource: foreign pages, unknown callers, unfit versions and long bodies are refused before
anything of the body is read. Writes the audit log.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from contextlib import suppress

from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from lakeward.errors import InvalidRequest, LakewardError, QuotaExceeded, Unauthorized, to_wire
from lakeward.protocol.auth import TokenSet
from lakeward.protocol.routes import API, ICEBERG, OAUTH, PROTOCOL, PROTOCOL_HEADER, check_peer
from lakeward.server.admission.audit import AuditLog
from lakeward.server.admission.auth import secret_of
from lakeward.server.admission.body import PAUSE_S, BodyBudget, CountedBody
from lakeward.server.admission.callers import Callers

log = logging.getLogger(__name__)

LOGIN_BYTES = 16 * 1024
"""Largest body of a catalog login, which has no token."""

BODY_TOO_LARGE = 413


class RequestGate:
    """ASGI middleware. A body's size is checked on what is announced and again on what arrives."""

    def __init__(
        self,
        app: ASGIApp,
        max_body_bytes: int,
        callers: Callers,
        tokens: TokenSet,
        audit: AuditLog | None = None,
        body_pause_s: float = PAUSE_S,
        max_requests: int = 500,
        before_change: Callable[[], None] = lambda: None,
    ) -> None:
        self.app, self.callers, self.tokens, self.audit = app, callers, tokens, audit
        self.bodies, self.max_requests = BodyBudget(max_body_bytes, body_pause_s), max_requests
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
        body = CountedBody(receive, self.bodies)
        self._under_way[who] += 1
        try:
            if scope["method"] not in ("GET", "HEAD"):
                with suppress(OSError):
                    self._before_change()
            await self.app(scope, body.receive, send)
        finally:
            self._under_way[who] -= 1
            body.release()

    def _refusal(self, scope: Scope) -> JSONResponse | None:
        method, path, headers = scope["method"], scope["path"], Headers(scope=scope)
        try:
            self.callers.check(method, path, headers)
            check_peer("the client", headers.get(PROTOCOL_HEADER))
            if path.startswith((f"{API}/", f"{ICEBERG}/")) and path != OAUTH:
                shown = secret_of(headers.get("authorization"))
                token = scope["state"]["token"] = self.tokens.identify(shown, f"{method} {path}")
                used = self._under_way[token.name]
                if used >= self.max_requests:
                    raise QuotaExceeded(
                        token_name=token.name, what="HTTP calls under way", used=used, limit=self.max_requests
                    )
        except LakewardError as error:
            if isinstance(error, Unauthorized):
                log.warning("refused %s %s from %s: %s", method, path[:200], peer_of(scope), error.reason)
            return refuse(path, error)
        announced = headers.get("content-length", "")
        if path == OAUTH and not (announced.isdigit() and int(announced[:20]) <= LOGIN_BYTES):
            return refuse(
                path, InvalidRequest(what="a login", reason=f"a form of at most {LOGIN_BYTES} bytes is expected")
            )
        if announced.isdigit() and int(announced[:20]) > self.bodies.max_bytes:
            return refuse(path, self.bodies.too_large(f"{announced[:20]} bytes"), BODY_TOO_LARGE)
        return None

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
