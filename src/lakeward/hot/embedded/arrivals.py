# SPDX-License-Identifier: Apache-2.0
"""Wakes readers that wait for new rows of a table. Costs a put nothing while there are no waiting readers."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable


class Arrivals:
    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._waiters = 0

    def tell(self) -> None:
        """Something was appended or fsynced. A waiter counts itself before it looks, so none is missed."""
        if self._waiters:
            with self._changed:
                self._changed.notify_all()

    def wait_until(self, reached: Callable[[], bool], timeout_s: float) -> bool:
        """Whether `reached` became true within the time. It is called without a lock held and may block."""
        deadline = time.monotonic() + timeout_s
        with self._changed:
            self._waiters += 1
        try:
            while not reached():
                remaining_s = deadline - time.monotonic()
                if remaining_s <= 0:
                    return False
                self._pause(reached, remaining_s)
            return True
        finally:
            with self._changed:
                self._waiters -= 1

    def _pause(self, reached: Callable[[], bool], left: float) -> None:
        """`reached` was asked without the lock: news since then may be missed, so no wait is longer than 100 ms."""
        with self._changed:
            self._changed.wait(min(left, 0.1))
