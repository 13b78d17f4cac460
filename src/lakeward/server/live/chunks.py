# SPDX-License-Identifier: Apache-2.0
"""Chunks of a tail: files of one bucket's rows of an offset range, written once and named by every later answer until a
round brings their rows to the lake, or a longer chunk replaces them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from lakeward.changelog import Fold, KeyedFold
from lakeward.changelog.columns import adds_row, changes_of, keep_rows
from lakeward.lake.iceberg.datafile.result import WriteResult
from lakeward.lake.iceberg.plugin import IcebergLakeStorage
from lakeward.model import Bucket, LogSplit, OffsetRange, OffsetSet, RoundId, TableInfo
from lakeward.spi import HotStore, LakeWriter, SupportsKeyDeletes, WriteTask

_HELD_ROWS = 200_000
"""A range of so many offsets is read once and held; a longer one is read twice, batch by batch."""


@dataclass(frozen=True, kw_only=True)
class LiveTarget:
    """The table as hot store and lake have it, and its lake."""

    table: TableInfo
    lake_table: TableInfo
    lake: IcebergLakeStorage
    lake_name: str


@dataclass(frozen=True, kw_only=True)
class Chunk:
    """`result`: the lake writer's, None where the range leaves no row. `replaced`: offsets below the range whose rows a
    record of the range replaced or deleted. `live_id`: what the names of its files begin with."""

    bucket: Bucket
    range: OffsetRange
    live_id: RoundId
    result: bytes | None = None
    replaced: OffsetSet = field(default_factory=OffsetSet)
    rows: int = 0

    @property
    def bytes(self) -> int:
        """Size of its data files."""
        return 0 if self.result is None else sum(f.size_bytes for f in WriteResult.from_bytes(self.result).files)


@dataclass(frozen=True, kw_only=True)
class ChunkPlan:
    """Parts of a bucket's tail: chunks that stay, and ranges to write."""

    reused: tuple[Chunk, ...]
    ranges: tuple[OffsetRange, ...]


def plan_chunks(chunks: Sequence[Chunk], start: int, stop: int) -> ChunkPlan:
    """The tail `[start, stop)` from chunks in offset order. What the lake has is dropped; of a chunk that straddles
    `start` the rest is written again; a new range takes along the chunks before it that are no longer than it is: so a
    tail of n offsets has about log2(n) chunks, and a row is written log2(n) times at most."""
    reusable_chunks = [c for c in chunks if start <= c.range.start and c.range.stop <= stop]
    ranges, covered = list[OffsetRange](), start
    for chunk in reusable_chunks:
        if chunk.range.start > covered:
            ranges.append(OffsetRange(covered, chunk.range.start))
        covered = chunk.range.stop
    if covered < stop:
        while reusable_chunks and len(reusable_chunks[-1].range) <= stop - covered:
            covered = reusable_chunks.pop().range.start
        ranges.append(OffsetRange(covered, stop))
    return ChunkPlan(reused=tuple(reusable_chunks), ranges=tuple(ranges))


class ChunkWriter:
    """Writes chunks of one table: reads the hot store's log, folds it, hands the rows to the format's own writer."""

    def __init__(self, store: HotStore, target: LiveTarget) -> None:
        self._store, self._table = store, target.table
        self._lake, self._lake_table = target.lake, target.lake_table

    def write(self, bucket: Bucket, span: OffsetRange, live_id: RoundId, handle: bytes, number: int) -> Chunk:
        """Raises the errors of the store and the lake; files of an unfinished chunk are not referenced."""
        split = LogSplit(bucket=bucket, range=span, index=number)
        task = WriteTask(round_id=live_id, table=self._lake_table, split=split, attempt=0, handle=handle)
        writer = self._lake.open_writer(task)
        try:
            rows, replaced = self._write_rows(writer, bucket, span)
            result = writer.complete()
        except BaseException:
            writer.abort()
            raise
        return Chunk(bucket=bucket, range=span, live_id=live_id, result=result, replaced=replaced, rows=rows)

    def _write_rows(self, writer: LakeWriter, bucket: Bucket, span: OffsetRange) -> tuple[int, OffsetSet]:
        if not self._table.is_pk:
            return _hand_over(
                writer, (keep_rows(b, adds_row(changes_of(b))) for b in self._read(bucket, span))
            ), OffsetSet()
        key = list(self._table.descriptor.primary_key)
        by_offset = self._store.names_replaced(self._table)
        fold = Fold(span.start, span.stop) if by_offset else KeyedFold(span.start, span.stop, key)
        held = list(self._read(bucket, span)) if len(span) <= _HELD_ROWS else None
        for batch in self._read(bucket, span, columns=[] if by_offset else key) if held is None else held:
            fold.see(batch)
        fold.seal()
        if isinstance(fold, KeyedFold):
            assert isinstance(writer, SupportsKeyDeletes), f"{self._lake.name} takes no keys"
            for keys in fold.replaced_keys.to_batches():
                writer.delete_keys(keys)
        rows = _hand_over(writer, map(fold.live, self._read(bucket, span) if held is None else held))
        return rows, fold.replaced_below if isinstance(fold, Fold) else OffsetSet()

    def _read(
        self, bucket: Bucket, span: OffsetRange, columns: Sequence[str] | None = None
    ) -> Iterator[pa.RecordBatch]:
        batches = self._store.read_log(self._table, bucket, span.start, span.stop, columns)
        return (batch for batch in batches if batch.num_rows)


def _hand_over(writer: LakeWriter, batches: Iterator[pa.RecordBatch]) -> int:
    rows = 0
    for batch in batches:
        if batch.num_rows:
            writer.write(batch)
            rows += batch.num_rows
    return rows
