# SPDX-License-Identifier: Apache-2.0
"""How long to wait before trying again: doubling delays with jitter, up to a ceiling."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import TypeVar

from lakeward.errors import LakeUnavailable, Unavailable
from lakeward.model import Clock
from lakeward.tiering.work.control import RoundControl

_JITTER = random.Random()  # noqa: S311 - spreading retries needs no secrecy
"""A separate generator, so that seeding `random` elsewhere does not affect it."""

T = TypeVar("T")

LAKE_PATIENCE_S = 20.0
"""A lake that does not answer for longer fails the round: the coordinator then waits with the table, and the slot is
free.
"""


def delays(first_s: float = 0.1, ceiling_s: float = 5.0) -> Iterator[float]:
    """Endless. Half of each delay is random, so that many jobs do not come back in step."""
    delay = first_s
    while True:
        yield delay * (0.5 + _JITTER.random() / 2)
        delay = min(delay * 2, ceiling_s)


def patiently(call: Callable[[], T], *, clock: Clock, control: RoundControl, server_wait_s: float) -> T:
    """The call's answer, through a server or a lake that is away for a while; what is waited for shows meanwhile.
    Raises why the round was stopped, if it was.
    """
    began = clock.monotonic()
    for delay in delays():
        try:
            answer = call()
            control.show_trouble("")
            return answer
        except (Unavailable, LakeUnavailable) as error:
            limit = server_wait_s if isinstance(error, Unavailable) else min(LAKE_PATIENCE_S, server_wait_s)
            if clock.monotonic() - began + delay > limit:
                raise
            control.show_trouble(str(error))
            control.wait(delay)
    raise AssertionError("delays never end")
