# SPDX-License-Identifier: Apache-2.0
"""A file that is open while it is in use, and opened again when it is used next."""

from __future__ import annotations

import os
from pathlib import Path


class ReopenedFile:
    """Not thread-safe: its owner's lock guards it."""

    def __init__(self, path: Path, flags: int) -> None:
        self._path, self._flags, self._fd = path, flags | os.O_CLOEXEC, -1

    @property
    def fd(self) -> int:
        if self._fd < 0:
            self._fd = os.open(self._path, self._flags, 0o644)
        return self._fd

    @property
    def is_open(self) -> bool:
        return self._fd >= 0

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)
