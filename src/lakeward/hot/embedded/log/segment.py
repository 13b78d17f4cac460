# SPDX-License-Identifier: Apache-2.0
"""A closed segment: what its index file says of it, and how that file is made again when it is missing or damaged."""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from lakeward.errors import CorruptBatch
from lakeward.hot.embedded.log.durable import find_file, seal, write_whole
from lakeward.hot.embedded.log.index import INTERVAL_BYTES, SparseIndex
from lakeward.hot.embedded.log.stored import LocalBytes, iter_batches

INDEX_MAGIC = b"LWI1"
_FACTS = struct.Struct("<qqqqq")


@dataclass(frozen=True, slots=True)
class Segment:
    """Batches of offsets `[base, stop)` in `size` bytes. `last_at_ms` is the time of the newest."""

    base: int
    stop: int
    size: int
    first_at_ms: int
    last_at_ms: int


def log_path(folder: Path, base: int) -> Path:
    """20 digits, so that names sort as offsets do."""
    return folder / f"{base:020d}.log"


def index_path(folder: Path, base: int) -> Path:
    return folder / f"{base:020d}.index"


def writers_path(folder: Path, base: int) -> Path:
    """The writers as they were before this segment's first batch."""
    return folder / f"{base:020d}.writers"


def list_bases(folder: Path) -> list[int]:
    return sorted(int(p.stem) for p in folder.glob("*.log"))


def pack_index(segment: Segment, index: SparseIndex) -> bytes:
    facts = _FACTS.pack(segment.base, segment.stop, segment.size, segment.first_at_ms, segment.last_at_ms)
    return seal(INDEX_MAGIC, facts + index.to_bytes())


def unpack_index(body: bytes, interval_bytes: int = INTERVAL_BYTES) -> tuple[Segment, SparseIndex]:
    return Segment(*_FACTS.unpack_from(body)), SparseIndex.from_bytes(body[_FACTS.size :], interval_bytes)


def load_segment(folder: Path, base: int) -> tuple[Segment, SparseIndex]:
    """From the index file, or from the headers in the log file when that does not fit. Raises `CorruptBatch`, also
    when the file is shorter than it was: those bytes were on disk."""
    body = find_file(index_path(folder, base), INDEX_MAGIC)
    if body is not None:
        segment, index = unpack_index(body)
        size = log_path(folder, base).stat().st_size
        if segment.base == base and size < segment.size:
            raise lost_bytes(folder, base, size, segment.size)
        if segment.base == base and size == segment.size:
            return segment, index
    return rebuild_index(folder, base)


def lost_bytes(folder: Path, base: int, size: int, synced: int) -> CorruptBatch:
    """Error for bytes that were on disk and are missing now: other rows would get the offsets of the missing ones."""
    path = log_path(folder, base)
    there = f"the file ends at byte {size}" if path.exists() else "the file is missing"
    return CorruptBatch(where=str(path), position=size, reason=f"{there}, and {synced} bytes of it were on disk")


def lost_segment(folder: Path, base: int) -> CorruptBatch:
    path = log_path(folder, base)
    return CorruptBatch(where=str(path), position=0, reason="the file is missing, and all of it was on disk")


def lost_file(path: Path, beside: Path) -> CorruptBatch:
    """A file that shows whether segments are whole. Without the one beside it too, the folder is an earlier version's,
    which had none."""
    reason = (
        f"the file is missing or damaged, so lost segments would not be noticed; bring it back, or remove "
        f"{beside.name} beside it to go on with the segments that are there"
    )
    return CorruptBatch(where=str(path), position=0, reason=reason)


def rebuild_index(folder: Path, base: int) -> tuple[Segment, SparseIndex]:
    path, index = log_path(folder, base), SparseIndex()
    size, stop, first_at, last_at = path.stat().st_size, base, 0, 0
    source = LocalBytes(path)
    try:
        for position, header, _ in iter_batches(source, 0, size):
            index.add(header.base_offset, position, header.timestamp_ms)
            stop, last_at = header.next_offset, header.timestamp_ms
            first_at = first_at or header.timestamp_ms
    finally:
        source.close()
    segment = Segment(base, stop, size, first_at, last_at)
    write_whole(index_path(folder, base), pack_index(segment, index), sync=False)
    return segment, index


def remove_files(folder: Path, base: int) -> None:
    """The log file first: without it the others mean nothing. Safe to repeat."""
    for path in (log_path(folder, base), index_path(folder, base), writers_path(folder, base)):
        path.unlink(missing_ok=True)


LIST_MAGIC = b"LWS1"


def list_path(folder: Path) -> Path:
    return folder / "segments"


def find_listed(folder: Path) -> list[int] | None:
    """The bases; None in a folder of an earlier version, or when the file is damaged."""
    body = find_file(list_path(folder), LIST_MAGIC)
    return None if body is None else [int(base) for base in json.loads(body)]


def save_listed(folder: Path, bases: Sequence[int], *, sync: bool) -> None:
    """A new segment need not be in it until the mark passes it; one that goes must be out of it before (`sync`)."""
    write_whole(list_path(folder), seal(LIST_MAGIC, json.dumps(list(bases)).encode()), sync=sync)
