# SPDX-License-Identifier: Apache-2.0
"""Ctrl-C ends a command, whatever it waits for."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Sequence

LIMIT_S = 10.0
CODE = 130
SUPERVISORS = frozenset({"server", "tier", "up", "demo", "chaos", "oracle", "verify"})
"""They stop other processes first, and take the time for it."""


def guard(arguments: Sequence[str], limit_s: float = LIMIT_S) -> None:
    """A command gets `limit_s` to leave after Ctrl-C, then it is ended. An interrupt can hit a library between two
    steps that belong together, such as taking a lock and noting that it is held; closing the connection would then wait
    for ever."""
    called = next((a for a in arguments if not a.startswith("-")), None)
    if called in SUPERVISORS or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        return

    def leave(number: int, frame: object) -> None:
        timer = threading.Timer(limit_s, os._exit, (CODE,))
        timer.daemon = True
        timer.start()
        raise KeyboardInterrupt

    signal.signal(signal.SIGINT, leave)
