# SPDX-License-Identifier: Apache-2.0
"""Where time comes from, so that tests can move it by hand."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    def now_ms(self) -> int:
        """Wall time in milliseconds since 1970: for records and people; it may jump."""
        ...

    def monotonic(self) -> float:
        """Seconds that never go back: for leases, timers and durations."""
        ...


class SystemClock:
    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()
