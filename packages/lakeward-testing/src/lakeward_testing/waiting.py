# SPDX-License-Identifier: Apache-2.0
"""Waiting for something to become true, with a limit, in place of sleeping and hoping."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from lakeward.errors import TimedOut

T = TypeVar("T")

at_limit: list[Callable[[], object]] = []
"""Called before a wait gives up, while what it waited for still runs: a test's report takes the stacks then."""


def note_limit() -> None:
    """Who waits in another way than `wait_until` calls this before giving up."""
    for call in at_limit:
        call()


def wait_until(
    condition: Callable[[], T],
    *,
    limit_s: float = 120.0,
    poll_s: float = 0.02,
    what: str = "condition",
    state: Callable[[], object] | None = None,
    tolerate: tuple[type[Exception], ...] = (),
) -> T:
    """The first true answer of `condition`. Raises `TimedOut`, with what `state` says, after `limit_s`.

    Errors in `tolerate` count as "not yet" (a server that does not listen yet)."""
    deadline = time.monotonic() + limit_s
    last: object = "never true"
    while True:
        try:
            answer = condition()
            if answer:
                return answer
        except tolerate as error:
            last = repr(error)
        if time.monotonic() >= deadline:
            note_limit()
            raise TimedOut(what=what, limit_s=limit_s, state=str(state() if state else last))
        time.sleep(poll_s)
