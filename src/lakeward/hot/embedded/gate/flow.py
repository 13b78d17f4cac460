# SPDX-License-Identifier: Apache-2.0
"""One direction of a connection: reads, asks what may pass, sends it on. Nothing is read while something waits to be
sent, so a slow reader is felt by the writer and a connection holds one buffer at most.

The inside of a long frame is moved by the kernel (splice), without a copy through this process.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

from lakeward.hot.embedded.gate.pipes import Pipe, Pipes

BLOCKED = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)

_READ = 32 * 1024
"""Bytes of a read that is looked at, where the rest of a long frame can go by splice."""
_SPLICED = 64 * 1024
"""A run worth the calls that a splice takes."""


_MORE: int = getattr(socket, "MSG_MORE", 0)
"""The rest of a frame follows: the kernel may fill a packet with it, and wakes its reader less often."""


class Passing(Protocol):
    """`take` puts what passes into `out`; `run` bytes behind it pass unseen."""

    out: list[bytes | memoryview]
    run: int

    def take(self, data: memoryview) -> int: ...
    def skip(self, size: int) -> None: ...


class Flow:
    """Sockets do not block. Raises `EOFError` when the source is at its end, `OSError` when a side is gone."""

    def __init__(
        self,
        source: socket.socket,
        target: socket.socket | None,
        passing: Passing,
        pipes: Pipes | None,
        clock: Callable[[], float],
    ) -> None:
        """`pipes`: none where what is read is not what is sent (TLS)."""
        self.source, self.target, self.passing, self._pipes, self._clock = source, target, passing, pipes, clock
        self.moved_at = clock()
        self._is_direct = pipes is not None
        self._residue = b""
        self._waiting = memoryview(b"")
        self._pipe: Pipe | None = None

    @property
    def is_blocked(self) -> bool:
        """Something waits for the target."""
        return bool(self._waiting) or self._pipe is not None

    @property
    def has_residue(self) -> bool:
        """A part of a frame was read that says nothing yet."""
        return bool(self._residue)

    def send(self, pieces: list[bytes | memoryview]) -> None:
        """Behind what waits already; what cannot go now is kept."""
        if self.is_blocked or self.target is None:
            self._waiting = memoryview(b"".join([self._waiting, *pieces]))
            return
        whole = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        sent = self._try(whole)
        if sent < len(whole):
            self._waiting = memoryview(bytes(whole))[sent:]

    def push(self) -> bool:
        """Sends what waits; true when nothing does any more."""
        assert self.target is not None
        while self._pipe is not None:
            try:
                self._pipe.pour(self.target, self.passing.run > 0)
            except BLOCKED:
                return False
            self.moved_at = self._clock()
            if not self._pipe.held:
                self._release()
        while self._waiting:
            sent = self._try(self._waiting)
            if not sent:
                return False
            self._waiting = self._waiting[sent:]
        return True

    def pull(self, buffer: memoryview) -> bool:
        """Reads once and passes on; false when all that was there has been read."""
        passing, stop = self.passing, len(buffer)
        if self._pipes is not None:
            if passing.run >= _SPLICED:
                return self._splice(self._pipes)
            stop = _READ
        kept = len(self._residue)
        if kept:
            buffer[:kept] = self._residue
        size, has_more = self._read(buffer[kept:stop])
        if size:
            self.moved_at = self._clock()
            size += kept
            used = passing.take(buffer[:size])
            self._residue = bytes(buffer[used:size]) if used < size else b""
            if passing.out:
                pieces, passing.out = passing.out, []
                self.send(pieces)
        return has_more

    def close(self) -> None:
        self._release()

    def _read(self, into: memoryview) -> tuple[int, bool]:
        """(bytes, whether more may be there). TLS gives a record at a time: as many as there are."""
        size, wanted = 0, len(into)
        try:
            while size < wanted:
                step = self.source.recv_into(into[size:])
                if not step:
                    break
                size += step
                if self._is_direct:
                    return size, size == wanted
        except BLOCKED:
            return size, False
        if not size:
            raise EOFError
        return size, True

    def _splice(self, pipes: Pipes) -> bool:
        pipe = pipes.take()
        try:
            size = pipe.fill(self.source, self.passing.run)
        except BLOCKED:
            pipes.give(pipe)
            return False
        if not size:
            pipes.give(pipe)
            raise EOFError
        self.moved_at = self._clock()
        self.passing.skip(size)
        self._pipe = pipe
        return True

    def _try(self, whole: bytes | memoryview) -> int:
        """How much of it was sent. OpenSSL wants the very bytes again that it could not send: they are what waits."""
        assert self.target is not None
        try:
            sent = self.target.send(whole, _MORE if self._is_direct and self.passing.run else 0)
        except BLOCKED:
            return 0
        self.moved_at = self._clock()
        return sent

    def _release(self) -> None:
        if self._pipe is not None and self._pipes is not None:
            self._pipes.give(self._pipe)
            self._pipe = None


def close_quietly(*sockets: socket.socket | None) -> None:
    for found in sockets:
        if found is not None:
            with suppress(OSError):
                found.close()
