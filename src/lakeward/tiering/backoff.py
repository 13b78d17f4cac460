# SPDX-License-Identifier: Apache-2.0
"""How long to wait before trying again: doubling delays with jitter, up to a ceiling."""

from __future__ import annotations

import random
from collections.abc import Iterator


def delays(first_s: float = 0.1, ceiling_s: float = 5.0) -> Iterator[float]:
    """Endless. Half of each delay is random, so that many jobs do not come back in step."""
    delay = first_s
    while True:
        yield delay * (0.5 + random.random() / 2)  # noqa: S311 - spreading retries needs no secrecy
        delay = min(delay * 2, ceiling_s)
