# SPDX-License-Identifier: Apache-2.0
"""Calls of a costly kind that may be under way, of one token and in all."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from lakeward.errors import QuotaExceeded


class AtOnce:
    """Thread-safe."""

    def __init__(self, what: str, *, of_token: int, in_all: int) -> None:
        self._what, self._of_token, self._in_all = what, of_token, in_all
        self._lock, self._running = threading.Lock(), Counter[str]()

    @contextmanager
    def counted(self, token: str) -> Iterator[None]:
        """Raises `QuotaExceeded`, and nothing was counted."""
        with self._lock:
            own_running, in_all = self._running[token], self._running.total()
            if own_running >= self._of_token:
                raise QuotaExceeded(token_name=token, what=self._what, used=own_running, limit=self._of_token)
            if in_all >= self._in_all:
                raise QuotaExceeded(token_name=token, what=f"{self._what} with others", used=in_all, limit=self._in_all)
            self._running[token] += 1
        try:
            yield
        finally:
            with self._lock:
                self._running[token] -= 1
