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
    """Makes the C library keep freed memory, so that buffers of a batch's size are reused. By default each is requested
    from the kernel and returned, page by page: half of the CPU time of a read over Flight. Costs at most `_KEPT_BYTES`
    of idle memory. Has no effect with other C libraries than glibc."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return
    mallopt(_MMAP_THRESHOLD, _BATCH_BYTES)
    mallopt(_TRIM_THRESHOLD, _KEPT_BYTES)


@cache
def keep_loaded() -> None:
    """Excludes the objects that exist now, above all modules, from garbage collection. PySpark collects after every
    task: walking 140,000 objects takes 75 ms of CPU each time, a tenth of a round of 10 M rows."""
    gc.collect()  # what is garbage now would stay for ever
    gc.freeze()
