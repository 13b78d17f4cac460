# SPDX-License-Identifier: Apache-2.0
"""How much of its answers the Flight server may have under way to the gate. A socket of the file system takes 200 kB
unless it is told otherwise, and then both sides wait for each other's turns; gRPC, which owns the sockets, tells it
nothing.
"""

from __future__ import annotations

import os
import socket
import stat
import sys
from contextlib import suppress
from pathlib import Path

_BYTES = 1 << 20
"""As much as TCP gives a connection that moves much; the system may give less."""

_OPEN = Path("/proc/self/fd")


def widen_outlets(inner: Path) -> None:
    """Every connection that this process has taken on the socket at `inner`. Safe to repeat."""
    if sys.platform != "linux":
        return
    for name in os.listdir(_OPEN):
        with suppress(OSError):  # closed meanwhile, or no socket of that kind
            if stat.S_ISSOCK(os.stat(int(name)).st_mode):
                _widen(os.dup(int(name)), str(inner))


def _widen(copy: int, inner: str) -> None:
    """Of a descriptor of our own: the one that it is a copy of may be closed at any moment, and belong to another."""
    with socket.socket(fileno=copy) as found:
        if found.family == socket.AF_UNIX and found.getsockname() == inner:
            found.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BYTES)
