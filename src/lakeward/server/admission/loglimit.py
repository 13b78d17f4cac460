# SPDX-License-Identifier: Apache-2.0
"""Limits log lines of one cause: a peer that makes the server complain must not fill its disk."""

from __future__ import annotations

import logging
import threading
import time

PER_MINUTE = 20
_CAUSES = 1_000
"""Keys remembered at once; when there are more, all counters are reset."""


class LogLimit(logging.Filter):
    """Lines with the same text before its values are put in are one cause. Says how many it left out."""

    def __init__(self, per_minute: int = PER_MINUTE) -> None:
        super().__init__()
        self._limit, self._lock = per_minute, threading.Lock()
        self._minute = 0
        self._seen: dict[tuple[str, int, str], int] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        cause = (record.name, record.levelno, str(record.msg)[:200])
        with self._lock:
            minute = int(time.monotonic() // 60)
            if minute != self._minute or len(self._seen) > _CAUSES:
                self._minute, self._seen = minute, {}
            count = self._seen[cause] = self._seen.get(cause, 0) + 1
        if count == self._limit:
            record.msg = f"{record.msg} (more like this within the minute are left out)"
        return count <= self._limit
