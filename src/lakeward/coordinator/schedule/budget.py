# SPDX-License-Identifier: Apache-2.0
"""How long a question may be worked on: a time limit, and whether the caller still waits for the answer."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

LIMIT_S = 10.0
"""For one what-if: hundreds of late tables take minutes to simulate, and callers wait for 30 seconds."""


class Budget:
    """Asked between steps of the work; a step itself is not interrupted."""

    def __init__(self, limit_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.limit_s = limit_s
        self._clock = clock
        self._until = clock() + limit_s
        self._cancelled = threading.Event()

    def cancel(self) -> None:
        """From any thread: no one reads the answer any more."""
        self._cancelled.set()

    @property
    def is_spent(self) -> bool:
        return self._cancelled.is_set() or self._clock() >= self._until
