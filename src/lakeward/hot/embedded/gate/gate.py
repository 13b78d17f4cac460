# SPDX-License-Identifier: Apache-2.0
"""The gate's loop: one thread that takes connections in and moves bytes on all of them."""

from __future__ import annotations

import errno
import os
import selectors
import socket
import ssl
import time
from collections import Counter
from collections.abc import Callable

from lakeward.hot.embedded.gate.callcount import CallCount
from lakeward.hot.embedded.gate.flow import BLOCKED, close_quietly
from lakeward.hot.embedded.gate.passage import READ, WRITE, Passage
from lakeward.hot.embedded.gate.pipes import IS_HERE, Pipes
from lakeward.hot.embedded.gate.rules import Rules
from lakeward.hot.embedded.gate.settings import GateLimits

_BUFFER = 512 * 1024
_LOOK_S = 1.0
_ACCEPTED = 32
"""Connections taken in before the others' turn."""
_LAST_S, _QUIET_S = 2.0, 0.05
"""After the server's end: how long what it sent may take to leave, and how long nothing moves until all of it has."""

Tell = Callable[[str, str, str], None]
"""(cause, peer, text) for the server's log."""


class Gate:
    """`run` returns when `lifeline`, a pipe from the server, is at its end."""

    def __init__(
        self,
        listener: socket.socket,
        inner: str,
        rules: Rules,
        limits: GateLimits,
        tls: ssl.SSLContext | None,
        lifeline: int,
        tell: Tell,
    ) -> None:
        self._listener, self._inner, self._rules, self._limits = listener, inner, rules, limits
        self._tls, self._lifeline, self._tell = tls, lifeline, tell
        self._selector = selectors.DefaultSelector()
        self._buffer = memoryview(bytearray(_BUFFER))
        self._pipes = Pipes() if IS_HERE else None
        self._calls = CallCount(limits.streams)
        self._passages: dict[Passage, tuple[int, int]] = {}
        self._peers: Counter[str] = Counter()
        self._again: set[Passage] = set()
        self._full_until = 0.0

    def run(self) -> None:
        self._listener.setblocking(False)
        self._selector.register(self._listener, READ)
        self._selector.register(self._lifeline, READ)
        look_at = time.monotonic() + _LOOK_S
        while True:
            for key, mask in self._selector.select(0 if self._again else max(0.0, look_at - time.monotonic())):
                if key.data is not None:
                    self._step(key.data[0], is_client=key.data[1], mask=mask)
                elif key.fileobj is self._listener:
                    self._accept()
                elif not os.read(self._lifeline, 1024):
                    self._end()
                    return
            for passage in list(self._again):
                self._step(passage, is_client=True, mask=READ)
            if time.monotonic() >= look_at:
                self._look()
                look_at = time.monotonic() + _LOOK_S

    def _accept(self) -> None:
        for _ in range(_ACCEPTED):
            try:
                client, address = self._listener.accept()
            except BLOCKED:
                return
            except OSError as error:
                if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
                    self._tell("full", "", f"no more connections for now: {error}")
                    self._selector.unregister(self._listener)
                    self._full_until = time.monotonic() + _LOOK_S
                    return
                continue
            self._let_in(client, (str(address[0]), int(address[1])))

    def _let_in(self, client: socket.socket, peer: tuple[str, int]) -> None:
        count, own = len(self._passages), self._peers[peer[0]]
        if count >= self._limits.connections or own >= self._limits.connections_per_peer:
            self._tell("connections", peer[0], f"{count} connections are open, {own} of them its own")
            if not self._make_room(peer[0]):
                close_quietly(client)
                return
        try:
            client.setblocking(False)
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._tls is not None:
                client = self._tls.wrap_socket(client, server_side=True, do_handshake_on_connect=False)
        except OSError:
            close_quietly(client)
            return
        passage = Passage(
            client, peer, self._inner, self._rules, self._limits, self._pipes, time.monotonic, self._calls
        )
        self._peers[peer[0]] += 1
        self._passages[passage] = (0, 0)
        self._watch(passage)

    def _make_room(self, host: str) -> bool:
        """Ends the oldest connection of this host on which no call is under way: who opens many and says nothing on
        them keeps nobody out who shares its address."""
        idle = next((p for p in self._passages if p.host == host and not p.inward.streams), None)
        if idle is not None:
            idle.close()
            self._watch(idle)
        return idle is not None

    def _step(self, passage: Passage, *, is_client: bool, mask: int) -> None:
        if passage not in self._passages:
            return  # it ended earlier in this turn
        is_read, is_write = bool(mask & READ), bool(mask & WRITE)
        passage.step(self._buffer, up=is_read if is_client else is_write, down=is_write if is_client else is_read)
        if passage.has_news:
            self._tell_news(passage)
        self._watch(passage)

    def _tell_news(self, passage: Passage) -> None:
        for cause, text in passage.news():
            self._tell(cause, passage.peer, text)

    def _watch(self, passage: Passage) -> None:
        """Tells the selector what this passage waits for now."""
        before = self._passages[passage]
        wanted = (0, 0) if passage.is_over else passage.wanted()
        if passage.has_more:
            self._again.add(passage)
        elif self._again:
            self._again.discard(passage)
        if wanted == before and not passage.is_over:
            return
        for is_client, (found, old, new) in enumerate(
            ((passage.server, before[1], wanted[1]), (passage.client, before[0], wanted[0]))
        ):
            if old == new or found is None:
                continue
            if not old:
                self._selector.register(found, new, (passage, bool(is_client)))
            elif not new:
                self._selector.unregister(found)
            else:
                self._selector.modify(found, new, (passage, bool(is_client)))
        if passage.is_over:
            passage.close_sockets()
            del self._passages[passage]
            self._again.discard(passage)
            self._peers[passage.host] -= 1
            if not self._peers[passage.host]:
                del self._peers[passage.host]
            return
        self._passages[passage] = wanted

    def _look(self) -> None:
        now = time.monotonic()
        for passage in list(self._passages):
            passage.look(now)
            self._tell_news(passage)
            self._watch(passage)
        if self._full_until and now >= self._full_until:
            self._full_until = 0.0
            self._selector.register(self._listener, READ)

    def _end(self) -> None:
        """The port is free at once; what the server said last still reaches its clients."""
        if not self._full_until:
            self._selector.unregister(self._listener)
        self._selector.unregister(self._lifeline)
        self._listener.close()
        give_up_at = time.monotonic() + _LAST_S
        while self._passages and time.monotonic() < give_up_at:
            events = self._selector.select(_QUIET_S)
            if not events:
                return
            for key, mask in events:
                self._step(key.data[0], is_client=key.data[1], mask=mask)
