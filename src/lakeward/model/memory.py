# SPDX-License-Identifier: Apache-2.0
"""How much memory this process holds."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path


def resident_bytes() -> int | None:
    """None where the system does not tell."""
    with suppress(OSError, ValueError, IndexError):
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return None
