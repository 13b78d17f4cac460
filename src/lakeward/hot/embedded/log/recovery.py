# SPDX-License-Identifier: Apache-2.0
"""Recovers a bucket's log folder after any kind of stop: cuts torn tails, and reports damage below the synced mark."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from lakeward.errors import CorruptBatch
from lakeward.hot.embedded.log.active import ActiveSegment, SyncedMark, find_mark, is_mark_lost, mark_path, says_listed
from lakeward.hot.embedded.log.durable import (
    find_file,
    find_sealed,
    make_folder,
    seal,
    sync_file,
    sync_folder,
    write_whole,
)
from lakeward.hot.embedded.log.index import INTERVAL_BYTES, SparseIndex
from lakeward.hot.embedded.log.segment import (
    INDEX_MAGIC,
    Segment,
    find_listed,
    index_path,
    list_bases,
    list_path,
    load_segment,
    log_path,
    lost_bytes,
    lost_file,
    lost_segment,
    pack_index,
    remove_files,
    save_listed,
    unpack_index,
    writers_path,
)
from lakeward.hot.embedded.log.stored import LocalBytes, iter_batches
from lakeward.hot.embedded.log.writers import Appended, WriterTable
from lakeward.hot.logbatch.header import LogBatchHeader

WRITERS_MAGIC = b"LWW1"
CLEAN = "clean"


@dataclass(frozen=True, kw_only=True)
class RecoveredLog:
    """`cut_bytes`: what lay behind the last whole batch and is gone now. `is_synced`: all of it is known to
    be on disk.
    """

    closed: tuple[Segment, ...]
    active: ActiveSegment
    writers: WriterTable
    cut_bytes: int = 0
    is_synced: bool = False


def recover(folder: Path, bucket: str, first_offset: int, index_bytes: int = INTERVAL_BYTES) -> RecoveredLog:
    """Opens the log in `folder`, or makes an empty one that begins at `first_offset`.

    Raises `CorruptBatch` for damage in what was fsynced; nothing is changed then."""
    bases, mark = list_bases(folder), find_mark(folder)
    _check_witnesses(folder, mark, first_offset)
    _check_files(folder, bases, mark, first_offset)
    if not bases:
        make_folder(folder)
        mark_path(folder).touch()
        save_listed(folder, [first_offset], sync=False)
        active = ActiveSegment.create(folder, first_offset, 0, index_bytes)
        sync_folder(folder)
        return RecoveredLog(closed=(), active=active, writers=WriterTable(bucket), is_synced=True)
    clean = _find_clean(folder, bases, index_bytes)
    if clean is not None:
        return _reopen(folder, bucket, bases, *clean)
    return _Scan(folder, bucket, bases, mark, index_bytes).run()


def save_clean(folder: Path, active: ActiveSegment, writers: WriterTable) -> None:
    """At an orderly close, after the last fsync: the next start need not read the active segment. Sealed, so it needs
    no fsync.
    """
    write_whole(folder / CLEAN, _pack_clean(active, writers), sync=False)


def save_writers(folder: Path, base: int, writers: WriterTable) -> None:
    data = seal(WRITERS_MAGIC, json.dumps(writers.to_json(), separators=(",", ":")).encode())
    write_whole(writers_path(folder, base), data, sync=False)


def _pack_clean(active: ActiveSegment, writers: WriterTable) -> bytes:
    index = pack_index(active.facts(), active.index)
    body = json.dumps(writers.to_json(), separators=(",", ":")).encode()
    return seal(WRITERS_MAGIC, len(index).to_bytes(8, "little") + index + body)


def _check_witnesses(folder: Path, mark: SyncedMark | None, first_offset: int) -> None:
    """The mark and the list: each is there if the other says so. The list is on disk when the mark passes the first
    segment; until then a power cut may leave it empty. Raises `CorruptBatch`."""
    if list_path(folder).exists() and is_mark_lost(folder):
        raise lost_file(mark_path(folder), list_path(folder))
    if mark is None or find_listed(folder) is not None or not says_listed(folder):
        return
    if mark.base > first_offset or not list_path(folder).exists():
        raise lost_file(list_path(folder), mark_path(folder))


def _check_files(folder: Path, bases: Sequence[int], mark: SyncedMark | None, first_offset: int) -> None:
    """Every segment that the mark says was on disk is there: retention takes the oldest first and never the last, and
    one that is dropped empty has a later one behind it. Raises `CorruptBatch`."""
    if mark is None:
        return
    first, last = (bases[0], bases[-1]) if bases else (0, -1)
    is_last = mark.base > last and (bool(bases) or mark.offset > first_offset)
    if mark.base not in bases and (is_last or (mark.base > first and mark.position)):
        raise lost_bytes(folder, mark.base, 0, mark.position)
    for base in find_listed(folder) or ():
        if base < mark.base and base not in bases:
            raise lost_segment(folder, base)
    for path in folder.glob("*.index"):
        base = int(path.stem)
        body = find_file(path, INDEX_MAGIC) if first < base < mark.base and base not in bases else None
        if body is not None and (synced := unpack_index(body)[0].size):
            raise lost_bytes(folder, base, 0, synced)


def _find_clean(folder: Path, bases: Sequence[int], index_bytes: int) -> tuple[Segment, SparseIndex, bytes] | None:
    body = find_file(folder / CLEAN, WRITERS_MAGIC)
    if body is None:
        return None
    size = int.from_bytes(body[:8], "little")
    inner = find_sealed(INDEX_MAGIC, body[8 : 8 + size])
    assert inner is not None, "sealed twice, so damage shows outside"
    segment, index = unpack_index(inner, index_bytes)
    stored_bytes = log_path(folder, segment.base).stat().st_size if segment.base in bases else None
    if stored_bytes is not None and stored_bytes < segment.size:
        raise lost_bytes(folder, segment.base, stored_bytes, segment.size)
    if segment.base != bases[-1] or segment.size != stored_bytes:
        return None
    return segment, index, body[8 + size :]


def _reopen(
    folder: Path, bucket: str, bases: Sequence[int], segment: Segment, index: SparseIndex, writers: bytes
) -> RecoveredLog:
    table = WriterTable(bucket)
    table.load(json.loads(writers))
    closed = tuple(load_segment(folder, base)[0] for base in bases[:-1])
    return RecoveredLog(closed=closed, active=ActiveSegment(folder, segment, index), writers=table, is_synced=True)


class _Scan:
    """Reads every batch from the synced mark's segment on; what is before it was fsynced and is trusted."""

    def __init__(
        self, folder: Path, bucket: str, bases: Sequence[int], mark: SyncedMark | None, index_bytes: int
    ) -> None:
        self.folder, self.bases = folder, list(bases)
        self.mark = _usable_mark(mark, bases)
        self.writers = WriterTable(bucket)
        self.cut_bytes, self.index_bytes = 0, index_bytes

    def run(self) -> RecoveredLog:
        doubtful = self.bases.index(self.mark.base) if self.mark is not None else len(self.bases) - 1
        trusted = [load_segment(self.folder, base)[0] for base in self.bases[:doubtful]]
        self._load_writers(doubtful)
        scanned: list[tuple[Segment, SparseIndex]] = []
        for number in range(doubtful, len(self.bases)):
            segment, index, torn = self._scan(self.bases[number])
            scanned.append((segment, index))
            if torn:
                self._cut(segment, self.bases[number + 1 :])
                break
        for segment, index in scanned[:-1]:
            sync_file(log_path(self.folder, segment.base))  # a killed process left it to the system's cache
            write_whole(index_path(self.folder, segment.base), pack_index(segment, index), sync=False)
        active = ActiveSegment(self.folder, *scanned[-1])
        closed = (*trusted, *(s for s, _ in scanned[:-1]))
        return RecoveredLog(closed=closed, active=active, writers=self.writers, cut_bytes=self.cut_bytes)

    def _load_writers(self, doubtful: int) -> None:
        """From the newest snapshot at or below the first segment to be scanned, then the headers in between."""
        for number in range(doubtful, -1, -1):
            body = find_file(writers_path(self.folder, self.bases[number]), WRITERS_MAGIC)
            if body is not None or number == 0:
                self.writers.load(json.loads(body or b"{}"))
                break
        for base in self.bases[number:doubtful]:
            source = LocalBytes(log_path(self.folder, base))
            try:
                for _, header, _ in iter_batches(source, 0, log_path(self.folder, base).stat().st_size, check=False):
                    self._record(header)
            finally:
                source.close()

    def _record(self, header: LogBatchHeader) -> None:
        self.writers.record(
            header.writer_id, header.sequence, Appended(header.base_offset, header.next_offset, header.timestamp_ms)
        )

    def _scan(self, base: int) -> tuple[Segment, SparseIndex, bool]:
        path, index = log_path(self.folder, base), SparseIndex(self.index_bytes)
        size, good, stop, first_at, last_at = path.stat().st_size, 0, base, 0, 0
        source = LocalBytes(path)
        try:
            for position, header, _ in iter_batches(source, 0, size):
                self._check_chain(path, position, header, stop)
                index.add(header.base_offset, position, header.timestamp_ms)
                self._record(header)
                good, stop, last_at = position + header.size, header.next_offset, header.timestamp_ms
                first_at = first_at or header.timestamp_ms
        except CorruptBatch as error:
            self._refuse_damage(base, good, size, error)
        finally:
            source.close()
        if self.mark is not None and base == self.mark.base and good < self.mark.position:
            raise lost_bytes(self.folder, base, good, self.mark.position)
        return Segment(base, stop, good, first_at, last_at), index, good < size

    def _check_chain(self, path: Path, position: int, header: LogBatchHeader, due: int) -> None:
        if header.base_offset != due:
            raise CorruptBatch(
                where=str(path), position=position, reason=f"offset {header.base_offset} where {due} is due"
            )

    def _refuse_damage(self, base: int, good: int, size: int, error: CorruptBatch) -> None:
        """Damage below the mark was once on disk as it should be: that is no torn tail."""
        if self.mark is not None and base == self.mark.base and good < self.mark.position:
            raise error
        if self.mark is None and _has_batch_behind(log_path(self.folder, base), good, size):
            raise error

    def _cut(self, segment: Segment, later: Sequence[int]) -> None:
        """Nothing from here on was fsynced, so nothing of it was acknowledged as durable or shown to a round."""
        path = log_path(self.folder, segment.base)
        self.cut_bytes += path.stat().st_size - segment.size
        for base in reversed(later):
            self.cut_bytes += log_path(self.folder, base).stat().st_size
            remove_files(self.folder, base)
        os.truncate(path, segment.size)
        sync_file(path)
        sync_folder(self.folder)


def _usable_mark(mark: SyncedMark | None, bases: Sequence[int]) -> SyncedMark | None:
    """One whose segment has gone since (to the remote tier, or dropped empty) says nothing of those above it."""
    if mark is None or mark.base in bases:
        return mark
    above = next(base for base in bases if base > mark.base)
    return SyncedMark(above, 0, above)


def _has_batch_behind(path: Path, good: int, size: int) -> bool:
    """Without a mark: is the damaged batch followed by a whole one? Then it is no torn tail."""
    source = LocalBytes(path)
    try:
        head = source.read_at(good, 12)
        if head.size < 12:
            return False
        length = int.from_bytes(memoryview(head)[8:12], "little", signed=True) + 12
        behind = good + length
        if length <= 12 or behind >= size:
            return False
        next(iter_batches(source, behind, size))
        return True
    except CorruptBatch:
        return False
    finally:
        source.close()
