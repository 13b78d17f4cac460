# SPDX-License-Identifier: Apache-2.0
"""Acknowledges the puts of one stream in order, in a thread of its own: the next batch is read and stored while the
disk works.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType

from lakeward.errors import LakewardError, RemoteError, to_wire
from lakeward.hot.embedded.serve.flightdata import write_field
from lakeward.hot.embedded.serve.status import CallEnded
from lakeward.hot.embedded.storerows import PendingAppend
from lakeward.protocol.flight import PutAck, to_bytes

UNDER_WAY = 64
"""Puts that may wait for the disk at once: twice what our own clients have under way."""


class Acknowledger:
    """`add` each put as it is stored. Leaving the block waits until all are acknowledged; it raises what kept one from
    it.

    A put that cannot be acknowledged ends the stream: the peer hears why in place of the acknowledgement, since the
    thread that reads from it may wait for a batch that the peer does not send before it hears something."""

    def __init__(self, write: Callable[[bytes], None]) -> None:
        """`write` sends one message. It is never called twice at once."""
        self._write = write
        self._changed = threading.Condition()
        self._waiting: deque[tuple[PendingAppend, Callable[[], None]]] = deque()
        self._busy = self._ended = False
        self._failure: Exception | None = None
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Acknowledger:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._changed:
            self._ended = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join()
        if error is None and self._failure is not None:
            raise self._failure

    def add(self, put: PendingAppend, release: Callable[[], None]) -> None:
        """`release` is called once the put is on disk or has failed. Raises what an earlier put failed with."""
        with self._changed:
            self._changed.wait_for(lambda: len(self._waiting) < UNDER_WAY or self._failure is not None)
            if self._failure is not None:
                release()
                raise self._failure
            at_once = put.is_ready and not self._waiting and not self._busy
            if not at_once:
                self._waiting.append((put, release))
                self._changed.notify_all()
        if at_once:
            self._acknowledge(put, release)
        elif self._thread is None:
            self._thread = threading.Thread(target=self._run, name="acks", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._busy = False
                self._changed.wait_for(lambda: bool(self._waiting) or self._ended)
                if not self._waiting:
                    return
                put, release = self._waiting.popleft()
                self._busy = True
                self._changed.notify_all()
            try:
                self._acknowledge(put, release)
            except Exception as error:  # noqa: BLE001 - whatever it is, the peer hears of it
                self._give_up(error)
                return

    def _acknowledge(self, put: PendingAppend, release: Callable[[], None]) -> None:
        try:
            appended = put.wait()
        finally:
            release()
        self._send(PutAck(start=appended.start, stop=appended.stop))

    def _give_up(self, error: Exception) -> None:
        with self._changed:
            self._failure = error
            unanswered = list(self._waiting)
            self._waiting.clear()
            self._changed.notify_all()
        for _, release in unanswered:
            release()
        reason = (
            error
            if isinstance(error, LakewardError)
            else RemoteError(remote_code="internal", text="the server failed on a put")
        )
        with suppress(CallEnded):
            self._send(PutAck(start=-1, stop=-1, error=to_wire(reason)))

    def _send(self, ack: PutAck) -> None:
        self._write(write_field(1, to_bytes(ack)))
