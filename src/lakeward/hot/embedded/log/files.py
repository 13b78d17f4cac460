# SPDX-License-Identifier: Apache-2.0
"""The segments of a bucket's log, local and remote, as readers see them: found by offset or time, read
without a lock.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from lakeward.errors import OffsetOutOfRange
from lakeward.hot.embedded.log.active import ActiveSegment
from lakeward.hot.embedded.log.index import SparseIndex
from lakeward.hot.embedded.log.remote import RemoteLog
from lakeward.hot.embedded.log.segment import Segment, load_segment, log_path
from lakeward.hot.embedded.log.stored import LocalBytes, SegmentBytes, StoredBatch, iter_batches

_CACHED_INDEXES = 8
"""Cached indexes of closed segments per bucket: at most 24 kB each, and readers move through segments in order."""


@dataclass(frozen=True, kw_only=True)
class LogPlace:
    """Where a log lies and what it is called in errors."""

    folder: Path
    table: str
    bucket: str


@dataclass(frozen=True)
class LocalView:
    """The local segments at one moment. Readers take it with one attribute read."""

    closed: tuple[Segment, ...]
    active: ActiveSegment

    @property
    def bases(self) -> list[int]:
        return [*(s.base for s in self.closed), self.active.base]

    def without(self, bases: Sequence[int]) -> LocalView:
        return LocalView(tuple(s for s in self.closed if s.base not in bases), self.active)


@dataclass(frozen=True)
class _Opened:
    source: SegmentBytes
    index: SparseIndex
    base: int
    size: int
    stop: int
    is_last: bool = False


class LogFiles:
    """`view` is replaced by the log when it rolls or drops segments; everything else here only reads."""

    def __init__(self, place: LogPlace, view: LocalView, remote: RemoteLog | None) -> None:
        self.place, self.view, self.remote = place, view, remote
        self._indexes: OrderedDict[int, SparseIndex] = OrderedDict()

    @property
    def start(self) -> int:
        """The lowest offset that can be read, remote tier included."""
        remote = None if self.remote is None else self.remote.start
        return self.local_start if remote is None else min(remote, self.local_start)

    @property
    def local_start(self) -> int:
        view = self.view
        return view.closed[0].base if view.closed else view.active.base

    @property
    def local_bytes(self) -> int:
        view = self.view
        return sum(s.size for s in view.closed) + view.active.size

    def closed_everywhere(self) -> list[Segment]:
        """Closed segments of both tiers, oldest first, each once."""
        view = self.view
        by_base = {s.base: s for s in (() if self.remote is None else self.remote.segments)}
        by_base.update({s.base: s for s in view.closed})
        return [by_base[base] for base in sorted(by_base)]

    def read_stored(self, start: int, stop: int, *, or_above: bool = False) -> Iterator[StoredBatch]:
        """Stored batches that touch `[start, stop)`, checksums verified. Raises `CorruptBatch`, and `OffsetOutOfRange`
        where retention takes some of them away meanwhile, unless those above will do."""
        offset = start
        while offset < stop:
            opened = self._open_at(offset)
            with closing(opened.source):
                if not or_above and opened.base > offset and self.start > offset:
                    raise self._out_of_range(offset)
                for batch in iter_batches(opened.source, opened.index.position_of(offset), opened.size):
                    if batch.header.base_offset >= stop:
                        return
                    if batch.header.next_offset > offset:
                        offset = batch.header.next_offset
                        yield batch
            if opened.is_last and opened.stop <= offset:
                return
            offset = max(offset, opened.stop)

    def find_time(self, at_ms: int) -> int | None:
        """The first offset of a batch at or after that time; None when there is none."""
        view = self.view
        for segment in (*self.closed_everywhere(), view.active.facts()):
            if segment.last_at_ms >= at_ms and segment.size:
                offset = self._find_time_in(segment, at_ms)
                if offset is not None:
                    return offset
        return None

    def _find_time_in(self, segment: Segment, at_ms: int) -> int | None:
        opened = self._open_at(segment.base)
        with closing(opened.source):
            for batch in iter_batches(opened.source, opened.index.position_before(at_ms), opened.size, check=False):
                if batch.header.timestamp_ms >= at_ms:
                    return batch.header.base_offset
        return None

    def time_of(self, offset: int) -> int | None:
        """When the batch that holds `offset`, or the next one above it, was appended; None at the end."""
        batches = self.read_stored(offset, self.view.active.stop, or_above=True)
        with closing(batches):  # type: ignore[type-var]
            first = next(batches, None)
        return None if first is None else first.header.timestamp_ms

    def remember(self, base: int, index: SparseIndex) -> None:
        self._indexes[base] = index
        while len(self._indexes) > _CACHED_INDEXES:
            self._indexes.popitem(last=False)

    def forget(self, base: int) -> None:
        self._indexes.pop(base, None)

    def _open_at(self, offset: int) -> _Opened:
        """The segment that holds `offset`, local before remote; where none does, the next one above it."""
        for _ in range(3):
            view = self.view
            local = next((s for s in view.closed if s.stop > offset), None)
            base = local.base if local is not None else view.active.base
            remote = None if self.remote is None else self.remote.find(offset)
            if remote is not None and base > offset and remote.base < base:
                return self._open_remote(remote)
            try:
                return self._open_local(view, local)
            except FileNotFoundError:
                continue  # retention took the file after the view was taken: the next view knows
        raise self._out_of_range(offset)

    def _out_of_range(self, offset: int) -> OffsetOutOfRange:
        end = self.view.active.stop
        return OffsetOutOfRange(
            table=self.place.table, bucket=self.place.bucket, offset=offset, start=self.start, end=end
        )

    def _open_local(self, view: LocalView, local: Segment | None) -> _Opened:
        if local is None:
            active = view.active
            stop, size = active.stop, active.size  # the stop first: the size then covers it
            return _Opened(LocalBytes(active.path), active.index, active.base, size, stop, is_last=True)
        path, index = log_path(self.place.folder, local.base), self._index_of(local.base)
        return _Opened(LocalBytes(path), index, local.base, local.size, local.stop)

    def _open_remote(self, segment: Segment) -> _Opened:
        assert self.remote is not None
        return _Opened(*self.remote.open(segment.base), segment.base, segment.size, segment.stop)

    def _index_of(self, base: int) -> SparseIndex:
        index = self._indexes.get(base)
        if index is None:
            _, index = load_segment(self.place.folder, base)
            self.remember(base, index)
        return index
