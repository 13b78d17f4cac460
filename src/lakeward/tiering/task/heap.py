# SPDX-License-Identifier: Apache-2.0
"""How a Python worker treats memory: what batches leave behind in the C heap, and what garbage collection need not look
at.
"""

from __future__ import annotations

import ctypes
import gc
from functools import cache

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
"""Names of glibc's `mallopt`."""

_KEPT_BYTES = 64 * 1024 * 1024
_BATCH_BYTES = 32 * 1024 * 1024
"""The most that glibc takes."""


@cache
def keep_freed_memory() -> None:
    """Buffers of a batch's size are taken from memory that is there. By default each is asked of the kernel anew and
    given back, page by page: half of the CPU time of a read over Flight. Costs at most `_KEPT_BYTES` of idle memory.
    Other C libraries go without."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return
    mallopt(_MMAP_THRESHOLD, _BATCH_BYTES)
    mallopt(_TRIM_THRESHOLD, _KEPT_BYTES)


@cache
def keep_loaded() -> None:
    """What is there by now, modules above all, is left out of garbage collection. PySpark collects after every task:
    looking through 140,000 objects takes 75 ms of CPU each time, a tenth of what a round of 10 M rows takes."""
    gc.collect()  # what is garbage now would stay for ever
    gc.freeze()
