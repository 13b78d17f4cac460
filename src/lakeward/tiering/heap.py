# SPDX-License-Identifier: Apache-2.0
"""How a Python worker's C heap treats memory that batches leave behind."""

from __future__ import annotations

import ctypes
from functools import cache

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
"""Names of glibc's `mallopt`."""

_KEPT_BYTES = 64 * 1024 * 1024
_BATCH_BYTES = 32 * 1024 * 1024
"""The most that glibc takes."""


@cache
def keep_freed_memory() -> None:
    """Buffers of a batch's size are taken from memory that is there. By default each is asked of the kernel anew and given back, page
    by page: half of the CPU time of a read over Flight. Costs at most `_KEPT_BYTES` of idle memory. Other C libraries go without."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return
    mallopt(_MMAP_THRESHOLD, _BATCH_BYTES)
    mallopt(_TRIM_THRESHOLD, _KEPT_BYTES)
