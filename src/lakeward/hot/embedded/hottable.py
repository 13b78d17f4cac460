# SPDX-License-Identifier: Apache-2.0
"""One table of the store: its schemas, partitions and buckets, and whether it takes writes."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

import pyarrow as pa

from lakeward.errors import InvalidRequest, OffsetOutOfRange, PartitionNotFound, WritesPaused
from lakeward.hot.embedded.arrivals import Arrivals
from lakeward.hot.embedded.hotbucket import HotBucket
from lakeward.hot.embedded.hotpartitions import HotPartitions
from lakeward.hot.embedded.log.durable import make_folder
from lakeward.hot.embedded.log.files import LogPlace
from lakeward.hot.embedded.log.log import BucketLog
from lakeward.hot.embedded.log.rowshape import RowShape
from lakeward.hot.embedded.log.writers import WriterSequence
from lakeward.hot.embedded.metadb import HotTableState
from lakeward.hot.embedded.services import StoreServices
from lakeward.hot.logbatch.header import NO_WRITER
from lakeward.model import Bucket, CutEnds, OffsetMap, Schema, TableInfo, fault_point
from lakeward.spi import LogBounds

_log = logging.getLogger(__name__)


class HotTable(HotPartitions):
    """Thread-safe. A bucket's log is made by the first write to it."""

    def __init__(self, stored: HotTableState, services: StoreServices) -> None:
        super().__init__(stored, services)
        self.schemas: tuple[Schema, ...] = stored.schemas
        self.shape = RowShape(str(stored.info.path), stored.info.is_pk, stored.schemas)
        self.paused = stored.paused
        self.arrivals = Arrivals()
        self.ignored_rows = 0
        """Rows of old writers with a value for a dropped column."""
        self._stopped, self._ends = dict(stored.stopped), dict(stored.ends)
        self._buckets: dict[Bucket, HotBucket] = {}

    def at_schema(self, schema_id: int) -> TableInfo:
        """The table at one of its schemas. Raises `InvalidRequest` for one that it never had."""
        schema = next((s for s in self.schemas if s.schema_id == schema_id), None)
        if schema is None:
            reason = f"the table has schemas 1 to {self.schemas[-1].schema_id}; load the table again"
            raise InvalidRequest(what=f"schema {schema_id} of {self.info.path}", reason=reason)
        return self.info.with_schema(schema)

    def count_ignored(self, sent: Schema, batch: pa.RecordBatch) -> None:
        """`sent`: the schema for which the batch was made."""
        today = self.info.schema
        if sent.schema_id != today.schema_id:
            dropped = [c for c in sent.columns if c.column_id not in today.by_id and c.name in batch.schema.names]
            self.ignored_rows += batch.num_rows if dropped else 0

    # ---- buckets -------------------------------------------------------------------------------------------------
    def open_existing(self) -> None:
        """At start: recovers every log that is there."""
        for name, partition_id in self._known_partitions():
            for bucket_folder in _bucket_folders(self.folder / f"p{partition_id}"):
                self._open(Bucket(name, int(bucket_folder[1:])))

    def find_bucket(self, bucket: Bucket) -> HotBucket | None:
        """None: nothing was ever written to it. Raises `PartitionNotFound`, `InvalidRequest` for one that cannot be."""
        self._services.open_files.make_room()
        hot_bucket = self._buckets.get(bucket)
        if hot_bucket is None:
            self._check_name(bucket)
            if self.is_partitioned and bucket.partition not in self._partitions:
                raise PartitionNotFound(table=str(self.info.path), partition=bucket.partition)
        return hot_bucket

    def bucket_for_write(self, bucket: Bucket) -> HotBucket:
        """Makes partition and log as needed. Raises `WritesPaused`, `PartitionExpired`, `InvalidRequest`."""
        if self.paused is not None:
            raise WritesPaused(table=str(self.info.path), reason=self.paused)
        self._check_expired(bucket.partition)
        self._services.open_files.make_room()
        hot_bucket = self._buckets.get(bucket)
        return hot_bucket if hot_bucket is not None else self.make_bucket(bucket)

    def make_bucket(self, bucket: Bucket) -> HotBucket:
        with self._lock:
            self._check_name(bucket)
            if self.is_partitioned and bucket.partition not in self._partitions:
                self.create_partition(bucket.partition)
            return self._buckets.get(bucket) or self._open(bucket)

    def all_buckets(self) -> Iterator[tuple[Bucket, HotBucket | None]]:
        """Every bucket there is, those without a log included."""
        for name, _ in self._known_partitions():
            for number in range(self.info.descriptor.bucket_count):
                bucket = Bucket(name, number)
                yield bucket, self._buckets.get(bucket)

    def opened(self) -> list[HotBucket]:
        with self._lock:
            return list(self._buckets.values())

    @contextmanager
    def still(self) -> Iterator[None]:
        """While it lasts no rows are appended and no bucket is added or removed. Raises `BucketStopped` for a damaged
        bucket, whose end is unknown."""
        with self._lock, ExitStack() as held:
            for bucket in self._buckets.values():
                held.enter_context(bucket.log.held())
            yield

    def cut_ends(self) -> CutEnds:
        """While the table is `still`."""
        ends = {b: self.first_offset(b) if hot is None else hot.log.end for b, hot in self.all_buckets()}
        return CutEnds(ends=OffsetMap(ends), gone=OffsetMap({b: e for b, e in self._ends.items() if b not in ends}))

    def first_offset(self, bucket: Bucket) -> int:
        """Where the log of a bucket that has none yet will begin."""
        return self._ends.get(bucket, 0)

    def raise_end(self, bucket: Bucket, end: int) -> None:
        self._ends[bucket] = max(end, self._ends.get(bucket, 0))

    def _check_name(self, bucket: Bucket) -> None:
        path, count = self.info.path, self.info.descriptor.bucket_count
        if bucket.number >= count:
            raise InvalidRequest(
                what=f"bucket {bucket} of {path}", reason=f"the table has {count} buckets, numbered from 0"
            )
        if bool(bucket.partition) != self.is_partitioned:
            reason = "the table is partitioned: name one" if self.is_partitioned else "the table has no partitions"
            raise InvalidRequest(what=f"bucket {bucket} of {path}", reason=reason)

    def _open(self, bucket: Bucket) -> HotBucket:
        folder = self.bucket_folder(bucket)
        hot = HotBucket(bucket, self.info, self._services, folder, partial(self._open_log, bucket, folder))
        self._buckets[bucket] = hot
        return hot

    def _open_log(self, bucket: Bucket, folder: Path) -> BucketLog:
        services, place = self._services, LogPlace(folder=folder / "log", table=str(self.info.path), bucket=str(bucket))
        fault_point("hotlog.open", bucket=bucket)
        make_folder(place.folder)
        remote = None
        if services.remote is not None:
            remote = services.remote.log(self._remote_parts(bucket), folder / "remote.json")
            if services.options.restored:
                remote.adopt()
        log = BucketLog(
            place,
            self.shape,
            self.options,
            clock=services.clock,
            reserve=services.reserve,
            remote=remote,
            first_offset=self.first_offset(bucket),
            writer_ttl_ms=services.options.writer_ttl_ms,
            arrivals=self.arrivals,
            open_files=services.open_files,
        )
        if log.cut_bytes:
            _log.warning(
                "table %s, bucket %s: %d bytes of a torn tail were cut", place.table, place.bucket, log.cut_bytes
            )
        log.skip_to(max(self.first_offset(bucket), remote.end if remote is not None else 0))
        log.stop(self._stopped.get(bucket))
        return log

    def bucket_folder(self, bucket: Bucket) -> Path:
        return self.folder / f"p{self._partitions.get(bucket.partition, 0)}" / f"b{bucket.number}"

    def _remote_parts(self, bucket: Bucket) -> list[str]:
        return [*self.remote_parts(), f"p{self._partitions.get(bucket.partition, 0)}", f"b{bucket.number}"]

    # ---- partitions ----------------------------------------------------------------------------------------------
    def drop_partition(self, name: str) -> None:
        """Its ends are remembered; its files are removed by upkeep. Raises `PartitionNotFound`."""
        with self._lock:
            if name not in self._partitions:
                raise PartitionNotFound(table=str(self.info.path), partition=name)
            ends = {}
            for bucket in [b for b in self._buckets if b.partition == name]:
                hot = self._buckets.pop(bucket)
                hot.abandon()  # first, so that no put comes after its end was noted
                ends[bucket] = max(hot.known_end(), self.first_offset(bucket))
            self._services.meta.mark_partition_dropping(self.info.table_id, name, ends)
            for bucket, end in ends.items():
                self.raise_end(bucket, end)
            del self._partitions[name]

    # ---- changes -------------------------------------------------------------------------------------------------
    def alter(self, info: TableInfo) -> None:
        """`info` was checked and stored."""
        with self._lock:
            options = self._services.options.table(info)
            if info.schema.schema_id not in {s.schema_id for s in self.schemas}:
                self.schemas = (*self.schemas, info.schema)
                self.shape.add(info.schema)
            self.info, self.options = info, options
            for bucket in self._buckets.values():
                bucket.set_table(info, self.schemas)
                if bucket.failure is None:
                    bucket.log.options = options

    def stop_bucket(self, bucket: Bucket, reason: str | None) -> None:
        self._services.meta.stop(self.info.table_id, bucket, reason)
        with self._lock:
            self._stopped.pop(bucket, None)
            if reason is not None:
                self._stopped[bucket] = reason
            if bucket in self._buckets or reason is not None:
                self.make_bucket(bucket).log.stop(reason)

    @property
    def guarded(self) -> dict[Bucket, str]:
        """Stopped by `stop_bucket`, with the reason."""
        return dict(self._stopped)

    def lift_stops(self) -> None:
        """Restarts buckets that `stop_bucket` stopped; a damaged bucket stays stopped."""
        for bucket in list(self._stopped):
            self.stop_bucket(bucket, None)

    def close(self) -> None:
        with self._lock, ExitStack() as each:
            for bucket in self._buckets.values():
                each.callback(bucket.close)
            self._buckets.clear()

    def abandon(self) -> None:
        """Closes without putting anything to disk: its files will be removed."""
        with self._lock:
            for bucket in self._buckets.values():
                bucket.abandon()
            self._buckets.clear()


def writer_of(table: HotTable, bucket: Bucket, offset: int) -> WriterSequence | None:
    """Which writer stored a record, and in which of its batches. None: it gave no id. Raises `OffsetOutOfRange`."""
    hot_bucket = table.find_bucket(bucket)
    bounds = LogBounds(start=0, end=0) if hot_bucket is None else hot_bucket.log.bounds()
    stored = None
    if hot_bucket is not None and bounds.start <= offset < bounds.end:
        stored = next(hot_bucket.log.files.read_stored(offset, offset + 1), None)
    if stored is None:
        place = {"table": str(table.info.path), "bucket": str(bucket)}
        raise OffsetOutOfRange(**place, offset=offset, start=bounds.start, end=bounds.end)
    header = stored.header
    return None if header.writer_id == NO_WRITER else WriterSequence(header.writer_id, header.sequence)


def _bucket_folders(folder: Path) -> list[str]:
    """Raises `PermissionError`: a table whose folder cannot be read has rows, and must not look empty."""
    try:
        return sorted(name for name in os.listdir(folder) if name.startswith("b"))
    except FileNotFoundError:
        return []
