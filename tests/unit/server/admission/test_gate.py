# SPDX-License-Identifier: Apache-2.0
"""What is refused before a body is read, and what is written down of it."""

from __future__ import annotations

import asyncio
import json
import logging
import stat
from pathlib import Path
from typing import Any

import pytest
from starlette.types import Message, Receive, Scope, Send

from lakeward.config.options import Audit
from lakeward.errors import InvalidRequest
from lakeward.protocol.auth import TokenSet
from lakeward.server.admission.audit import AuditLog
from lakeward.server.admission.callers import Callers
from lakeward.server.admission.gate import RequestGate
from lakeward.server.admission.httpdoor import FrontDoor
from lakeward.server.admission.loglimit import LogLimit
from lakeward_testing.clock import ManualClock

TOKENS = TokenSet.parse(["ann:admin:top"])
BOTH = pytest.mark.parametrize("path", ["/api/v1/tables", "/iceberg/v1/namespaces"])


async def inner(scope: Scope, receive: Receive, send: Send) -> None:
    body = await receive()
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": body.get("body", b"")})


class Asked:
    """One call to the gate; `read` says whether anything of its body was asked for."""

    def __init__(
        self, app: Any, path: str, *, method: str = "POST", body: bytes | None = b"{}", **headers: Any
    ) -> None:
        self.read, self.sent, self._body = 0, list[Message](), body
        named = {"host": "localhost", "content-type": "application/json", **headers}
        raw = [(k.replace("_", "-").encode(), v.encode()) for k, v in named.items()]
        scope = {"type": "http", "method": method, "path": path, "headers": raw, "client": ("10.0.0.9", 5)}
        asyncio.run(app(scope, self._receive, self._send))
        self.status: int = self.sent[0]["status"]
        self.answer = b"".join(m.get("body", b"") for m in self.sent[1:])
        self.headers = dict(self.sent[0]["headers"])

    async def _receive(self) -> Message:
        self.read += 1
        if self._body is None:
            await asyncio.Event().wait()
        return {"type": "http.request", "body": self._body, "more_body": False}

    async def _send(self, message: Message) -> None:
        self.sent.append(message)


def gate(audit: AuditLog | None = None, **options: Any) -> RequestGate:
    return RequestGate(inner, 1000, Callers(), TOKENS, audit, **options)


@BOTH
def test_nothing_of_a_strangers_body_is_read(path: str, caplog: pytest.LogCaptureFixture) -> None:
    for headers in (dict[str, Any](), {"authorization": "Bearer wrong"}):
        asked = Asked(gate(), path, **headers)
        assert (asked.status, asked.read) == (401, 0)
        assert asked.headers[b"connection"] == b"close"
        assert "10.0.0.9" in caplog.text
        assert "wrong" not in caplog.text
    assert Asked(gate(), path, authorization="Bearer top").status == 200


@BOTH
def test_nor_of_one_that_is_too_long_or_comes_from_a_page(path: str) -> None:
    for status, headers in (
        (413, dict[str, Any](content_length="1001")),
        (403, dict[str, Any](origin="http://evil.example")),
    ):
        asked = Asked(gate(), path, authorization="Bearer top", **headers)
        assert (asked.status, asked.read) == (status, 0)


def test_a_refusal_of_the_catalog_has_its_own_form() -> None:
    body = json.loads(Asked(gate(), "/iceberg/v1/config").answer)
    assert body["error"]["code"] == 401


def test_a_body_that_stops_in_the_middle_is_given_up() -> None:
    with pytest.raises(InvalidRequest, match="nothing came"):
        Asked(gate(body_pause_s=0.01), "/api/v1/tables", body=None, authorization="Bearer top")


def test_calls_are_written_down_without_secrets(tmp_path: Path) -> None:
    audit = AuditLog(tmp_path / "audit", Audit.CHANGES, ManualClock())
    Asked(gate(audit), "/api/v1/tables", authorization="Bearer top", body=b'{"row": "private"}')
    Asked(gate(audit), "/api/v1/tables", authorization="Bearer guess")
    Asked(gate(audit), "/api/v1/tables", method="GET", authorization="Bearer top")
    audit.flight("ann", "ipv4:10.0.0.9:1", "put append", "d.t", "ok", is_change=True)
    audit.flight("ann", "ipv4:10.0.0.9:1", "get log", "d.t", "ok", is_change=False)
    audit.close()
    file = tmp_path / "audit" / "audit.log"
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert [(x["who"], x["what"], x["table"], x["result"]) for x in lines] == [
        ("ann", "POST /api/v1/tables", None, "200"),
        ("nobody", "POST /api/v1/tables", None, "401"),
        ("ann", "put append", "d.t", "ok"),
    ]
    assert lines[0]["from"] == "10.0.0.9:5"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    for secret in ("top", "guess", "private"):
        assert secret not in file.read_text()


def test_health_answers_before_anything_else_does() -> None:
    door = FrontDoor()
    assert Asked(door, "/healthz", method="GET").status == 200
    assert Asked(door, "/readyz", method="GET").status == 503
    refused = Asked(door, "/api/v1/tables", method="GET")
    assert refused.status == 503
    assert json.loads(refused.answer)["retryable"] is True
    door.app = inner
    assert Asked(door, "/api/v1/tables", method="GET").status == 200


def test_lines_of_one_cause_are_limited() -> None:
    limit = LogLimit(per_minute=3)
    log = logging.getLogger("limited")

    def line(text: str, number: int) -> logging.LogRecord:
        return log.makeRecord("limited", logging.WARNING, "f", 1, text, (number,), None)

    passed = [r for n in range(50) if limit.filter(r := line("refused %d", n))]
    assert len(passed) == 3
    assert "left out" in passed[-1].getMessage()
    assert limit.filter(line("something else %d", 1))
