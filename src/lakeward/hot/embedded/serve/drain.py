# SPDX-License-Identifier: Apache-2.0
"""Whether calls are let in: not before the server is ready, and no more once it is going down."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from lakeward.errors import ServerUnavailable
from lakeward.protocol.routes import STARTING


class CallDrain:
    """Closed at first. Counts the pieces of work inside, so that going down waits for them and not for idle streams."""

    def __init__(self, address: str, *, is_open: bool = True) -> None:
        self.address = address
        self._changed = threading.Condition()
        self._open, self._busy, self._reason = is_open, 0, STARTING

    @property
    def is_open(self) -> bool:
        return self._open

    def open(self) -> None:
        self._open = True

    @contextmanager
    def inside(self) -> Iterator[None]:
        """Raises `ServerUnavailable`, which peers try again, while the gate is closed."""
        with self._changed:
            if not self._open:
                raise ServerUnavailable(address=self.address, reason=self._reason)
            self._busy += 1
        try:
            yield
        finally:
            with self._changed:
                self._busy -= 1
                self._changed.notify_all()

    def drain(self, limit_s: float) -> bool:
        """Refuses new calls and waits for the running ones; false if that took too long."""
        with self._changed:
            self._open, self._reason = False, "it is going down"
            return self._changed.wait_for(lambda: self._busy == 0, limit_s)
