# SPDX-License-Identifier: Apache-2.0
"""One split on its way from the hot store into a lake writer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from lakeward.changelog import Fold, KeyedFold
from lakeward.changelog.columns import Mask, keep_rows, with_change, with_change_name, without_prev
from lakeward.changelog.rowsum import RowSum
from lakeward.model import (
    OFFSET,
    TIMESTAMP,
    Bucket,
    ChangeType,
    Clock,
    Content,
    LogSplit,
    OffsetSet,
    SnapshotId,
    SnapshotSplit,
    Split,
    fault_point,
)
from lakeward.read.tail import scan_bucket
from lakeward.spi import (
    NO_ROWS,
    DeleteEncoding,
    HotStore,
    KvSnapshot,
    LakeStorage,
    LakeWriter,
    PluginCache,
    SupportsChanges,
    SupportsKeyDeletes,
    WriteTask,
    check_table,
    next_offset,
)
from lakeward.tiering.work.certificate import is_certified
from lakeward.tiering.work.outcome import WriteOutcome
from lakeward.tiering.work.stop import TaskStop
from lakeward.tiering.work.writeorder import WriteOrder
from lakeward.tiering.write.lakediff import LakeDiff
from lakeward.tiering.write.logread import LogReader, LogSource
from lakeward.tiering.write.sorting import sort_by_offset


@dataclass(frozen=True)
class _Written:
    """How far a split got and what it replaced, once its rows are with the lake writer."""

    stop: int
    replaced: OffsetSet = field(default_factory=OffsetSet)
    bytes_read: int = 0
    renewed: OffsetSet = field(default_factory=OffsetSet)


class SplitWriter:
    """One split, one attempt. The lake writer is opened with the first row: no row, no file. `source`: where a log's
    rows come from, if not from a read of its own."""

    def __init__(
        self,
        order: WriteOrder,
        split: Split,
        plugins: PluginCache,
        clock: Clock,
        attempt: int,
        signal: TaskStop,
        *,
        is_first: bool,
        source: LogSource | None = None,
    ) -> None:
        self._order, self._split, self._clock, self._attempt, self._is_first = order, split, clock, attempt, is_first
        self._source = source
        self._store: HotStore = plugins.hot(order.hot).store()
        self._lake: LakeStorage = plugins.lake(order.lake)
        self._table = order.lake_table
        self._is_changelog = order.side.content is Content.CHANGELOG
        self._signal = signal
        self._writer: LakeWriter | None = None
        self._rows = 0
        self._sums = RowSum() if self._is_certified() else None

    def run(self) -> WriteOutcome:
        split = self._split
        fault_point("split.before-read", **self._facts())
        self._signal.check()
        if self._signal.is_due() and not self._is_first:
            return WriteOutcome(split=split, stop=split.start, attempt=self._attempt, round_id=self._order.round_id)
        try:
            written = self._write_snapshot(split) if isinstance(split, SnapshotSplit) else self._write_log(split)
            result = None if self._writer is None else self._writer.complete()
        except BaseException:
            if self._writer is not None:
                self._writer.abort()
            raise
        fault_point("split.written", **self._facts())
        return WriteOutcome(
            split=split,
            stop=written.stop,
            attempt=self._attempt,
            round_id=self._order.round_id,
            result=result,
            replaced=written.replaced,
            renewed=written.renewed,
            sums=self._sums,
            rows=self._rows,
            bytes_read=written.bytes_read,
        )

    def _is_certified(self) -> bool:
        is_compared = isinstance(self._split, SnapshotSplit) and self._order.compare_with is not None
        return is_certified(self._order.table) and not is_compared

    def _facts(self) -> dict[str, str]:
        order = self._order
        return {"table": str(order.table.path), "side": str(order.side), "split": str(self._split)}

    # ---- log splits ----------------------------------------------------------------------------------------------
    def _write_log(self, split: LogSplit) -> _Written:
        reader = self._source or LogReader(
            self._store, self._order.table, split.bucket, self._signal, self._clock, self._order.server_wait_s
        )
        written = self._write_changes(split, reader) if self._table.is_pk else self._write_appends(split, reader)
        return replace(written, bytes_read=reader.bytes_read)

    def _write_appends(self, split: LogSplit, reader: LogSource) -> _Written:
        for batch in reader.read(split.start, split.stop):
            self._write(with_change_name(batch) if self._is_changelog else keep_rows(batch, _all(batch)))
            if self._signal.is_due() and (stop := next_offset(batch)) < split.stop:
                return _Written(stop)
        return _Written(split.stop)

    def _write_changes(self, split: LogSplit, reader: LogSource) -> _Written:
        match self._encoding():
            case DeleteEncoding.POSITIONS:
                return self._write_folded(split, reader)
            case DeleteEncoding.EQUALITY:
                return self._write_keyed(split, reader)
            case DeleteEncoding.NATIVE:
                return self._write_native(split, reader)

    def _encoding(self) -> DeleteEncoding:
        """Raises `InvalidTable` for a lake that cannot take this hot store's changes."""
        table = self._order.table
        has_prev = self._store.names_replaced(table)
        encoding = self._lake.capabilities.encoding(has_prev_offset=has_prev)
        if encoding is None:
            check_table(
                self._lake.name, self._lake.capabilities, table.path, table.descriptor, has_prev_offset=has_prev
            )
        assert encoding is not None
        return encoding

    def _write_folded(self, split: LogSplit, reader: LogSource) -> _Written:
        """The stop is fixed between the passes; what records above it replaced is not in the fold."""
        fold = reader.fold(split.range)
        held = list(reader.read(split.start, split.stop)) if len(split.range) <= self._order.held_rows else None
        stop = self._see(split, reader.read(split.start, split.stop, columns=[]) if held is None else held, fold)
        stop = fold.seal(stop).stop
        for batch in reader.read(split.start, stop) if held is None else held:
            self._write(fold.live(batch))
        return _Written(stop, fold.replaced_below)

    def _write_keyed(self, split: LogSplit, reader: LogSource) -> _Written:
        key = self._order.table.descriptor.primary_key
        fold = KeyedFold(split.start, split.stop, key)
        stop = self._see(split, reader.read(split.start, split.stop, columns=list(key)), fold)
        fold.seal()
        replaced_keys = fold.replaced_keys
        if replaced_keys.num_rows:
            for batch in replaced_keys.to_batches():
                self._delete_keys(batch)
        for batch in reader.read(split.start, stop):
            self._write(fold.live(batch))
        return _Written(stop)

    def _write_native(self, split: LogSplit, reader: LogSource) -> _Written:
        """Every change as it is: the format merges by key."""
        for batch in reader.read(split.start, split.stop):
            self._hand_over(without_prev(batch))
            if self._signal.is_due() and (stop := next_offset(batch)) < split.stop:
                return _Written(stop)
        return _Written(split.stop)

    def _see(self, split: LogSplit, batches: Iterable[pa.RecordBatch], fold: Fold | KeyedFold) -> int:
        """Pass one; returns the stop, which is short when the split came due on the way."""
        for batch in batches:
            fold.see(batch)
            if self._signal.is_due() and (stop := next_offset(batch)) < split.stop:
                return stop
        return split.stop

    # ---- snapshot splits -----------------------------------------------------------------------------------------
    def _write_snapshot(self, split: SnapshotSplit) -> _Written:
        """Runs to its end whatever the deadline. Where the bucket was tiered before, only rows that the lake lacks,
        or has otherwise, are written.
        """
        snapshot = KvSnapshot(bucket=split.bucket, snapshot_id=split.snapshot_id, log_offset=split.log_offset)
        head = self._order.compare_with
        if self._encoding() is DeleteEncoding.NATIVE:
            return self._write_native_snapshot(split, snapshot, head)
        if self._encoding() is DeleteEncoding.EQUALITY:
            return self._write_keyed_snapshot(split, snapshot, head)
        read = [0]
        sorted_rows = sort_by_offset(self._kept_rows(snapshot, read))
        diff = LakeDiff(self._order.table.schema.names)
        for batch in sorted_rows if head is None else diff.rows(sorted_rows, self._lake_rows(split.bucket, head)):
            self._write(batch)
        return _Written(split.stop, diff.gone, read[0], diff.renewed)

    def _write_keyed_snapshot(self, split: SnapshotSplit, snapshot: KvSnapshot, head: SnapshotId | None) -> _Written:
        """Rows that are found by key. Where the bucket was tiered before, all that the lake has of it goes, by
        key.
        """
        if head is not None:
            key = list(self._order.table.descriptor.primary_key)
            for batch in self._scan_lake(head, split.bucket, key):
                self._signal.check()
                self._delete_keys(batch)
        read = [0]
        rows = self._kept_rows(snapshot, read)
        for batch in sort_by_offset(rows) if self._store.has_prev_offset else rows:
            self._write(batch)
        return _Written(split.stop, OffsetSet(), read[0])

    def _write_native_snapshot(self, split: SnapshotSplit, snapshot: KvSnapshot, head: SnapshotId | None) -> _Written:
        """Rows of the bucket that the lake has are deleted first, then those of the snapshot come, in offset order. A
        delete has the values of NOT NULL columns too: a format's writer may refuse a record without them."""
        if head is not None:
            key = self._order.table.descriptor.primary_key
            needed = [c.name for c in self._order.table.schema.columns if c.name not in key and not c.type.nullable]
            names = [*key, *needed, OFFSET, TIMESTAMP]
            for batch in self._scan_lake(head, split.bucket, names):
                self._signal.check()
                self._hand_over(with_change(batch, ChangeType.DELETE))
        read = [0]
        for batch in sort_by_offset(self._kept_rows(snapshot, read)):
            self._hand_over(with_change(batch, ChangeType.INSERT))
        return _Written(split.stop, OffsetSet(), read[0])

    def _kept_rows(self, snapshot: KvSnapshot, read: list[int]) -> Iterator[pa.RecordBatch]:
        if snapshot.snapshot_id == NO_ROWS:
            return iter(())
        return self._checked(self._store.read_snapshot(self._order.table, snapshot), read)

    def _checked(self, batches: Iterable[pa.RecordBatch], read: list[int]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            self._signal.check()
            read[0] += batch.nbytes
            if batch.num_rows:
                yield batch

    def _lake_rows(self, bucket: Bucket, head: SnapshotId) -> Iterator[pa.RecordBatch]:
        rows = self._scan_lake(head, bucket, [*self._order.table.schema.names, OFFSET])
        return sort_by_offset(self._checked(rows, [0]))

    def _scan_lake(self, head: SnapshotId, bucket: Bucket, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        table = self._order.table
        return scan_bucket(self._lake.open_reader(table).pinned(), table, head, bucket, names)

    # ---- the lake's side -----------------------------------------------------------------------------------------
    def _delete_keys(self, keys: pa.RecordBatch) -> None:
        writer = self._open_writer()
        assert isinstance(writer, SupportsKeyDeletes), f"{self._lake.name} takes no keys"
        self._sums = None
        writer.delete_keys(keys)

    def _open_writer(self) -> LakeWriter:
        if self._writer is None:
            order = self._order
            self._writer = self._lake.open_writer(
                WriteTask(
                    round_id=order.round_id,
                    table=self._table,
                    split=self._split,
                    attempt=self._attempt,
                    handle=order.handle,
                )
            )
        return self._writer

    def _hand_over(self, changes: pa.RecordBatch) -> None:
        if changes.num_rows:
            writer = self._open_writer()
            assert isinstance(writer, SupportsChanges), f"{self._lake.name} takes no changes"
            writer.write_changes(changes)
            self._sums = None  # the format merges by key: what was written is not what the lake shows
            self._rows += changes.num_rows
        fault_point("split.batch", **self._facts(), rows=self._rows)

    def _write(self, batch: pa.RecordBatch) -> None:
        if batch.num_rows:
            self._open_writer().write(batch)
            self._rows += batch.num_rows
            if self._sums is not None:
                self._sums = self._sums.plus(batch)
        fault_point("split.batch", **self._facts(), rows=self._rows)


def _all(batch: pa.RecordBatch) -> Mask:
    return np.ones(batch.num_rows, np.bool_)
