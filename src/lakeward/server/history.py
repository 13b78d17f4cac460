# SPDX-License-Identifier: Apache-2.0
"""The last hour of figures, in memory: lag per table, queue depth, remote log bytes, lake files."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable

from lakeward.protocol.views import TableStatus

SAMPLE_S = 10.0
KEPT = 360
"""One hour of samples."""

Sample = tuple[int, int]


class History:
    """Rings of samples; `take` is called by one thread, reads by any."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lags: dict[str, deque[Sample]] = {}
        self._figures: dict[str, deque[Sample]] = {}

    def take(self, at_ms: int, tables: Iterable[TableStatus], **figures: int) -> None:
        with self._lock:
            seen = set()
            for table in tables:
                name = str(table.path)
                seen.add(name)
                self._lags.setdefault(name, deque(maxlen=KEPT)).append((at_ms, table.lag_ms))
            for gone in set(self._lags) - seen:
                del self._lags[gone]
            for name, value in figures.items():
                self._figures.setdefault(name, deque(maxlen=KEPT)).append((at_ms, value))

    def lag(self, table: str, *, points: int = KEPT) -> list[Sample]:
        """Oldest first; `points` at the most, each the highest of those it stands for: a peak is never thinned away."""
        with self._lock:
            held = list(self._lags.get(table, ()))
        step = -(-len(held) // points) if points else 1
        return (
            held
            if step <= 1
            else [max(held[i : i + step], key=lambda sample: sample[1]) for i in range(0, len(held), step)]
        )

    def figure(self, name: str) -> list[Sample]:
        with self._lock:
            return list(self._figures.get(name, ()))
