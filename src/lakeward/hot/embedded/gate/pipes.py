# SPDX-License-Identifier: Apache-2.0
"""Pipes through which bytes go from socket to socket inside the kernel (Linux's splice)."""

from __future__ import annotations

import fcntl
import os
import socket
import sys
from contextlib import suppress

IS_HERE = sys.platform == "linux"
_BYTES = 1 << 20
_KEPT = 16
"""Empty pipes that are kept open for the next use."""


class Pipe:
    """Holds what was filled in and not poured out yet."""

    def __init__(self) -> None:
        self._out, self._in = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        with suppress(OSError):  # a user's pipes may be limited: a smaller one is slower and no more
            fcntl.fcntl(self._in, fcntl.F_SETPIPE_SZ, _BYTES)
        self.held = 0

    def fill(self, source: socket.socket, size: int) -> int:
        """Raises `BlockingIOError` when nothing is there; 0 at the end."""
        self.held = os.splice(source.fileno(), self._in, min(size, _BYTES), flags=os.SPLICE_F_NONBLOCK)
        return self.held

    def pour(self, target: socket.socket, has_more: bool) -> None:
        """Raises `BlockingIOError` when the target takes nothing now."""
        flags = os.SPLICE_F_NONBLOCK | (os.SPLICE_F_MORE if has_more else 0)
        while self.held:
            self.held -= os.splice(self._out, target.fileno(), self.held, flags=flags)

    def close(self) -> None:
        os.close(self._out)
        os.close(self._in)


class Pipes:
    """Taken while they hold something, given back empty."""

    def __init__(self) -> None:
        self._free: list[Pipe] = []

    def take(self) -> Pipe:
        return self._free.pop() if self._free else Pipe()

    def give(self, pipe: Pipe) -> None:
        if pipe.held or len(self._free) >= _KEPT:
            pipe.close()
        else:
            self._free.append(pipe)
