# SPDX-License-Identifier: Apache-2.0
"""Puts into the logs of an embedded store, reads of them, and where they end."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from lakeward.errors import InvalidRequest, OffsetOutOfRange
from lakeward.hot.embedded.conform import conform
from lakeward.hot.embedded.hotbucket import HotBucket
from lakeward.hot.embedded.hottable import HotTable
from lakeward.hot.embedded.log.log import BucketLog
from lakeward.hot.embedded.log.writers import Appended, WriterSequence
from lakeward.hot.embedded.storetables import StoreTables
from lakeward.model import Bucket, CutEnds, TableId, TableInfo, TablePath
from lakeward.spi import FrozenTable, LogBounds

MAX_PUT_ROWS = 1 << 20
"""A limit in bytes is not enough: 16 MB hold 10^8 booleans, and a reader needs 32 more bytes for each."""


@dataclass(frozen=True)
class PendingAppend:
    """An append that is in the log and perhaps not on disk yet: `wait` before acknowledging it."""

    log: BucketLog
    appended: Appended

    @property
    def is_ready(self) -> bool:
        """`wait` would not block."""
        return self.log.may_acknowledge(self.appended.stop)

    def wait(self) -> Appended:
        """Blocks as the table's fsync policy says. Raises `BucketStopped`: the outcome is then unknown."""
        self.log.wait_synced(self.appended.stop)
        return self.appended


class StoreRows(StoreTables):
    # ---- puts ----
    def append(
        self, table: TableInfo, bucket: Bucket, batch: pa.RecordBatch, writer: WriterSequence | None = None
    ) -> Appended:
        """Appends to a log table, acknowledged as its fsync policy says. Safe to repeat with a writer's sequence.

        Raises `InvalidRows`, `OutOfSequence`, `DiskFull`, `WritesPaused`, `PartitionExpired`, `BucketStopped`."""
        return self.begin_append(table, bucket, batch, writer).wait()

    def begin_append(
        self, table: TableInfo, bucket: Bucket, batch: pa.RecordBatch, writer: WriterSequence | None = None
    ) -> PendingAppend:
        """The same without waiting for the disk, so that a stream of puts shares its fsyncs. Rows are stored with the
        schema that `table` has, be it an older one: reads find their columns by id."""
        hot = self.hot_table(table)
        if hot.info.is_pk:
            raise InvalidRequest(what=f"append to {table.path}", reason="it has a primary key: use upsert or delete")
        _check_rows(f"append to {table.path}", batch)
        log = hot.bucket_for_write(bucket).log
        schema_id = table.schema.schema_id
        hot.count_ignored(table.schema, batch)
        rows = conform(batch, hot.shape.stored(schema_id), str(table.path))
        return PendingAppend(log, log.append(rows, schema_id=schema_id, writer=writer))

    def upsert(
        self,
        table: TableInfo,
        bucket: Bucket,
        batch: pa.RecordBatch,
        columns: Sequence[str] | None = None,
        writer: WriterSequence | None = None,
    ) -> Appended:
        """Inserts or replaces rows of a PK table; `columns`: only those and the key. Raises as `append`, and
        `KvFailed`.
        """
        return self.begin_upsert(table, bucket, batch, columns, writer).wait()

    def begin_upsert(
        self,
        table: TableInfo,
        bucket: Bucket,
        batch: pa.RecordBatch,
        columns: Sequence[str] | None = None,
        writer: WriterSequence | None = None,
    ) -> PendingAppend:
        hot_bucket = self._bucket_for_put(table, bucket, batch, "upsert")
        hot = self.hot_table(table)
        hot.count_ignored(table.schema, batch)
        begun = hot_bucket.kv(hot.schemas).begin_upsert(batch, columns, writer, sent=table.schema)
        return PendingAppend(hot_bucket.log, begun)

    def delete(
        self, table: TableInfo, bucket: Bucket, keys: pa.RecordBatch, writer: WriterSequence | None = None
    ) -> Appended:
        """Deletes rows of a PK table by key; absent keys are no error. Raises as `upsert`."""
        return self.begin_delete(table, bucket, keys, writer).wait()

    def begin_delete(
        self, table: TableInfo, bucket: Bucket, keys: pa.RecordBatch, writer: WriterSequence | None = None
    ) -> PendingAppend:
        hot_bucket = self._bucket_for_put(table, bucket, keys, "delete")
        kv = hot_bucket.kv(self.hot_table(table).schemas)
        return PendingAppend(hot_bucket.log, kv.begin_delete(keys, writer, sent=table.schema))

    def _bucket_for_put(self, table: TableInfo, bucket: Bucket, batch: pa.RecordBatch, what: str) -> HotBucket:
        hot = self.hot_table(table)
        self._check_pk(hot, what)
        _check_rows(f"{what} on {table.path}", batch)
        return hot.bucket_for_write(bucket)

    def _check_pk(self, hot: HotTable, what: str) -> None:
        if not hot.info.is_pk:
            raise InvalidRequest(what=f"{what} on {hot.info.path}", reason="it has no primary key")

    # ---- log reads ----
    def read_log(
        self, table: TableInfo, bucket: Bucket, start: int, stop: int, columns: Sequence[str] | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Syncs the part of the range that is not on disk yet: readers never see rows that a crash may take."""
        hot = self.hot_table(table)
        hot_bucket = hot.find_bucket(bucket)
        if hot_bucket is not None:
            return hot_bucket.log.read(start, stop, columns, planned=table.schema)
        end = hot.first_offset(bucket)
        if not end <= start <= stop <= end:
            raise OffsetOutOfRange(table=str(table.path), bucket=str(bucket), offset=stop, start=end, end=end)
        return iter(())

    def bounds(self, table: TableInfo, *, sync: bool = False) -> Mapping[Bucket, LogBounds]:
        hot = self.hot_table(table)
        for _, opened in hot.all_buckets() if sync else ():  # most of the wait, before others are held up
            if opened is not None:
                opened.log.sync()
        with self.together:
            bounds = {}
            for bucket, opened in hot.all_buckets():
                end = hot.first_offset(bucket)
                bounds[bucket] = LogBounds(start=end, end=end) if opened is None else opened.log.bounds(sync=sync)
            return bounds

    def freeze(self, table: TableInfo) -> Mapping[Bucket, LogBounds]:
        return self.bounds(table, sync=True)

    def freeze_table(self, path: TablePath) -> FrozenTable:
        """The cuts are looked up after the bounds: a round that sees an end above a cut sees the cut."""
        frozen = super().freeze_table(path)
        return replace(frozen, cuts=self.open_cuts(frozen.table))

    # ---- cuts ----
    def freeze_cut(self, name: str, tables: Sequence[TableInfo]) -> Mapping[TableId, CutEnds]:
        named = {table.table_id for table in tables}
        for table in tables:
            self.hot_table(table)
        with self.together:
            return self._cuts.freeze(name, [hot for hot in self.hot_tables() if hot.info.table_id in named])

    def look_at_ends(self, tables: Sequence[TableInfo] | None = None) -> Mapping[TableId, CutEnds]:
        """Log ends of these tables, or of all, at one moment. Of tables that are damaged, nothing."""
        named = None if tables is None else {table.table_id for table in tables}
        chosen = [hot for hot in self.hot_tables() if named is None or hot.info.table_id in named]
        with self.together:
            return self._cuts.look([hot for hot in chosen if not self.stopped_buckets(hot.info)])

    def add_cut(self, name: str, ends: Mapping[TableId, CutEnds]) -> None:
        self._cuts.add(name, ends)

    def forget_cut(self, name: str) -> None:
        self._cuts.forget(name)

    def open_cuts(self, table: TableInfo) -> tuple[CutEnds, ...]:
        return self._cuts.of(table.table_id)

    # ---- times and waits ----
    def offset_at(self, table: TableInfo, bucket: Bucket, at_ms: int) -> int:
        """The first offset of a batch at or after that time; the end when there is none."""
        hot = self.hot_table(table)
        hot_bucket = hot.find_bucket(bucket)
        return hot.first_offset(bucket) if hot_bucket is None else hot_bucket.log.first_offset_at(at_ms)

    def wait_for(self, table: TableInfo, offsets: Mapping[Bucket, int], timeout_s: float) -> bool:
        """Blocks until a bucket's readable end is above the offset given for it; False when the time was over first."""
        hot = self.hot_table(table)

        def reached() -> bool:
            return any(_has_above(hot, bucket, offset) for bucket, offset in offsets.items())

        return hot.arrivals.wait_until(reached, timeout_s)

    def stopped_buckets(self, table: TableInfo) -> Mapping[Bucket, str]:
        hot = self._tables.get(table.table_id)
        return {b.bucket: b.stopped for b in hot.opened() if b.stopped is not None} if hot is not None else {}


def _check_rows(what: str, batch: pa.RecordBatch) -> None:
    if batch.num_rows > MAX_PUT_ROWS:
        reason = f"the batch has {batch.num_rows:,} rows, at most {MAX_PUT_ROWS:,} are taken; send smaller ones"
        raise InvalidRequest(what=what, reason=reason)


def _has_above(hot: HotTable, bucket: Bucket, offset: int) -> bool:
    hot_bucket = hot.find_bucket(bucket)
    if hot_bucket is None or hot_bucket.log.end <= offset:
        return False
    if hot_bucket.log.synced_end <= offset:
        hot_bucket.log.sync()
    return hot_bucket.log.synced_end > offset
