# SPDX-License-Identifier: Apache-2.0
"""Flight calls under way, each in a thread of gRPC's, and the watch that ends those whose peer has stopped."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from urllib.parse import unquote

import grpc

from lakeward.hot.embedded.serve.status import CallEnded
from lakeward.model import BackgroundThread
from lakeward.protocol.auth import Token

Send = Callable[[bytes | None], None]


@dataclass(frozen=True)
class Wait:
    """The reason why a call waits: `limit_s` is None where it writes and the peer does not read."""

    since: float
    limit_s: float | None


class FlightCall:
    """One call: whole messages in and out. One thread reads; one at a time writes."""

    def __init__(self, token: Token, context: grpc.ServicerContext, requests: Iterator[bytes], send: Send) -> None:
        self.token, self.peer = token, peer_of(context)
        self._context, self._requests, self._send = context, requests, send
        self._read_wait: Wait | None = None
        self._write_wait: Wait | None = None

    def read(self, limit_s: float) -> bytes | None:
        """The next message, None after the last. One that is not whole within `limit_s` ends the call. Raises
        `CallEnded`."""
        self._read_wait = Wait(time.monotonic(), limit_s)
        try:
            return next(self._requests)
        except StopIteration:
            return None
        except grpc.RpcError as error:
            raise CallEnded from error
        finally:
            self._read_wait = None

    def write(self, message: bytes) -> None:
        """Returns once gRPC has handed it to the network. Raises `CallEnded`."""
        self._write_wait = Wait(time.monotonic(), None)
        try:
            self._send(message)
        finally:
            self._write_wait = None
        if self.is_ended():
            raise CallEnded

    def is_ended(self) -> bool:
        return not self._context.is_active()

    def end_stalled(self, now: float, write_limit_s: float) -> None:
        """Ends it as broken, which clients try again after, if it has waited for its peer for too long, or if its token
        has expired: the next call shows a newer one."""
        if self.token.expires_at_s is not None and time.time() >= self.token.expires_at_s:
            self._context.cancel()
        for wait in (self._read_wait, self._write_wait):
            if wait is not None and now - wait.since > (write_limit_s if wait.limit_s is None else wait.limit_s):
                self._context.cancel()


class CallWatch:
    """Looks at all calls several times in the shortest time that one may wait. Thread-safe."""

    def __init__(self, shortest_s: float, write_limit_s: Callable[[], float]) -> None:
        """`write_limit_s`: how long a peer may take nothing of its answer, as things are."""
        self.calls: set[FlightCall] = set()
        self._write_limit_s = write_limit_s
        self.thread = BackgroundThread("flight-watch", self._look, min(1.0, shortest_s / 4))

    @contextmanager
    def watching(self, call: FlightCall) -> Iterator[None]:
        self.calls.add(call)
        try:
            yield
        finally:
            self.calls.discard(call)

    def _look(self) -> None:
        now, write_limit_s = time.monotonic(), self._write_limit_s()
        for call in self.calls.copy():
            call.end_stalled(now, write_limit_s)


def peer_of(context: grpc.ServicerContext) -> str:
    """Address and port, as `127.0.0.1:1234` or `[::1]:1234`."""
    return unquote(str(context.peer()).partition(":")[2]) or "unknown"
