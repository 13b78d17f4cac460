# SPDX-License-Identifier: Apache-2.0
"""Threads for calls that go to a lake: storage that hangs under one token's tables stops no other token, and no other
call of the server.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import ParamSpec, TypeVar
from weakref import WeakValueDictionary

import anyio
from anyio import CapacityLimiter
from fastapi import Request

from lakeward.errors import QuotaExceeded, TimedOut
from lakeward.server.admission.auth import caller

LIMIT_S = 120.0
LONG_S = 900.0
"""Time limit of an operator's request: dropping a lake table with a million files takes minutes."""

OF_TOKEN, IN_ALL = 24, 96

P = ParamSpec("P")
T = TypeVar("T")


class LakeThreads:
    """Threads for lake calls of one event loop. A call waits while its token uses its share of threads; a call that
    reaches the time limit is answered with an error, and counts until its thread returns."""

    def __init__(self, limit_s: float = LIMIT_S) -> None:
        self._limit_s, self._all = limit_s, CapacityLimiter(IN_ALL)
        self._shares: WeakValueDictionary[str, CapacityLimiter] = WeakValueDictionary()
        self._running = AtOnce("calls of the lake that do not end", of_token=2 * OF_TOKEN, in_all=2 * IN_ALL)

    async def ask(self, request: Request, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """For a resource. Raises `TimedOut`, `QuotaExceeded`."""
        limit_s = self._limit_s if request.method == "GET" else LONG_S
        what = f"{request.method} {request.url.path}"
        return await self.run(caller(request).name, what, partial(call, *args, **kwargs), limit_s)

    async def run(self, token_name: str, what: str, call: Callable[[], T], limit_s: float | None = None) -> T:
        """Raises `TimedOut`, `QuotaExceeded`."""
        limit_s = self._limit_s if limit_s is None else limit_s
        share = self._shares.setdefault(token_name, CapacityLimiter(OF_TOKEN))

        def counted() -> T:
            with self._running.counted(token_name):
                return call()

        try:
            with anyio.fail_after(limit_s):
                async with share:
                    return await anyio.to_thread.run_sync(counted, abandon_on_cancel=True, limiter=self._all)
        except TimeoutError as error:
            state = "its storage does not answer, and nobody knows whether it takes effect"
            raise TimedOut(what=what, limit_s=limit_s, state=state) from error


class AtOnce:
    """Thread-safe."""

    def __init__(self, what: str, *, of_token: int, in_all: int) -> None:
        self._what, self._of_token, self._in_all = what, of_token, in_all
        self._lock, self._running = threading.Lock(), Counter[str]()

    @contextmanager
    def counted(self, token: str) -> Iterator[None]:
        """Raises `QuotaExceeded`, and nothing was counted."""
        with self._lock:
            own_running, in_all = self._running[token], self._running.total()
            if own_running >= self._of_token:
                raise QuotaExceeded(token_name=token, what=self._what, used=own_running, limit=self._of_token)
            if in_all >= self._in_all:
                raise QuotaExceeded(token_name=token, what=f"{self._what} with others", used=in_all, limit=self._in_all)
            self._running[token] += 1
        try:
            yield
        finally:
            with self._lock:
                self._running[token] -= 1
