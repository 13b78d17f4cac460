# SPDX-License-Identifier: Apache-2.0
"""How many Flight calls a token may have under way: each holds a thread of the server, also while it sends nothing."""

from __future__ import annotations

import threading
from collections import Counter

from lakeward.errors import QuotaExceeded

CALLS = 400
"""A busy writer has one stream a table, a reader one a bucket; a thread costs some 100 kB."""


class StreamQuotas:
    """Thread-safe."""

    def __init__(self, per_token: int = CALLS) -> None:
        self._limit, self._lock = per_token, threading.Lock()
        self._under_way: Counter[str] = Counter()

    def enter(self, token_name: str) -> None:
        """Raises `QuotaExceeded`."""
        with self._lock:
            used = self._under_way[token_name]
            if used >= self._limit:
                raise QuotaExceeded(token_name=token_name, what="Flight calls", used=used, limit=self._limit)
            self._under_way[token_name] += 1

    def leave(self, token_name: str) -> None:
        with self._lock:
            self._under_way[token_name] -= 1
