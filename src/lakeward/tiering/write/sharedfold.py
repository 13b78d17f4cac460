# SPDX-License-Identifier: Apache-2.0
"""One fold for the writers of several sides that take the same range: each batch is looked at and filtered once."""

from __future__ import annotations

import threading

import pyarrow as pa

from lakeward.changelog import Fold
from lakeward.changelog.columns import offsets_of
from lakeward.model import OffsetRange, OffsetSet
from lakeward.spi import next_offset

KEPT_BATCHES = 8
"""Filtered batches that wait for the slowest writer: about as many as it has before it."""


class SharedFold:
    """Safe to use from several threads. Writers may stop at different offsets: the fold is sealed once for each."""

    def __init__(self, span: OffsetRange) -> None:
        self._fold = Fold(span.start, span.stop)
        self._seen_to = span.start
        self._sealed: dict[int, Fold] = {}
        self._live: dict[tuple[int, int], pa.RecordBatch] = {}
        self._lock = threading.Lock()

    def see(self, batch: pa.RecordBatch) -> None:
        with self._lock:
            if int(offsets_of(batch)[0]) >= self._seen_to:
                self._fold.see(batch)
                self._seen_to = next_offset(batch)

    def seal(self, stop: int) -> Fold:
        with self._lock:
            if stop not in self._sealed:
                self._sealed[stop] = self._fold.copy()
                self._sealed[stop].seal(stop)
            return self._sealed[stop]

    def live(self, sealed: Fold, batch: pa.RecordBatch) -> pa.RecordBatch:
        key = sealed.range.stop, int(offsets_of(batch)[0])
        with self._lock:
            if key not in self._live:
                self._live[key] = sealed.live(batch)
                while len(self._live) > KEPT_BATCHES:
                    del self._live[next(iter(self._live))]
            return self._live[key]


class SideFold(Fold):
    """A shared fold as one writer uses it."""

    def __init__(self, span: OffsetRange, shared: SharedFold) -> None:
        super().__init__(span.start, span.stop)
        self._shared = shared
        self._mine: Fold | None = None

    def see(self, batch: pa.RecordBatch) -> None:
        self._shared.see(batch)

    def seal(self, stop: int | None = None) -> OffsetRange:
        self._mine = self._shared.seal(self.range.stop if stop is None else stop)
        self.range = self._mine.range
        return self.range

    def live(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        assert self._mine is not None, "pass one is not over"
        return self._shared.live(self._mine, batch)

    @property
    def replaced(self) -> OffsetSet:
        assert self._mine is not None, "pass one is not over"
        return self._mine.replaced
