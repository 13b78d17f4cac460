# SPDX-License-Identifier: Apache-2.0
"""One client's connection and, once it has greeted, its connection to the Flight server."""

from __future__ import annotations

import selectors
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress

from lakeward.errors import ServerUnavailable
from lakeward.hot.embedded.gate.callcount import CallCount
from lakeward.hot.embedded.gate.flow import BLOCKED, Flow, close_quietly
from lakeward.hot.embedded.gate.frames import NO_ERROR, Misbehaved, goaway
from lakeward.hot.embedded.gate.inward import Inward
from lakeward.hot.embedded.gate.outward import Outward
from lakeward.hot.embedded.gate.pipes import Pipes
from lakeward.hot.embedded.gate.rules import Rules
from lakeward.hot.embedded.gate.settings import GateLimits

READ, WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE
_TURNS = 8
"""Reads in a row before the others' turn."""
_LAST_WORDS_S = 1.0
"""From the word that a connection ends to its end."""


class Passage:
    """`step` does what can be done without waiting. `is_over` when both connections are closed."""

    def __init__(
        self,
        client: socket.socket,
        peer: tuple[str, int],
        inner: str,
        rules: Rules,
        limits: GateLimits,
        pipes: Pipes | None,
        clock: Callable[[], float],
        calls: CallCount | None = None,
    ) -> None:
        self.client, self.host, self.limits, self._inner, self._clock = client, peer[0], limits, inner, clock
        self.server: socket.socket | None = None
        self.peer = f"[{peer[0]}]:{peer[1]}" if ":" in peer[0] else f"{peer[0]}:{peer[1]}"
        self.inward = Inward(rules, self.peer, clock, calls)
        self.outward = Outward(self.inward, clock)
        pipes = None if isinstance(client, ssl.SSLSocket) else pipes
        self.up = Flow(client, None, self.inward, pipes, clock)
        self.down: Flow | None = None
        self._pipes = pipes
        self._said: list[bytes] = []
        self._begun_at = self._calls_at = clock()
        self._closing_at: float | None = None
        self._is_tls = isinstance(client, ssl.SSLSocket)
        self._is_shaken = not self._is_tls
        self._fault: str | None = None
        self.is_over = False

    def wanted(self) -> tuple[int, int]:
        """What the client's and the server's sockets are waited for."""
        if self.down is None:
            return READ, 0
        if self._closing_at is not None:
            return WRITE if self.down.is_blocked else 0, 0
        up, down = self.up.is_blocked, self.down.is_blocked
        return (0 if up else READ) | (WRITE if down else 0), (0 if down else READ) | (WRITE if up else 0)

    @property
    def has_news(self) -> bool:
        return bool(self.inward.refusals) or self._fault is not None

    @property
    def has_more(self) -> bool:
        """Bytes that TLS has read already; no selector tells of them."""
        return self._is_tls and not self.up.is_blocked and self.client.pending() > 0  # type: ignore[attr-defined]

    def step(self, buffer: memoryview, *, up: bool, down: bool) -> None:
        try:
            if self._closing_at is not None:
                self._say()
                return
            if up and self._shake():
                self._step_up(buffer)
            if down and self.down is not None:
                self._step_down(self.down, buffer)
            elif self._said:
                self._say()
        except Misbehaved as error:
            self._fault = error.text
            self._end(error.code, error.text)
        except (EOFError, OSError):
            self.close()
        except Exception as error:  # noqa: BLE001 - no client may end the gate, and with it the others' connections
            self._fault = f"{type(error).__name__}: {error}"
            self.close()

    def news(self) -> list[tuple[str, str]]:
        """(cause, text) of what was refused since the last time."""
        told = [(error.code, f"{method}: {error}") for method, error in self.inward.refusals]
        self.inward.refusals = []
        if self._fault is not None:
            told.append(("misbehaved", self._fault))
            self._fault = None
        return told

    def look(self, now: float) -> None:
        """Called about once a second: ends what stands still."""
        limits, inward = self.limits, self.inward
        if self._closing_at is not None:
            if now > self._closing_at:
                self.close()
            return
        if inward.streams:
            self._calls_at = now
        if not inward.is_admitted and now - self._begun_at > limits.header_s:
            self._end(NO_ERROR, "no call came")
        elif not inward.streams and now - self._calls_at > limits.idle_s:
            self._end(NO_ERROR, "no call came for long")
        elif self._stands_still(now):
            self.close()
        elif self.down is not None and not inward.run:
            self._end_idle_calls(now)

    def _stands_still(self, now: float) -> bool:
        """The client left a frame half sent, or does not read what it asked for."""
        if not self.up.is_blocked and (self.up.has_residue or self.inward.is_inside):
            return now - self.up.moved_at > self.limits.header_s
        return self.down is not None and self.down.is_blocked and now - self.down.moved_at > self.limits.idle_s

    def close(self) -> None:
        """Over; the sockets themselves are closed once no selector knows them."""
        self.is_over = True
        self.inward.close()
        self.up.close()
        if self.down is not None:
            self.down.close()

    def close_sockets(self) -> None:
        close_quietly(self.client, self.server)

    def _shake(self) -> bool:
        if not self._is_shaken:
            assert isinstance(self.client, ssl.SSLSocket)
            try:
                self.client.do_handshake()
            except BLOCKED:
                return False
            self._is_shaken = True
        return True

    def _step_up(self, buffer: memoryview) -> None:
        for _ in range(_TURNS):
            if self.down is not None and not self.up.push():
                return
            has_more = self.up.pull(buffer)
            if self.inward.back:
                self._said += self.inward.back
                self.inward.back = []
            if self.down is None and self.inward.is_greeted:
                self._connect()
            if not has_more:
                return

    def _step_down(self, down: Flow, buffer: memoryview) -> None:
        for _ in range(_TURNS):
            if not self._say():
                return
            if not down.pull(buffer):
                break
        if self._said:
            self._say()

    def _say(self) -> bool:
        """Sends what waits for the client, then what the gate itself has to say; false when that takes longer."""
        if self.down is None or not self.down.push():
            return False
        if self._said and self.outward.is_between:
            said, self._said = self._said, []
            self.down.send([*said])
        return not self.down.is_blocked

    def _connect(self) -> None:
        """The client has said that it speaks HTTP/2. Until then it costs a socket."""
        self.server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.server.setblocking(False)
        with suppress(OSError):
            self.server.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
        self.server.connect(self._inner)
        self.up.target = self.server
        self.down = Flow(self.server, self.client, self.outward, self._pipes, self._clock)
        self.up.push()

    def _end(self, code: int, text: str) -> None:
        """Tells the client, which takes new calls elsewhere, and closes a moment later."""
        if self.down is None or self._closing_at is not None:
            self.close()
            return
        self._closing_at = self._clock() + _LAST_WORDS_S
        self._said.append(goaway(self.inward.last_id, code, text))
        try:
            self._say()
        except OSError:
            self.close()

    def _end_idle_calls(self, now: float) -> None:
        for stream in list(self.inward.streams.values()):
            if not stream.is_ended and now - stream.active_at > self.limits.idle_s:
                reason = f"nothing was sent for {self.limits.idle_s:g} s"
                self.inward.end(stream, ServerUnavailable(address="Flight", what=stream.call.method, reason=reason))
        pieces, self.inward.out = self.inward.out, []
        self._said += self.inward.back
        self.inward.back = []
        try:
            if pieces:
                self.up.send(pieces)
            self._say()
        except OSError:
            self.close()
