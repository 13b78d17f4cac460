# SPDX-License-Identifier: Apache-2.0
"""How long a failed table waits before its next round."""

from __future__ import annotations

import random


def backoff_ms(failures_in_a_row: int, *, first_s: float, limit_s: float, jitter: float, seed: str) -> int:
    """Doubles with each failure up to the limit; the jitter, a share added or taken, keeps tables that failed together
    from coming back together. The same seed gives the same wait."""
    whole = min(limit_s, first_s * 2 ** min(30, max(0, failures_in_a_row - 1)))
    share = random.Random(f"{seed}/{failures_in_a_row}").uniform(-jitter, jitter)  # noqa: S311 (spreads load, guards nothing)
    return int(1_000 * whole * (1 + share))
