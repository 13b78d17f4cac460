# SPDX-License-Identifier: Apache-2.0
"""Threads for the Iceberg catalog's calls: storage that hangs under one token's tables stops nobody else, and none of
the server's other calls.
"""

from __future__ import annotations

from collections.abc import Callable
from weakref import WeakValueDictionary

import anyio
from anyio import CapacityLimiter
from fastapi import Response

from lakeward.errors import TimedOut
from lakeward.server.query.atonce import AtOnce

LIMIT_S = 120.0
OF_TOKEN, IN_ALL = 24, 96


class CatalogThreads:
    """Of one event loop. A call of a token waits while the token has its share of threads; one that is not done at the
    limit is answered, and counts until its thread comes back."""

    def __init__(self, limit_s: float = LIMIT_S) -> None:
        self._limit_s, self._all = limit_s, CapacityLimiter(IN_ALL)
        self._shares: WeakValueDictionary[str, CapacityLimiter] = WeakValueDictionary()
        self._running = AtOnce("catalog calls that do not end", of_token=2 * OF_TOKEN, in_all=2 * IN_ALL)

    async def run(self, token_name: str, what: str, call: Callable[[], Response]) -> Response:
        """Raises `TimedOut`, `QuotaExceeded`."""
        share = self._shares.setdefault(token_name, CapacityLimiter(OF_TOKEN))

        def counted() -> Response:
            with self._running.counted(token_name):
                return call()

        try:
            with anyio.fail_after(self._limit_s):
                async with share:
                    return await anyio.to_thread.run_sync(counted, abandon_on_cancel=True, limiter=self._all)
        except TimeoutError as error:
            state = "its storage does not answer, and nobody knows whether it takes effect"
            raise TimedOut(what=what, limit_s=self._limit_s, state=state) from error
