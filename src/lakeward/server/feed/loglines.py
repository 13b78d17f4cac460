# SPDX-License-Identifier: Apache-2.0
"""The newest lines of the server's log, in memory, for its page."""

from __future__ import annotations

import logging
import threading
from collections import deque
from typing import Any

KEPT, MOST_CHARS = 500, 2_000


class LogLines(logging.Handler):
    """Keeps what other handlers print; a stack is cut to its last line."""

    def __init__(self) -> None:
        super().__init__()
        self._lines: deque[dict[str, Any]] = deque(maxlen=KEPT)
        self._guard = threading.Lock()

    def emit(self, record: logging.LogRecord) -> None:
        try:
            words = record.getMessage()
        except (TypeError, ValueError):  # arguments that do not fit: the other handlers say so
            words = str(record.msg)
        if record.exc_info and record.exc_info[1] is not None:
            words = f"{words}: {type(record.exc_info[1]).__name__}: {record.exc_info[1]}"
        line = {"at_ms": int(record.created * 1000), "level": record.levelname.lower(), "from": record.name}
        with self._guard:
            self._lines.append({**line, "words": words[:MOST_CHARS]})

    def newest(self, limit: int, level: int = logging.NOTSET) -> list[dict[str, Any]]:
        """Newest first."""
        with self._guard:
            lines = [x for x in self._lines if logging.getLevelNamesMapping()[x["level"].upper()] >= level]
        return lines[::-1][:limit]


LINES = LogLines()
"""One per process, as logging is."""
