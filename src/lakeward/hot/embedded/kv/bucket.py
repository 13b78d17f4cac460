# SPDX-License-Identifier: Apache-2.0
"""The KV side of one bucket of a PK table: puts, lookups, snapshots, over a changelog that is the truth.

A put reads the before-images in bulk, appends its changelog to the log as one batch, then writes KV together with the
offset it has applied. If anything fails between the two, the bucket takes no call before it has rolled KV forward
again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakeward.errors import SchemaChanged
from lakeward.hot.embedded.kv.bucketdatabase import DATABASE, BucketDatabase
from lakeward.hot.embedded.kv.database import KvDatabase
from lakeward.hot.embedded.kv.kvoptions import KvOptions
from lakeward.hot.embedded.kv.put import Put, PutBuilder
from lakeward.hot.embedded.kv.recovery import ORIGIN
from lakeward.hot.embedded.kv.rowcodec import RowCodec, StoredRows
from lakeward.hot.embedded.kv.snapshot import StoredSnapshot
from lakeward.hot.embedded.kv.structcodec import binary_of
from lakeward.hot.embedded.log.writers import Appended, WriterSequence
from lakeward.model import OFFSET, TIMESTAMP, Schema, TableInfo, fault_point
from lakeward.spi import KvSnapshot

__all__ = ["KvBucket", "KvOptions"]

_SCAN_ROWS = 8192
"""Rows of a snapshot decoded at once: about a megabyte."""

_SETTLE_BYTES = 1 << 20
"""Below this a checkpoint's own flush is over in a moment."""


class KvBucket(BucketDatabase):
    """Thread-safe. Puts of one bucket run one after the other; lookups and snapshot reads beside them."""

    # ---- puts --------------------------------------------------------------------------------------------------------
    def upsert(
        self, batch: pa.RecordBatch, columns: Sequence[str] | None = None, writer: WriterSequence | None = None
    ) -> Appended:
        """Inserts or replaces rows in the order given; `columns`: only those (and the key) are set, the others stay.

        Returns when the put may be acknowledged, as the table's fsync policy says. A row equal to what is stored leaves
        no record. Raises `InvalidRows` (nothing was stored), `OutOfSequence`, `DiskFull`, `BucketStopped`; after
        `KvFailed` the put may be in the log: retry it with its sequence."""
        return self._acknowledged(self.begin_upsert(batch, columns, writer))

    def delete(self, keys: pa.RecordBatch, writer: WriterSequence | None = None) -> Appended:
        """Deletes by key; keys that are not there leave no record. Raises as `upsert` does."""
        return self._acknowledged(self.begin_delete(keys, writer))

    def begin_upsert(
        self,
        batch: pa.RecordBatch,
        columns: Sequence[str] | None = None,
        writer: WriterSequence | None = None,
        *,
        sent: Schema | None = None,
    ) -> Appended:
        """`upsert` without waiting for the disk: before it is acknowledged the log is synced up to its stop. `sent`:
        the schema that the batch was made for, where it may be an older one."""

        def build(database: KvDatabase) -> Put:
            rows, named = self._builder.in_today(batch, columns, sent)
            return self._builder.upsert(rows, named, database.get, self._log.end)

        return self._put(build, writer)

    def begin_delete(
        self, keys: pa.RecordBatch, writer: WriterSequence | None = None, *, sent: Schema | None = None
    ) -> Appended:
        """`delete` without waiting for the disk."""

        def build(database: KvDatabase) -> Put:
            rows, _ = self._builder.in_today(keys, None, sent)
            return self._builder.delete(rows, database.get, self._log.end)

        return self._put(build, writer)

    def _acknowledged(self, appended: Appended) -> Appended:
        self._log.wait_synced(appended.stop)
        return appended

    def _put(self, build: Callable[[KvDatabase], Put], writer: WriterSequence | None) -> Appended:
        with self._lock, self._noting_damage():
            database = self._in_step("writes")
            duplicate = self._log.find_duplicate(writer)
            return self._store(database, build(database), writer) if duplicate is None else duplicate

    def _store(self, database: KvDatabase, put: Put, writer: WriterSequence | None) -> Appended:
        try:
            schema_id, now_ms = self._builder.schema.schema_id, self._clock.now_ms()
            appended = self._log.append(
                put.rows, put.kinds.tobytes(), schema_id=schema_id, timestamp_ms=now_ms, writer=writer
            )
            fault_point("kv.after-append", bucket=self.bucket)
            self._apply(database, put, appended)
        except BaseException:
            if database.state.applied != self._log.end:
                self._stop()
            raise
        if self._unflushed > self._options.flush_bytes:
            self._flush(database)
        return appended

    def _apply(self, database: KvDatabase, put: Put, appended: Appended) -> None:
        values: Sequence[bytes | None] = [None] * len(put.keys)
        if put.bodies is not None:
            packed = self._builder.codec.pack(put.bodies, put.offsets, appended.timestamp_ms)
            self._unflushed += packed.nbytes
            values = packed.to_pylist()
        self._unflushed += sum(map(len, put.keys))
        state = database.state.after(
            stop=appended.stop, growth=put.growth, records=put.rows.num_rows, at_ms=appended.timestamp_ms
        )
        database.write(put.keys, values, state)

    def take_over(self, rows: Iterable[pa.RecordBatch], as_of_ms: int) -> int:
        """The bucket's rows become these, which are all of them, with `__offset`: those of other offsets are put, keys
        that are not among them deleted; what was put after `as_of_ms` stays. For a bucket that is stopped, and stays
        so for others. Returns the changes. Raises as `upsert` does."""
        changes, keys, names = 0, [pa.array([], pa.binary())], self._builder.codec.arrow.names
        for batch in rows:
            keys.append(self._builder.key_of(batch))
            with self._past_stop("a load") as database:
                offsets, times = self._builder.stamps(batch, database.get)
                lake = batch.column(OFFSET).to_numpy(zero_copy_only=False)
                newer = batch.select(names).filter(pa.array((offsets != lake) & (times <= as_of_ms)))
                changes += self._changed(self.begin_upsert(newer)) if newer.num_rows else 0
        changes += self._delete_others(pa.chunked_array(keys), as_of_ms)
        fault_point("kv.taken-over", bucket=self.bucket)
        self._log.sync()
        return changes

    def put_again(self, rows: Iterable[pa.RecordBatch]) -> None:
        """Rows that are not among these, which have keys and `__offset`, are deleted and put with new offsets. For a
        bucket that is stopped, and stays so for others. Raises as `upsert` does."""
        theirs = [(self._builder.key_of(batch), batch.column(OFFSET)) for batch in rows]
        keys = pa.chunked_array([k for k, _ in theirs], pa.binary())
        offsets = pa.chunked_array([o for _, o in theirs], pa.int64())
        holder = f"put-again-{self.bucket}"
        snapshot = self.take_snapshot(holder)
        for batch in self.read_snapshot(snapshot.snapshot_id) if snapshot is not None else ():
            at = pc.index_in(self._builder.key_of(batch), value_set=keys)
            same = pc.equal(offsets.take(at), batch.column(OFFSET)).combine_chunks().fill_null(False)
            others = batch.filter(pc.invert(same)).select(self._builder.codec.arrow.names)
            if others.num_rows:
                with self._past_stop("a resync"):
                    self._put(partial(self._renew, others), None)
        self.snapshots.release(holder)
        self._log.sync()

    def _renew(self, rows: pa.RecordBatch, database: KvDatabase) -> Put:
        """Deleted and put again in one batch of the log: rows that are there."""
        gone = self._builder.delete(rows.select(self._builder.keys.names), database.get, self._log.end)
        put = self._builder.upsert(rows, None, _find_none, self._log.end + gone.rows.num_rows)
        (records,) = pa.Table.from_batches([gone.rows, put.rows]).combine_chunks().to_batches()
        kinds = np.concatenate([gone.kinds, put.kinds])
        return replace(put, rows=records, kinds=kinds, growth=gone.growth + put.growth)

    def _delete_others(self, keys: pa.ChunkedArray, as_of_ms: int) -> int:
        holder, deleted_keys = f"take-over-{self.bucket}", []
        snapshot = self.take_snapshot(holder)
        for batch in self.read_snapshot(snapshot.snapshot_id, self._builder.keys.names) if snapshot is not None else ():
            times = batch.column(TIMESTAMP).cast(pa.int64()).to_numpy()
            is_in_lake = pc.is_in(self._builder.key_of(batch), value_set=keys).to_numpy(zero_copy_only=False)
            deleted_keys.append(
                batch.select(self._builder.keys.names).filter(pa.array(~is_in_lake & (times <= as_of_ms)))
            )
        self.snapshots.release(holder)
        changes = 0
        for batch in (b for b in deleted_keys if b.num_rows):
            with self._past_stop("a load"):
                changes += self._changed(self.begin_delete(batch))
        return changes

    @staticmethod
    def _changed(appended: Appended) -> int:
        return appended.stop - appended.start

    @contextmanager
    def _past_stop(self, what: str) -> Iterator[KvDatabase]:
        """Puts of this thread pass while others are refused."""
        with self._lock, self._noting_damage():
            reason = self._log.stopped
            self._log.stop(None)
            try:
                yield self._in_step(what)
            finally:
                self._log.stop(reason)

    # ---- reads -------------------------------------------------------------------------------------------------------
    def lookup(
        self, keys: pa.RecordBatch, columns: Sequence[str] | None = None, *, planned: Schema | None = None
    ) -> pa.RecordBatch:
        """The rows of those keys that are there, in the order of `keys`, with `__offset` and `__timestamp`. Blocks no
        put. `planned`: the reader's schema, which names the keys too."""
        builder = self._builder
        keys, _ = builder.in_today(keys, None, planned)
        if self._is_new():
            return builder.codec.decode_batch(builder.find(keys, _find_none), columns, planned)
        with self._noting_damage(), self._using("lookups") as database:
            rows_by_key = builder.find(keys, database.get)
        return builder.codec.decode_batch(rows_by_key, columns, planned)

    def _is_new(self) -> bool:
        """Nothing was ever put here: no reason to make a database."""
        is_there = self._database is not None or any((self._folder.with_name(n)).exists() for n in (DATABASE, ORIGIN))
        return not is_there and self._log.start == self._log.end and self.snapshots.newest() is None

    @property
    def rows(self) -> int:
        """Live rows."""
        with self._using("counting") as database:
            return database.state.rows

    # ---- snapshots ---------------------------------------------------------------------------------------------------
    def take_snapshot(self, holder: str) -> KvSnapshot | None:
        """A snapshot of now, leased to `holder`; the same one when it asks again. None when nothing was ever
        put here.
        """
        self._settle()
        with self._lock:
            stored = self.snapshots.find_leased(holder) or self._fresh_snapshot()
            if stored is None:
                return None
            self.snapshots.lease(holder, stored, self._options.lease_s)
        return KvSnapshot(
            bucket=self.bucket, snapshot_id=stored.snapshot_id, log_offset=stored.log_offset, rows=stored.rows
        )

    def read_snapshot(
        self, snapshot_id: str, columns: Sequence[str] | None = None, *, planned: Schema | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Rows of a snapshot, with `__offset` and `__timestamp` of each one's last change; `planned` is the reader's
        schema.

        Raises `SnapshotGone`; `SchemaChanged` for a row of a schema newer than the reader's, which would lose values.
        """
        codec = self._builder.codec
        read_schema = codec.schema if planned is None else planned
        for values in self.snapshots.scan(snapshot_id, _SCAN_ROWS):
            rows = codec.unpack(binary_of(values))
            self._check_schema(rows, read_schema)
            yield codec.decode_batch(rows, columns, read_schema)

    def _check_schema(self, rows: StoredRows, planned: Schema) -> None:
        newer = rows.schema_ids > planned.schema_id
        if newer.any():
            at, schema_id = int(rows.offsets[newer][0]), int(rows.schema_ids[newer][0])
            raise SchemaChanged(
                table=str(self._table.path), offset=at, batch_schema=schema_id, planned_schema=planned.schema_id
            )

    def tick(self) -> None:
        """Upkeep, called every so often: a snapshot when one is due, old ones removed."""
        if self._clock.monotonic() >= self._snapshot_due:
            self._snapshot_due = self._clock.monotonic() + self._options.snapshot_interval_s
            self._settle()
            with self._lock:
                self._fresh_snapshot()
        self.snapshots.prune()

    def needed_from(self) -> int:
        """Below this offset KV needs nothing of the log; without a snapshot a rebuild would need all of it."""
        return self.snapshots.held_from() or 0

    def _settle(self) -> None:
        """Most of what a checkpoint flushes, before it holds up puts."""
        if self._unflushed > _SETTLE_BYTES:
            self._log.sync()
            with self._using("snapshots") as database:
                database.flush()

    def _fresh_snapshot(self) -> StoredSnapshot | None:
        newest = self.snapshots.newest()
        if self._log.end == 0 or (newest is not None and newest.log_offset == self._log.end):
            return newest
        database = self._in_step("snapshots")
        # the offset it stands for must be one that a power cut does not take back
        self._log.sync()
        snapshot = self.snapshots.add(database.state, database.checkpoint)
        self._unflushed = 0
        return snapshot

    # ---- file handles ------------------------------------------------------------------------------------------------


def _find_none(keys: list[bytes]) -> list[bytes | None]:
    return [None] * len(keys)


def lookup_nothing(
    table: TableInfo, schemas: Mapping[int, Schema], keys: pa.RecordBatch, planned: Schema
) -> pa.RecordBatch:
    """Answer of a lookup in a bucket that has no rows and never had any. Raises `InvalidRows`."""
    builder = PutBuilder(str(table.path), RowCodec(schemas), table.descriptor.primary_key, with_before_images=False)
    keys, _ = builder.in_today(keys, None, planned)
    return builder.codec.decode_batch(builder.find(keys, _find_none), planned=planned)
