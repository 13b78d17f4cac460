# SPDX-License-Identifier: Apache-2.0
"""The disk-full reserve: writes stop while there is still room for SQLite and uploads."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

from lakeward.errors import DiskFull
from lakeward.model import free_bytes

_LOOK_AGAIN = 16
"""Between two looks at the disk at most a 16th of the reserve is written."""


class DiskReserve:
    """Thread-safe. Looks at the disk after every so many bytes, and on every call while it is full, so it heals by
    itself.
    """

    def __init__(self, folder: Path, reserve_bytes: int, free: Callable[[Path], int] = free_bytes) -> None:
        self._folder, self._reserve, self._free = folder, reserve_bytes, free
        self._lock = threading.Lock()
        self._allowance = 0

    def take(self, size: int) -> None:
        """Before `size` bytes of rows are written. Raises `DiskFull`."""
        with self._lock:
            if size > self._allowance:
                self._look(size)
            self._allowance -= size

    def _look(self, size: int) -> None:
        free = self._free(self._folder)
        if free - size < self._reserve:
            self._allowance = 0
            raise DiskFull(where=str(self._folder), free_bytes=free, reserve_bytes=self._reserve)
        self._allowance = max(size, min(self._reserve // _LOOK_AGAIN, free - self._reserve))
