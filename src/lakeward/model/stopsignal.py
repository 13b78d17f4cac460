# SPDX-License-Identifier: Apache-2.0
"""Set by SIGTERM and Ctrl-C, for a main thread that serves until then."""

from __future__ import annotations

import signal
import time

POLL_S = 0.1
"""A signal that comes in the moment before a wait begins wakes nobody: no wait may last."""


class StopSignal:
    """Made in the main thread. The handler sets a flag and nothing more: a `threading.Event` has a lock, which the very
    code that the handler interrupts may hold.
    """

    def __init__(self, *numbers: signal.Signals) -> None:
        self._came = False
        for number in numbers or (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._note)

    def wait(self, limit_s: float = float("inf")) -> bool:
        """Whether it came, at the latest after so long."""
        until = time.monotonic() + limit_s
        while not self._came and (left := until - time.monotonic()) > 0:
            time.sleep(min(POLL_S, left))
        return self._came

    def _note(self, *_: object) -> None:
        self._came = True
