# SPDX-License-Identifier: Apache-2.0
"""The segment that a bucket's log is being appended to, and the mark of how much of it is known to be on disk."""

from __future__ import annotations

import os
import struct
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from lakeward.hot.embedded.log.durable import ReopenedFile, find_file, seal
from lakeward.hot.embedded.log.index import INTERVAL_BYTES, SparseIndex
from lakeward.hot.embedded.log.segment import Segment, log_path

MARK_MAGIC, LISTED_MAGIC = b"LWM1", b"LWM2"
"""The second says besides that the folder has a list of its segments."""

_MARK = struct.Struct("<qqq")


class SyncedMark(NamedTuple):
    """The log was fsynced up to this byte of this segment. Written after the fsync and not fsynced itself, so a power
    cut may leave an older one: it never claims too much."""

    base: int
    position: int
    offset: int


def mark_path(folder: Path) -> Path:
    return folder / "synced"


def find_mark(folder: Path) -> SyncedMark | None:
    return next((mark for magic in (MARK_MAGIC, LISTED_MAGIC) if (mark := _find(folder, magic))), None)


def says_listed(folder: Path) -> bool:
    """The mark says that there is a list of segments."""
    return _find(folder, LISTED_MAGIC) is not None


def is_mark_lost(folder: Path) -> bool:
    """There is none, or something else in its place. A power cut may leave an empty one, which says nothing."""
    try:
        return any(mark_path(folder).read_bytes()) and find_mark(folder) is None
    except FileNotFoundError:
        return True


def _find(folder: Path, magic: bytes) -> SyncedMark | None:
    body = find_file(mark_path(folder), magic)
    return None if body is None or len(body) != _MARK.size else SyncedMark(*_MARK.unpack(body))


class MarkFile(ReopenedFile):
    def __init__(self, folder: Path) -> None:
        super().__init__(mark_path(folder), os.O_WRONLY | os.O_CREAT)

    def write(self, mark: SyncedMark, *, is_listed: bool) -> None:
        os.pwrite(self.fd, seal(LISTED_MAGIC if is_listed else MARK_MAGIC, _MARK.pack(*mark)), 0)


class ActiveSegment(ReopenedFile):
    """Not thread-safe: the bucket's append lock guards it. Readers open the file themselves."""

    def __init__(self, folder: Path, segment: Segment, index: SparseIndex) -> None:
        self.base, self.stop, self.size = segment.base, segment.stop, segment.size
        self.first_at_ms, self.last_at_ms = segment.first_at_ms, segment.last_at_ms
        self.index = index
        self.path = log_path(folder, segment.base)
        super().__init__(self.path, os.O_RDWR)

    @classmethod
    def create(cls, folder: Path, base: int, at_ms: int, index_bytes: int = INTERVAL_BYTES) -> ActiveSegment:
        log_path(folder, base).touch()
        return cls(folder, Segment(base, base, 0, 0, at_ms), SparseIndex(index_bytes))

    def write(self, parts: list[Any], size: int, offsets: int, timestamp_ms: int) -> None:
        """One batch. An OSError leaves the file as it was, or at least everything that counts of it: what lies behind
        `size` is overwritten by the next write and cut at the next start."""
        try:
            self._write_all(parts, size)
        except OSError:
            with suppress(OSError):
                os.ftruncate(self.fd, self.size)
            raise
        self.index.add(self.stop, self.size, timestamp_ms)
        self.size += size
        self.stop += offsets  # after the size: whoever sees the offset finds its bytes
        self.first_at_ms = self.first_at_ms or timestamp_ms
        self.last_at_ms = timestamp_ms

    def _write_all(self, parts: list[Any], size: int) -> None:
        written = os.pwritev(self.fd, parts, self.size)
        if written < size:
            whole = memoryview(b"".join(bytes(memoryview(p)) for p in parts))
            while written < size:
                written += os.pwrite(self.fd, whole[written:], self.size + written)

    def facts(self) -> Segment:
        return Segment(self.base, self.stop, self.size, self.first_at_ms, self.last_at_ms)
