# SPDX-License-Identifier: Apache-2.0
"""Bodies of requests as they come in: how long one may be, how long it may take, and how much all of them may hold."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from starlette.types import Message, Receive

from lakeward.errors import InvalidRequest, Overloaded

PAUSE_S = 30.0
"""Between two pieces of a body: a peer that stops in the middle holds what it has sent in memory."""

PAUSES = 10
"""So many of them a whole body may take."""

SMALL_BYTES = 256 << 10
"""A body up to here is always taken: calls of jobs and people have some kilobytes."""

LARGE_AT_ONCE = 4
"""Number of bodies of the largest size that may be in memory at once, for all callers."""


class BodyBudget:
    """One per server, for its event loop. `held`: the bytes of large bodies under way."""

    def __init__(self, max_bytes: int, pause_s: float = PAUSE_S, clock: Callable[[], float] = time.monotonic) -> None:
        self.max_bytes, self.pause_s, self.clock = max_bytes, pause_s, clock
        self.limit, self.held = LARGE_AT_ONCE * max_bytes, 0

    def too_large(self, size: str) -> InvalidRequest:
        return InvalidRequest(what="request body", reason=f"{size}, at most {self.max_bytes} bytes are taken")


class CountedBody:
    """One request's. The size is counted on what arrives: chunked bodies announce none."""

    def __init__(self, receive: Receive, budget: BodyBudget) -> None:
        self._receive, self._budget = receive, budget
        self._seen = self._charged = 0
        self._is_whole = False
        self._until = budget.clock() + PAUSES * budget.pause_s

    async def receive(self) -> Message:
        """Raises `InvalidRequest`, and `Overloaded`, which is tried again."""
        if self._is_whole:
            return await self._receive()
        budget = self._budget
        try:
            message = await asyncio.wait_for(self._receive(), budget.pause_s)
        except TimeoutError:
            raise InvalidRequest(what="request body", reason=f"nothing came for {budget.pause_s:g} s") from None
        self._seen += len(message.get("body", b""))
        self._is_whole = not message.get("more_body", False)
        if self._seen > budget.max_bytes:
            raise budget.too_large("too long")
        if not self._is_whole and budget.clock() > self._until:
            raise InvalidRequest(what="request body", reason=f"not whole after {PAUSES * budget.pause_s:g} s")
        if self._seen > SMALL_BYTES:
            self._charge()
        return message

    def _charge(self) -> None:
        more, budget = self._seen - self._charged, self._budget
        if budget.held + more > budget.limit:
            raise Overloaded(what="request body", in_use_bytes=budget.held, limit_bytes=budget.limit)
        budget.held += more
        self._charged += more

    def release(self) -> None:
        self._budget.held -= self._charged
        self._charged = 0
