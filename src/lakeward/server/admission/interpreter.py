# SPDX-License-Identifier: Apache-2.0
"""How a server's process runs Python: threads take turns often, and what stays is left out of garbage collection."""

from __future__ import annotations

import gc
import sys

SWITCH_S = 0.0005
"""How long one thread may keep the others from running Python. A heartbeat gives up its turn a dozen times (sockets,
threads, SQLite) and waits so long each time beside a busy thread: with Python's own 5 ms that adds up to more than all
its work."""


def share_turns() -> None:
    sys.setswitchinterval(SWITCH_S)


GARBAGE = (2_000, 10, 20)
"""Objects made before the youngest are looked through, and how often older ones are: each look stops every thread."""


def keep_loaded() -> None:
    """Called once everything is up: looking through all of it for garbage, again and again, would stop every thread."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GARBAGE)
