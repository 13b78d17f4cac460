# SPDX-License-Identifier: Apache-2.0
"""HTTP connections: how many there may be, in all and from one address, and how long one may send nothing whole."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

log = logging.getLogger(__name__)


class ConnectionLimits:
    """One per server. All calls come from the thread of its event loop."""

    def __init__(self, *, total: int = 1000, per_peer: int = 250, header_s: float = 20.0) -> None:
        self.total, self.per_peer, self.header_s = total, per_peer, header_s
        self._open: dict[str, dict[_Limited, None]] = {}
        """Address -> its connections, the oldest first."""

    def enter(self, peer: str, entering: _Limited) -> bool:
        """At the limit the peer's oldest connection without a running request is closed; if all have one, the new
        connection is refused. A client that opens many idle connections therefore does not lock out others behind the
        same address."""
        peer_connections = self._open.setdefault(peer, {})
        count = self.count()
        if count >= self.total or len(peer_connections) >= self.per_peer:
            idle = next((one for one in peer_connections if one.is_idle), None)
            log.warning(
                "too many connections from %s: %d are open, %d of them its own", peer, count, len(peer_connections)
            )
            if idle is None:
                self._tidy(peer)
                return False
            del peer_connections[idle]
            idle.transport.abort()
        peer_connections[entering] = None
        return True

    def leave(self, peer: str, leaving: _Limited) -> None:
        self._open.get(peer, {}).pop(leaving, None)
        self._tidy(peer)

    def count(self) -> int:
        return sum(map(len, self._open.values()))

    def _tidy(self, peer: str) -> None:
        if not self._open.get(peer, True):
            del self._open[peer]

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
        self._counted = self.limits.enter(self._peer, self)
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
            self.limits.leave(self._peer, self)

    @property
    def is_idle(self) -> bool:
        """No request is under way."""
        return self.cycle is None or self.cycle.response_complete

    def _look_again(self) -> None:
        self._timer = self.loop.call_later(self.limits.header_s, self._look)

    def _look(self) -> None:
        cycle = self.cycle
        if cycle is self._before and self.is_idle:
            self.transport.close()
            return
        self._before = cycle
        self._look_again()
