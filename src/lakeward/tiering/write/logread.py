# SPDX-License-Identifier: Apache-2.0
"""Reading a log range through a server that may go away: reads go on where they stopped, within a limit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

import pyarrow as pa

from lakeward.changelog import Fold
from lakeward.errors import Unavailable
from lakeward.model import Bucket, Clock, OffsetRange, TableInfo
from lakeward.spi import HotStore, read_on
from lakeward.tiering.work.backoff import delays


class Signal(Protocol):
    """Whether a read may go on."""

    def check(self) -> None:
        """Raises why it must not."""

    def wait(self, seconds: float) -> None:
        """Waits; raises at once when it must not go on."""


class LogSource(Protocol):
    """Where a split's rows come from. `bytes_read`: what reading them took here."""

    bytes_read: int

    def read(self, start: int, stop: int, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """Batches with rows, in offset order. May be called again once a read has ended."""

    def fold(self, span: OffsetRange) -> Fold:
        """The fold of what `read` gives for this range."""


class LogReader:
    """Reads of one split. Safe to read several times (two passes)."""

    def __init__(
        self, store: HotStore, table: TableInfo, bucket: Bucket, signal: Signal, clock: Clock, wait_s: float
    ) -> None:
        self._store, self._table, self._bucket = store, table, bucket
        self._signal, self._clock, self._wait_s = signal, clock, wait_s
        self.bytes_read = 0

    def read(self, start: int, stop: int, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """Batches with rows, in offset order; checks between them whether the round may go on.

        Raises `LeaseLost`; `ServerUnavailable` once the store was away for longer than the limit."""
        patience = _RoundPatience(self._signal, self._clock, self._wait_s)
        for batch in read_on(
            lambda at: self._store.read_log(self._table, self._bucket, at, stop, columns), start, patience
        ):
            self._signal.check()
            if batch.num_rows:
                self.bytes_read += batch.nbytes
                yield batch

    def fold(self, span: OffsetRange) -> Fold:
        return Fold(span.start, span.stop)


class _RoundPatience:
    """Until the store was away for `limit_s`, or the round is stopped."""

    def __init__(self, signal: Signal, clock: Clock, limit_s: float) -> None:
        self._signal, self._clock, self._limit_s = signal, clock, limit_s
        self.progress()

    def progress(self) -> None:
        self._waits = delays()
        self._lost_at: float | None = None

    def pause(self, error: Unavailable) -> None:
        now = self._clock.monotonic()
        self._lost_at = now if self._lost_at is None else self._lost_at
        if now - self._lost_at > self._limit_s:
            raise error
        self._signal.wait(next(self._waits))
