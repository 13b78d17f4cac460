# SPDX-License-Identifier: Apache-2.0
"""A clock that a test moves by hand."""

from __future__ import annotations

import threading

from lakeward.errors import InvalidRequest


class ManualClock:
    """Stands still until it is told. Wall time may jump on its own; monotonic time never goes back."""

    def __init__(self, now_ms: int = 1_700_000_000_000, monotonic: float = 1_000.0) -> None:
        self._lock = threading.Lock()
        self._now_ms = now_ms
        self._monotonic = monotonic

    def now_ms(self) -> int:
        with self._lock:
            return self._now_ms

    def monotonic(self) -> float:
        with self._lock:
            return self._monotonic

    def advance(self, seconds: float) -> None:
        """Time passes: both move."""
        if seconds < 0:
            raise InvalidRequest(
                what=f"advance by {seconds} s", reason="time goes forward; `jump` moves the wall clock back"
            )
        with self._lock:
            self._monotonic += seconds
            self._now_ms += round(seconds * 1000)

    def jump(self, seconds: float) -> None:
        """Somebody sets the wall clock, forward or back; monotonic time does not notice."""
        with self._lock:
            self._now_ms += round(seconds * 1000)
