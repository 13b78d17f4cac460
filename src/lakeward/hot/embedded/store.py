# SPDX-License-Identifier: Apache-2.0
"""The embedded hot store in one process: DDL, puts, reads. What the server wraps and the coordinator administers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa

from lakeward.hot.embedded.kv.bucket import lookup_nothing
from lakeward.hot.embedded.offsetguard import find_behind, guard_bucket, load_newer
from lakeward.hot.embedded.sizes import TableSizes, measure
from lakeward.hot.embedded.storerows import StoreRows
from lakeward.model import Bucket, OffsetMap, OffsetRange, Schema, TableInfo
from lakeward.spi import KvSnapshot, RetentionGuard, Waiting

_SNAPSHOTS_AT_ONCE = 4
"""KV snapshots of one call: each waits for the disk a few times."""


class EmbeddedStore(StoreRows):
    """Rows by key, and what the coordinator needs of the store."""

    def schemas(self, table: TableInfo) -> Sequence[Schema]:
        return self.hot_table(table).schemas

    # ---- keys ----------------------------------------------------------------------------------------------------
    def lookup(self, table: TableInfo, bucket: Bucket, keys: pa.RecordBatch) -> pa.RecordBatch:
        """The rows of those keys that are there, with `__offset` and `__timestamp`."""
        hot = self.hot_table(table)
        self._check_pk(hot, "lookup")
        hot_bucket = hot.find_bucket(bucket)
        if hot_bucket is None:
            return lookup_nothing(hot.info, {s.schema_id: s for s in hot.schemas}, keys, table.schema)
        return hot_bucket.kv(hot.schemas).lookup(keys, planned=table.schema)

    def take_snapshot(self, table: TableInfo, bucket: Bucket, holder: str) -> KvSnapshot | None:
        hot = self.hot_table(table)
        self._check_pk(hot, "snapshot")
        hot_bucket = hot.find_bucket(bucket)
        return None if hot_bucket is None else hot_bucket.kv(hot.schemas).take_snapshot(holder)

    def take_snapshots(self, table: TableInfo, buckets: Sequence[Bucket], holder: str) -> dict[Bucket, KvSnapshot]:
        """Several at a time: each waits for the disk. All have the rows of a source's group, or none."""
        with (
            self.together,
            ThreadPoolExecutor(max_workers=_SNAPSHOTS_AT_ONCE, thread_name_prefix="lakeward-kv") as pool,
        ):
            taken = pool.map(lambda bucket: self.take_snapshot(table, bucket, holder), buckets)
            return {s.bucket: s for s in taken if s is not None}

    def read_snapshot(
        self, table: TableInfo, snapshot: KvSnapshot, columns: Sequence[str] | None = None
    ) -> Iterator[pa.RecordBatch]:
        hot = self.hot_table(table)
        self._check_pk(hot, "snapshot")
        hot_bucket = hot.find_bucket(snapshot.bucket)
        if hot_bucket is None:
            return iter(())
        return hot_bucket.kv(hot.schemas).read_snapshot(snapshot.snapshot_id, columns, planned=table.schema)

    def release_snapshots(self, table: TableInfo, holder: str) -> None:
        hot = self.hot_table(table)
        for bucket in hot.opened() if hot.info.is_pk else ():
            bucket.kv(hot.schemas).snapshots.release(holder)

    # ---- what the coordinator asks -------------------------------------------------------------------------------
    def waiting(self, table: TableInfo, committed: OffsetMap) -> Waiting:
        hot, rows, size, oldest = self.hot_table(table), 0, 0.0, []
        for bucket in hot.opened():
            if bucket.failure is not None:
                continue
            log = bucket.log
            first = max(committed.get(bucket.bucket, 0), log.start)
            if first < log.end:
                rows += log.end - first
                size += (log.end - first) * log.bounds().bytes_per_row
                oldest.append(bucket.oldest_waiting_ms(first))
        oldest_times = [at for at in oldest if at is not None]
        return Waiting(rows=rows, bytes=int(size), oldest_at_ms=min(oldest_times) if oldest_times else None)

    def guard_offsets(self, table: TableInfo, committed: OffsetMap) -> Mapping[Bucket, OffsetRange]:
        hot, guarded = self.hot_table(table), {}
        for bucket, offset in committed.items():
            gap = guard_bucket(hot, self._services, bucket, offset)
            if gap is not None:
                guarded[bucket] = gap
        return guarded

    def lift_stops(self, table: TableInfo) -> None:
        self.hot_table(table).lift_stops()

    def gaps(self, table: TableInfo) -> Sequence[tuple[Bucket, OffsetRange]]:
        """Offsets that were skipped on purpose and name no row."""
        return self._services.meta.gaps(table.table_id)

    def behind(self, table: TableInfo) -> Mapping[Bucket, OffsetRange]:
        return find_behind(self.hot_table(table), self.gaps(table))

    def load_newer(self, table: TableInfo, bucket: Bucket, rows: Iterable[pa.RecordBatch], as_of_ms: int) -> int:
        return load_newer(self.hot_table(table), bucket, self.behind(table)[bucket], rows, as_of_ms)

    def put_again(self, table: TableInfo, bucket: Bucket, rows: Iterable[pa.RecordBatch]) -> None:
        hot = self.hot_table(table)
        if bucket in hot.guarded:  # else it is of a partition that is not here: nothing to put
            hot.make_bucket(bucket).kv(hot.schemas).put_again(rows)

    def pause_writes(self, table: TableInfo, reason: str | None) -> None:
        hot = self.hot_table(table)
        if hot.paused != reason:
            self._services.meta.pause(table.table_id, reason)
            hot.paused = reason

    def set_retention(self, guard: RetentionGuard) -> None:
        self.upkeep.guard = guard

    def sizes(self) -> Sequence[TableSizes]:
        """Bytes and segments of both tiers per table, for metrics."""
        return [measure(t) for t in self.hot_tables()]
