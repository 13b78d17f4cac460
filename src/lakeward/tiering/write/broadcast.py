# SPDX-License-Identifier: Apache-2.0
"""One read of a bucket's log for several writers, each in a thread of its own: what one does, and how it fails, is
nothing to the others.

Memory: each writer has at most `QUEUE_BYTES` of batches before it, and they are the same batches.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa

from lakeward.changelog import Fold
from lakeward.changelog.columns import offsets_of
from lakeward.errors import LeftBehind
from lakeward.model import Clock, OffsetRange
from lakeward.spi import next_offset
from lakeward.tiering.write.logread import LogSource, Signal
from lakeward.tiering.write.sharedfold import SharedFold, SideFold

QUEUE_BYTES = 32 * 1024 * 1024
"""Some batches of the log: enough that writers need not keep step."""

LOOK_S = 0.2
"""How often one that waits looks whether it may go on."""

Columns = tuple[str, ...] | None
Late = Callable[[float], LeftBehind]


class Listener:
    """One writer's access to the read: a `LogSource`, used by its thread alone. It changes the broadcast's state under
    the broadcast's lock."""

    def __init__(self, broadcast: Broadcast, signal: Signal, late: Late) -> None:
        self._broadcast, self._signal, self.late = broadcast, signal, late
        self.bytes_read = 0
        self.asked: tuple[int, int, Columns] | None = None
        """The range and columns that it waits for; None: it writes, or has ended."""

        self.queue: deque[pa.RecordBatch] = deque()
        self.queued_bytes = 0
        self.has_all = False
        """The whole requested range is in the queue."""

        self.error: Exception | None = None
        """The error that its next read raises."""

        self.is_over = False
        self.is_left = False
        self.seen_at = 0.0
        """When it was last heard of."""

    def read(self, start: int, stop: int, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """Raises what the read itself raised; `LeftBehind` once the others went on without this one."""
        self._broadcast.ask(self, start, stop, None if columns is None else tuple(columns))
        try:
            while (batch := self._next()) is not None:
                yield batch
        finally:  # also of one that stops before the end
            self._broadcast.heard(self)

    def _next(self) -> pa.RecordBatch | None:
        while True:
            self._signal.check()
            came, batch = self._broadcast.take(self, LOOK_S)
            if came:
                return batch

    def fold(self, span: OffsetRange) -> Fold:
        return self._broadcast.fold(span)


class Broadcast:
    """`run` is the thread that reads; it ends once every listener is over or was left behind. A listener that says
    nothing for `patience_s` while another one waits for it is left behind."""

    def __init__(self, clock: Clock, patience_s: float) -> None:
        self._clock, self._patience_s = clock, patience_s
        self._changed = threading.Condition()
        self._listeners: list[Listener] = []
        self._folds: dict[tuple[int, int], SharedFold] = {}

    def listener(self, signal: Signal, late: Late) -> Listener:
        """Before `run`. `late` makes the error of one that was left behind, from its seconds of silence."""
        listener = Listener(self, signal, late)
        listener.seen_at = self._clock.monotonic()
        self._listeners.append(listener)
        return listener

    # ---- what listeners call ---------------------------------------------------------------------------------------
    def ask(self, listener: Listener, start: int, stop: int, columns: Columns) -> None:
        with self._changed:
            listener.queue.clear()
            listener.queued_bytes, listener.has_all = 0, False
            listener.asked = (start, stop, columns)
            self._heard(listener)

    def take(self, listener: Listener, wait_s: float) -> tuple[bool, pa.RecordBatch | None]:
        """(true, the next batch, or None at the end), or false: nothing came so far."""
        with self._changed:
            self._changed.wait_for(lambda: listener.queue or listener.has_all or listener.error is not None, wait_s)
            if listener.error is not None:
                raise listener.error
            if listener.queue:
                batch = listener.queue.popleft()
                listener.queued_bytes -= batch.nbytes
                self._heard(listener)
                return True, batch
            return listener.has_all, None

    def heard(self, listener: Listener) -> None:
        """It has what it asked for, or wants no more of it."""
        with self._changed:
            listener.asked = None
            listener.queue.clear()
            self._heard(listener)

    def over(self, listener: Listener) -> None:
        """Its writer has ended, well or not. Safe to repeat."""
        with self._changed:
            listener.is_over, listener.asked = True, None
            listener.queue.clear()
            self._heard(listener)

    def fold(self, span: OffsetRange) -> Fold:
        with self._changed:
            shared = self._folds.setdefault((span.start, span.stop), SharedFold(span))
        return SideFold(span, shared)

    def _heard(self, listener: Listener) -> None:
        listener.seen_at = self._clock.monotonic()
        self._changed.notify_all()

    # ---- the thread that reads -------------------------------------------------------------------------------------
    def run(self, source: Callable[[Signal], LogSource]) -> None:
        """Never raises what a listener or the read raised: each listener gets it."""
        reader = source(_WhileHeard(self))
        while group := self._gather():
            try:
                self._serve(reader, group)
            except Exception as error:  # noqa: BLE001 - whatever it is, each of those that wait fails by it
                self._fail(group, error)
            self._count(reader, group)

    @property
    def _here(self) -> list[Listener]:
        return [one for one in self._listeners if not one.is_over and not one.is_left]

    def wait_any(self, seconds: float) -> bool:
        """False: there are no listeners left to read for."""
        with self._changed:
            return not self._changed.wait_for(lambda: not self._here, seconds)

    def _gather(self) -> list[Listener]:
        """Waits until all that live want to read: then what they read is the same. Those that want few columns, for a
        first pass, come first."""
        with self._changed:
            while busy := [one for one in self._here if not _reads(one)]:
                self._changed.wait(LOOK_S)
                self._leave_behind(busy)
            wanted = sorted({_columns(one) for one in self._here}, key=lambda columns: (columns is None, columns or ()))
            return [one for one in self._here if _columns(one) == wanted[0]] if wanted else []

    def _serve(self, reader: LogSource, group: Sequence[Listener]) -> None:
        columns = _columns(group[0])
        for start, stop in _spans(group):
            batches = reader.read(start, stop, columns)
            for batch in batches:
                self._hand_round(batch, group)
                if not self._is_wanted(next_offset(batch), group):
                    break
        with self._changed:
            for one in group:
                one.has_all = True
            self._changed.notify_all()

    def _hand_round(self, batch: pa.RecordBatch, group: Sequence[Listener]) -> None:
        for one in group:
            part = _part(batch, one)
            if part.num_rows:
                self._push(one, part)

    def _push(self, one: Listener, batch: pa.RecordBatch) -> None:
        with self._changed:
            while one.queued_bytes >= QUEUE_BYTES and _reads(one):
                self._changed.wait(LOOK_S)
                self._leave_behind([one])
            if _reads(one):
                one.queue.append(batch)
                one.queued_bytes += batch.nbytes
                self._changed.notify_all()

    def _is_wanted(self, offset: int, group: Sequence[Listener]) -> bool:
        """Is there one that goes on reading from here?"""
        with self._changed:
            return any(one.asked is not None and offset < one.asked[1] for one in group if _reads(one))

    def _leave_behind(self, late: Sequence[Listener]) -> None:
        """Call under the lock. A late writer that delays no other gets all the time it needs."""
        for one in late:
            silent_s = self._clock.monotonic() - one.seen_at
            is_awaited = any(_waits(other) for other in self._listeners if other is not one)
            if silent_s > self._patience_s and is_awaited and not one.is_over:
                one.is_left, one.error = True, one.error or one.late(silent_s)
                one.queue.clear()
                self._changed.notify_all()

    def _fail(self, group: Sequence[Listener], error: Exception) -> None:
        with self._changed:
            for one in group:
                one.error = one.error or error
            self._changed.notify_all()

    def _count(self, reader: LogSource, group: Sequence[Listener]) -> None:
        """Counts the read bytes for one of the rounds for which they were read."""
        group[0].bytes_read += reader.bytes_read
        reader.bytes_read = 0


class _WhileHeard:
    """The read's own signal: it goes on for as long as there is anybody to read for."""

    def __init__(self, broadcast: Broadcast) -> None:
        self._broadcast = broadcast

    def check(self) -> None:
        return

    def wait(self, seconds: float) -> None:
        if not self._broadcast.wait_any(seconds):
            raise _NobodyLeft


class _NobodyLeft(Exception):
    """Ends a read."""


def _columns(listener: Listener) -> Columns:
    assert listener.asked is not None
    return listener.asked[2]


def _reads(listener: Listener) -> bool:
    """It is to get more of what it asked for."""
    is_open = listener.asked is not None and not listener.has_all
    return is_open and listener.error is None and not listener.is_over


def _waits(listener: Listener) -> bool:
    """Its outcome, or its next batch, is held up by another."""
    return not listener.is_left and (listener.is_over or (_reads(listener) and not listener.queue))


def _spans(group: Sequence[Listener]) -> list[tuple[int, int]]:
    spans = list[tuple[int, int]]()
    for start, stop in sorted(one.asked[:2] for one in group if one.asked is not None):
        if spans and start <= spans[-1][1]:
            spans[-1] = spans[-1][0], max(stop, spans[-1][1])
        elif start < stop:
            spans.append((start, stop))
    return spans


def _part(batch: pa.RecordBatch, one: Listener) -> pa.RecordBatch:
    """The part of the batch that the listener requested; a full batch is not copied."""
    if one.asked is None:
        return batch.slice(0, 0)
    start, stop = one.asked[:2]
    offsets = offsets_of(batch)
    first, last = int(offsets.searchsorted(start)), int(offsets.searchsorted(stop))
    return batch if last - first == batch.num_rows else batch.slice(first, last - first)
