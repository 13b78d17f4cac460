# SPDX-License-Identifier: Apache-2.0
"""The embedded hot store in one process: DDL, puts, reads. What the server wraps and the coordinator administers."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import pyarrow as pa

from lakeward.errors import (
    InvalidRequest,
    InvalidTable,
    OffsetOutOfRange,
    TableAlreadyExists,
    TableLoading,
    TableNotFound,
)
from lakeward.hot.embedded.alter import check_altered
from lakeward.hot.embedded.conform import conform
from lakeward.hot.embedded.cuts import OpenCuts
from lakeward.hot.embedded.datafolder import DataFolder
from lakeward.hot.embedded.hotbucket import HotBucket
from lakeward.hot.embedded.hottable import HotTable
from lakeward.hot.embedded.kv.bucket import lookup_nothing
from lakeward.hot.embedded.load import EmbeddedLoad
from lakeward.hot.embedded.log.log import BucketLog
from lakeward.hot.embedded.log.writers import Appended, WriterSequence
from lakeward.hot.embedded.metadb import HotTableState, StoredLoad
from lakeward.hot.embedded.offsetguard import find_behind, guard_bucket, load_newer
from lakeward.hot.embedded.options import StoreOptions
from lakeward.hot.embedded.services import StoreServices
from lakeward.hot.embedded.sizes import TableSizes, measure
from lakeward.hot.embedded.upkeep import StoreUpkeep
from lakeward.model import (
    Ballast,
    Bucket,
    Clock,
    CutEnds,
    OffsetMap,
    OffsetRange,
    Schema,
    SystemClock,
    TableId,
    TableInfo,
    TablePath,
    usable,
)
from lakeward.spi import FrozenTable, HotAdmin, HotLoad, HotStore, KvSnapshot, LogBounds, RetentionGuard, Waiting

_log = logging.getLogger(__name__)

_OF = "of"
"""In the note of a load: about how many rows there are."""

_SNAPSHOTS_AT_ONCE = 4
"""KV snapshots of one call: each waits for the disk a few times."""

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


class EmbeddedStore(HotAdmin, HotStore):
    """Thread-safe. A `TableInfo` argument means that very life of the table: a dropped one is a `TableNotFound`."""

    has_prev_offset = True

    def __init__(self, services: StoreServices) -> None:
        self._services = services
        self._lock = threading.RLock()
        self._tables: dict[TableId, HotTable] = {}
        self._by_path: dict[TablePath, HotTable] = {}
        self._closed = False
        self.together = threading.RLock()
        """Held while the rows of one group of a source are appended to all its tables: readers who take log ends see
        all of them or none."""

        self.group_commits = threading.Lock()
        """Held from the first row of a group until its position is stored; a backup holds it too."""

        self._cuts = OpenCuts()
        for stored in services.meta.load_tables():
            self._add(HotTable(stored, services))
        for table in self._tables.values():
            table.open_existing()
        self._loads = {s.table.info.path: EmbeddedLoad(s, services) for s in services.meta.load_loads()}
        self.upkeep = StoreUpkeep(self.hot_tables, services)

    @classmethod
    def open(cls, folder: Path, options: StoreOptions | None = None, clock: Clock | None = None) -> Self:
        """Locks the folder, recovers every log, completes drops that a crash cut off, starts upkeep.

        Raises `DataFolderLocked`, `DataFolderVersion`, `DiskFull`. A damaged bucket stops alone and says so."""
        options = options or StoreOptions()
        ballast = Ballast(Path(folder), options.ballast_bytes)
        with usable(Path(folder)):
            Path(folder).mkdir(mode=0o700, parents=True, exist_ok=True)
        with usable(Path(folder)), ballast.writing():
            store = cls._open(Path(folder), options, clock or SystemClock(), ballast)
        ballast.restore(options.reserve_bytes)
        return store

    @classmethod
    def _open(cls, folder: Path, options: StoreOptions, clock: Clock, ballast: Ballast) -> Self:
        data = DataFolder.open(folder)
        try:
            store = cls(StoreServices.open(data, options, clock, ballast))
        except BaseException:
            data.close()
            raise
        try:
            store.upkeep.finish_drops()
            if options.upkeep:
                store.upkeep.start()
        except BaseException:
            store.close()
            raise
        return store

    @property
    def ballast(self) -> Ballast:
        """For other components that keep state in the data folder."""
        return self._services.ballast

    def close(self) -> None:
        """Everything to disk; the next start is fast. Safe to repeat. Whatever fails on the way, the folder is free
        afterwards.
        """
        with self._lock:
            if self._closed:
                return
            self._closed = True
        with ExitStack() as last_first:
            last_first.callback(self._services.folder.close)
            last_first.callback(self._services.meta.close)
            for load in self.loads():
                last_first.callback(load.close)
            for table in self.hot_tables():
                last_first.callback(table.close)
            self.upkeep.stop()

    def hot_tables(self) -> list[HotTable]:
        with self._lock:
            return list(self._tables.values())

    def hot_table(self, table: TableInfo) -> HotTable:
        hot_table = self._tables.get(table.table_id)
        if hot_table is None:
            raise TableNotFound(table=str(table.path))
        return hot_table

    # ---- tables --------------------------------------------------------------------------------------------------
    def check_table(self, table: TableInfo) -> None:
        """Also against the limit of open files: a table that is written to as a whole has two open in each bucket."""
        self._services.options.table(table)
        most = self._services.open_files.budget // 2
        if table.descriptor.bucket_count > most:
            reason = (
                f"this server may keep files of {most} buckets open: let it open more (`ulimit -n`, LimitNOFILE), "
                f"or make fewer buckets"
            )
            raise InvalidTable(
                table=str(table.path), field="bucket count", value=str(table.descriptor.bucket_count), reason=reason
            )

    def create_table(self, table: TableInfo) -> None:
        with self._lock:
            self._add(HotTable(self._store_new(table), self._services))

    def _store_new(self, table: TableInfo, note: Mapping[str, Any] | None = None) -> HotTableState:
        self.check_table(table)
        self._check_loading(table.path)
        folder = None if table.path in self._by_path else self._services.meta.add_table(table, note)
        if folder is None:
            raise TableAlreadyExists(table=str(table.path))
        return HotTableState(info=table, folder=folder, schemas=(table.schema,), partitions={}, stopped={}, ends={})

    def _add(self, hot: HotTable) -> None:
        self._tables[hot.info.table_id] = self._by_path[hot.info.path] = hot

    def alter_table(self, table: TableInfo) -> None:
        with self._lock:
            hot = self.hot_table(table)
            check_altered(hot.info, table)
            self._services.options.table(table)
            self._services.meta.alter_table(table)
            hot.alter(table)

    def drop_table(self, path: TablePath) -> None:
        with self._lock:  # until its files are closed: `finish_drops` of another thread waits for that
            hot = self.hot_table(self.load_table(path))
            self._services.meta.mark_table_dropping(hot.info.table_id)
            del self._tables[hot.info.table_id], self._by_path[path]
            hot.abandon()
        self.upkeep.finish_drops()

    def load_table(self, path: TablePath) -> TableInfo:
        table = self._by_path.get(path)
        if table is None:
            self._check_loading(path)
            raise TableNotFound(table=str(path))
        return table.info

    # ---- tables that are loaded ----------------------------------------------------------------------------------
    def begin_load(self, table: TableInfo, note: Mapping[str, Any], of: int) -> HotLoad:
        kept = {**note, _OF: of}
        with self._lock:
            stored = StoredLoad(table=self._store_new(table, kept), note=kept, progress={})
            self._loads[table.path] = EmbeddedLoad(stored, self._services)
            return self._loads[table.path]

    def loads(self) -> Sequence[EmbeddedLoad]:
        with self._lock:
            return list(self._loads.values())

    def publish_load(self, load: HotLoad, ends: Mapping[Bucket, int]) -> None:
        with self._lock:
            hot = self._loads[load.table.path].hot
            load.close()
            self._services.meta.publish(load.table.table_id, ends)
            for bucket, end in ends.items():
                hot.raise_end(bucket, end)
            hot.open_existing()
            del self._loads[load.table.path]
            self._add(hot)

    def drop_load(self, load: HotLoad) -> None:
        with self._lock:
            load.close()
            self._services.meta.mark_table_dropping(load.table.table_id)
            self._loads.pop(load.table.path, None)
        self.upkeep.finish_drops()

    def _check_loading(self, path: TablePath) -> None:
        load = self._loads.get(path)
        if load is not None:
            raise TableLoading(table=str(path), rows=load.rows, of=int(load.note[_OF]))

    def left_out(self) -> Sequence[str]:
        return self._services.meta.left_out.lines

    def list_tables(self) -> Sequence[TablePath]:
        return [table.path for table in self.load_tables()]

    def schemas(self, table: TableInfo) -> Sequence[Schema]:
        return self.hot_table(table).schemas

    def load_tables(self) -> Sequence[TableInfo]:
        return sorted((t.info for t in self.hot_tables()), key=lambda info: (info.path.database, info.path.table))

    # ---- partitions ----------------------------------------------------------------------------------------------
    def partitions(self, table: TableInfo) -> Sequence[str]:
        return self.hot_table(table).partitions

    def create_partition(self, table: TableInfo, name: str) -> None:
        """Safe to repeat. Raises `InvalidRequest`, `PartitionExpired`."""
        self.hot_table(table).create_partition(name)

    def drop_partition(self, table: TableInfo, name: str) -> None:
        """Removes the hot side of it, whatever the lake has. Raises `PartitionNotFound`."""
        self.hot_table(table).drop_partition(name)
        self.upkeep.finish_drops()

    # ---- puts ----------------------------------------------------------------------------------------------------
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

    # ---- log reads -----------------------------------------------------------------------------------------------
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

    # ---- cuts ----------------------------------------------------------------------------------------------------
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

    def stopped_buckets(self, table: TableInfo) -> Mapping[Bucket, str]:
        hot = self._tables.get(table.table_id)
        return {b.bucket: b.stopped for b in hot.opened() if b.stopped is not None} if hot is not None else {}

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
