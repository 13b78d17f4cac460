# SPDX-License-Identifier: Apache-2.0
"""How many rows each table put into quarantine in the last minute, and which sources were stopped for it."""

from __future__ import annotations

import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable

from lakeward.errors import TooManyBadRows
from lakeward.model import TablePath

SPAN_S = 60.0
SHOWN_S = 600.0
"""How long a tile stays red after a source was stopped."""


class BadRowRates:
    """Thread-safe. Counted in memory: a restart begins at nothing."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._lock = clock, threading.Lock()
        self._counts: defaultdict[TablePath, deque[tuple[float, int]]] = defaultdict(deque)
        self._stopped: dict[TablePath, tuple[float, int]] = {}
        self.rows: defaultdict[TablePath, int] = defaultdict(int)
        """Since the server started."""

    def add(self, table: TablePath, rows: int, limit: int) -> None:
        """Raises `TooManyBadRows`; rows that are refused do not count."""
        now = self._clock()
        with self._lock:
            counts = self._counts[table]
            while counts and counts[0][0] <= now - SPAN_S:
                counts.popleft()
            total = sum(count for _, count in counts) + rows
            if total > limit:
                self._stopped[table] = (now, total)
                raise TooManyBadRows(table=str(table), rows=total, limit=limit)
            counts.append((now, rows))
            self.rows[table] += rows

    def stopped(self) -> dict[TablePath, int]:
        """Tables whose sources were stopped lately, with the rows of that minute."""
        now = self._clock()
        with self._lock:
            self._stopped = {t: (at, rows) for t, (at, rows) in self._stopped.items() if at > now - SHOWN_S}
            return {table: rows for table, (_, rows) in self._stopped.items()}
