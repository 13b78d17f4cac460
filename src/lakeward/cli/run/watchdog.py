# SPDX-License-Identifier: Apache-2.0
"""Whether a server that runs still answers. One that has not answered yet is recovering: it gets the time it needs."""

from __future__ import annotations

from collections.abc import Callable

from lakeward.hot.embedded.remote.httppool import CallFailed, HttpPool
from lakeward.model import Clock
from lakeward.protocol.routes import HEALTH

PROBE_S = 5.0
PATIENCE_S = 60.0
"""Longer than any pause of a busy server, and than its grace at shutdown."""


class Watchdog:
    """`answers` asks once, for at most the seconds it is given."""

    def __init__(self, answers: Callable[[float], bool], clock: Clock, patience_s: float = PATIENCE_S) -> None:
        self._answers, self._clock, self._patience_s = answers, clock, patience_s
        self._probe_s = min(PROBE_S, patience_s / 2)
        self.launched()

    def launched(self) -> None:
        """The server was started now."""
        self._answered_at: float | None = None
        self._asked_at = self._clock.monotonic()

    @property
    def has_answered(self) -> bool:
        return self._answered_at is not None

    def is_lost(self) -> bool:
        """It answered once, and does not any more for longer than it is waited for."""
        now = self._clock.monotonic()
        if now - self._asked_at < self._probe_s:
            return False
        self._asked_at = now
        if self._answers(self._probe_s):
            self._answered_at = now
        return self._answered_at is not None and now - self._answered_at > self._patience_s


def answers(url: str, limit_s: float = PROBE_S) -> bool:
    """Any answer counts, also one that says no."""
    pool = HttpPool(url, headers={})
    try:
        pool.call("GET", HEALTH, None, {}, limit_s)
    except CallFailed:
        return False
    finally:
        pool.close()
    return True
