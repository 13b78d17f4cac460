# SPDX-License-Identifier: Apache-2.0
"""The audit log: who, from where, did what to which table, with what result. One JSON object a line, in a file that
only the server's user may read. Never a row, a secret, a body or a query.
"""

from __future__ import annotations

import json
import logging
import os
from logging.handlers import RotatingFileHandler
from pathlib import Path

from lakeward.config.options import Audit
from lakeward.model import DISK_FULL, Clock
from lakeward.protocol.routes import READ_PLAN

MAX_BYTES, KEPT = 16 * 1024 * 1024, 8
"""128 MB at the most: about a million calls."""

_QUIET = ("/api/v1/heartbeat", "/api/v1/lease-check")
"""Each job sends these every few seconds; what they lead to is recorded as commits."""


_READ_PLAN = READ_PLAN.rpartition("}")[2]
"""A read, though it is a POST for the lease that it takes."""


class AuditLog:
    """Thread-safe. A line that cannot be written (a full disk) is lost, and the call goes on. Raises `OSError`
    when it is made where nothing may be written."""

    def __init__(self, folder: Path, level: Audit, clock: Clock) -> None:
        self._level, self._clock = level, clock
        self._handler: RotatingFileHandler | None = None
        if level is not Audit.OFF:
            _check(folder)
            self._handler = _PrivateFile(folder / "audit.log", maxBytes=MAX_BYTES, backupCount=KEPT, delay=True)
            self._handler.setFormatter(logging.Formatter("%(message)s"))

    def http(self, who: str, peer: str, method: str, path: str, table: str | None, status: int) -> None:
        is_quiet = path in _QUIET or path.endswith(_READ_PLAN)
        is_change = method not in ("GET", "HEAD") and not is_quiet
        if is_change or status in (401, 403, 415, 429) or self._level is Audit.ALL:
            self._write(who, peer, f"{method} {path}", table, str(status))

    def flight(self, who: str, peer: str, what: str, table: str | None, result: str, *, is_change: bool) -> None:
        if is_change or result != "ok" or self._level is Audit.ALL:
            self._write(who, peer, what, table, result)

    def close(self) -> None:
        if self._handler is not None:
            self._handler.close()

    def _write(self, who: str, peer: str, what: str, table: str | None, result: str) -> None:
        if self._handler is None:
            return
        line = {"at_ms": self._clock.now_ms(), "who": who, "from": peer, "what": what, "table": table, "result": result}
        self._handler.handle(logging.LogRecord("audit", logging.INFO, "", 0, json.dumps(line), None, None))


class _PrivateFile(RotatingFileHandler):
    def _open(self):  # type: ignore[no-untyped-def]
        os.close(os.open(self.baseFilename, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600))
        return super()._open()

    def handleError(self, record: logging.LogRecord) -> None:
        """Nothing: the call that is written about has been served."""


def _check(folder: Path) -> None:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.close(os.open(folder / "audit.log", os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600))
    except OSError as error:
        if error.errno not in DISK_FULL:
            raise
