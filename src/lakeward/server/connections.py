# SPDX-License-Identifier: Apache-2.0
"""HTTP connections: how many there may be, in all and from one address, and how long one may send nothing whole."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

log = logging.getLogger(__name__)


class ConnectionLimits:
    """One per server. All calls come from the thread of its event loop."""

    def __init__(self, *, total: int = 1000, per_peer: int = 250, header_s: float = 20.0) -> None:
        self.total, self.per_peer, self.header_s = total, per_peer, header_s
        self._open: Counter[str] = Counter()

    def enter(self, peer: str) -> bool:
        if self._open.total() >= self.total or self._open[peer] >= self.per_peer:
            log.warning("a connection from %s was refused: %d are open, %d of them its own", peer, *self.counts(peer))
            return False
        self._open[peer] += 1
        return True

    def leave(self, peer: str) -> None:
        self._open[peer] -= 1
        if self._open[peer] <= 0:
            del self._open[peer]

    def counts(self, peer: str) -> tuple[int, int]:
        return self._open.total(), self._open[peer]

    def protocol(self) -> type[H11Protocol]:
        """uvicorn's protocol with these limits."""
        return type("LimitedProtocol", (_Limited,), {"limits": self})


class _Limited(H11Protocol):
    """Closes a connection on which no request began between two looks: a header that does not end is none."""

    limits: ConnectionLimits

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        name: Any = transport.get_extra_info("peername")
        self._peer = str(name[0]) if name else ""
        self._counted = self.limits.enter(self._peer)
        if not self._counted:
            transport.abort()
            return
        self._before: Any = None
        self._look_again()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if self._counted:
            self._counted = False
            self._timer.cancel()
            self.limits.leave(self._peer)

    def _look_again(self) -> None:
        self._timer = self.loop.call_later(self.limits.header_s, self._look)

    def _look(self) -> None:
        cycle = self.cycle
        if cycle is self._before and (cycle is None or cycle.response_complete):
            self.transport.close()
            return
        self._before = cycle
        self._look_again()
