# SPDX-License-Identifier: Apache-2.0
"""Stored batches, read in order out of a segment file, wherever it lies. No locks: the bytes below a known end never
change.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, Protocol

import pyarrow as pa

from lakeward.errors import CorruptBatch
from lakeward.hot.logbatch.codec import check_crc
from lakeward.hot.logbatch.header import HEADER_SIZE, LogBatchHeader, peek, read_header

CHUNK_BYTES = 1 << 20
"""Read at once, and held by each reader; many small batches cost one system call, a big one is read as a whole."""


FIRST_CHUNK_BYTES = 256 << 10


class StoredBatch(NamedTuple):
    """`data` is the whole batch, its memory shared with its neighbours in the chunk."""

    position: int
    header: LogBatchHeader
    data: pa.Buffer


class SegmentBytes(Protocol):
    """A segment file to read from: local or remote. One reader's; closed by it."""

    where: str

    def read_at(self, position: int, size: int) -> pa.Buffer:
        """Up to `size` bytes; fewer only at the end of the file."""
        ...

    def close(self) -> None: ...


class LocalBytes:
    """A local file. It stays readable while open, also when retention removes its name."""

    def __init__(self, path: Path) -> None:
        self.where = str(path)
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def read_at(self, position: int, size: int) -> pa.Buffer:
        buffer = pa.allocate_buffer(size)
        view, got = memoryview(buffer), 0
        while got < size:
            more = os.preadv(self._fd, [view[got:]], position + got)
            if not more:
                break
            got += more
        return buffer.slice(0, got)

    def close(self) -> None:
        os.close(self._fd)


def iter_batches(
    source: SegmentBytes, position: int, stop_position: int, *, check: bool = True
) -> Iterator[StoredBatch]:
    """Batches from `position` on that lie wholly before `stop_position`. Reads little at first, as some callers want
    one batch.

    Raises `CorruptBatch`, also for a last batch that is cut short."""
    size = FIRST_CHUNK_BYTES
    while position < stop_position:
        chunk = source.read_at(position, min(size, stop_position - position))
        size = CHUNK_BYTES
        batches = _split_chunk(source.where, chunk, position, check)
        consumed = 0
        for batch in batches:
            consumed = batch.position + batch.header.size - position
            yield batch
        if consumed == 0:
            batch = _read_big(source, chunk, position, stop_position, check)
            consumed = batch.header.size
            del chunk, batches  # the reader may keep us waiting
            yield batch
        position += consumed


def _split_chunk(where: str, chunk: pa.Buffer, start: int, check: bool) -> Iterator[StoredBatch]:
    """Those that lie in the chunk as a whole."""
    at = 0
    while chunk.size - at >= HEADER_SIZE:
        _, length = peek(chunk, at)
        if at + length > chunk.size:
            return
        yield _whole(where, chunk, at, start + at, check)
        at += length


def _read_big(source: SegmentBytes, chunk: pa.Buffer, position: int, stop_position: int, check: bool) -> StoredBatch:
    """The batch that the chunk cut off."""
    if chunk.size < HEADER_SIZE:
        raise CorruptBatch(where=source.where, position=position, reason=f"{chunk.size} bytes are no batch")
    _, length = peek(chunk, 0)
    if position + length > stop_position:
        raise CorruptBatch(
            where=source.where, position=position, reason=f"{length} bytes long, {stop_position - position} are there"
        )
    return _whole(source.where, source.read_at(position, length), 0, position, check)


def _whole(where: str, chunk: pa.Buffer, at: int, position: int, check: bool) -> StoredBatch:
    try:
        header = read_header(chunk, at, where=where)
    except CorruptBatch as error:
        raise CorruptBatch(where=where, position=position, reason=error.reason) from None
    if chunk.size - at < header.size:
        raise CorruptBatch(
            where=where, position=position, reason=f"{header.size} bytes long, {chunk.size - at} are there"
        )
    data = chunk.slice(at, header.size)
    if check:
        check_crc(header, data, where=where, position=position)
    return StoredBatch(position, header, data)
