# SPDX-License-Identifier: Apache-2.0
"""Calls of all connections: how many a token has under way, and how many a host took back. Each that reaches the Flight
server is a thread of it, also one that is taken back the moment it was made.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable

from lakeward.errors import QuotaExceeded

_BURST, _PER_S = 500.0, 50.0
"""Calls that a host may take back at once, and for how many more each second is good: a reader that has enough leaves
one call a bucket."""


class CallCount:
    def __init__(self, per_token: int = 400, clock: Callable[[], float] = time.monotonic) -> None:
        self._limit, self._clock = per_token, clock
        self._under_way: Counter[str] = Counter()
        self._taken_back: dict[str, tuple[float, float]] = {}

    def begin(self, token_name: str) -> None:
        """Raises `QuotaExceeded`."""
        used = self._under_way[token_name]
        if used >= self._limit:
            raise QuotaExceeded(token_name=token_name, what="Flight calls", used=used, limit=self._limit)
        self._under_way[token_name] = used + 1

    def end(self, token_name: str) -> None:
        self._under_way[token_name] -= 1
        if not self._under_way[token_name]:
            del self._under_way[token_name]

    def take_back(self, host: str) -> None:
        now = self._clock()
        if host not in self._taken_back:
            self._forget_calm(now)
        self._taken_back[host] = (self._left(host, now) - 1, now)

    def is_hasty(self, host: str) -> bool:
        """It took back so many that it has to wait with more."""
        return bool(self._taken_back) and self._left(host, self._clock()) < 0

    def _left(self, host: str, now: float) -> float:
        left, at = self._taken_back.get(host, (_BURST, now))
        return min(_BURST, left + _PER_S * (now - at))

    def _forget_calm(self, now: float) -> None:
        for host in [h for h in self._taken_back if self._left(h, now) >= _BURST]:
            del self._taken_back[host]
