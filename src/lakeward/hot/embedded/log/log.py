# SPDX-License-Identifier: Apache-2.0
"""A bucket's log: appends under one lock, group commit, reads without a lock over local and remote segments."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import chain

import pyarrow as pa

from lakeward.errors import InvalidRequest, OffsetOutOfRange
from lakeward.hot.embedded.log.active import ActiveSegment, mark_path
from lakeward.hot.embedded.log.durable import sync_file, sync_folder, write_whole
from lakeward.hot.embedded.log.files import LocalView
from lakeward.hot.embedded.log.logfolder import LogFolder
from lakeward.hot.embedded.log.recovery import save_writers
from lakeward.hot.embedded.log.segment import Segment, index_path, pack_index, remove_files, save_listed, writers_path
from lakeward.hot.embedded.log.writers import Appended, WriterSequence
from lakeward.hot.logbatch.codec import EncodedBatch, encode_batch
from lakeward.hot.logbatch.header import MAX_BATCH_BYTES, NO_SEQUENCE, NO_WRITER
from lakeward.model import Schema, fault_point
from lakeward.spi import LogBounds


class BucketLog(LogFolder):
    """Thread-safe. `append` does not wait for the disk; `wait_synced` does."""

    # ---- where it stands -----------------------------------------------------------------------------------------
    def bounds(self, *, sync: bool = False) -> LogBounds:
        if sync:
            self.sync()
        files, start, end = self.files, self.start, self.synced_end
        rows = self.end - files.local_start
        at_ms = self._last_at_ms if end > start else 0
        return LogBounds(start=start, end=end, end_at_ms=at_ms, bytes_per_row=files.local_bytes / rows if rows else 0.0)

    @contextmanager
    def held(self) -> Iterator[tuple[tuple[Segment, ...], Segment]]:
        """The closed segments and the active one as they are; nothing is appended and nothing rolls while it lasts."""
        with self._lock:
            view = self.files.view
            yield view.closed, view.active.facts()

    # ---- appending -----------------------------------------------------------------------------------------------
    def find_duplicate(self, writer: WriterSequence | None) -> Appended | None:
        """The first answer to a put that was here before. Raises `OutOfSequence`, `WriterForgotten`."""
        with self._lock:
            return self._writers.find(writer, self._clock.now_ms())

    def forget_writers(self) -> None:
        """If there are very many writers, forgets those that will not send again."""
        with self._lock:
            self._writers.forget_surplus(self._clock.now_ms())

    def append(
        self,
        rows: pa.RecordBatch,
        change_types: bytes | None = None,
        *,
        schema_id: int | None = None,
        timestamp_ms: int | None = None,
        writer: WriterSequence | None = None,
    ) -> Appended:
        """Appends one batch, whole or not at all. `rows` has the stored schema of `schema_id` (default: the newest).

        Times never go back within a log: an earlier one than the last becomes the last. Raises `OutOfSequence`,
        `DiskFull`, `BucketStopped`, `InvalidRequest` for a batch that is too big."""
        encoded = encode_batch(
            rows,
            schema_id=self.shape.newest.schema_id if schema_id is None else schema_id,
            change_types=change_types,
            writer_id=NO_WRITER if writer is None else writer.writer_id,
            sequence=NO_SEQUENCE if writer is None else writer.sequence,
            compression=self.options.compression,
            level=self.options.compression_level,
        )
        if encoded.size > MAX_BATCH_BYTES:
            raise InvalidRequest(
                what=f"batch for {self.place.table}", reason=f"{encoded.size} bytes; {MAX_BATCH_BYTES} fit into a batch"
            )
        with self._lock:
            self._check_open()
            duplicate = self._writers.find(writer, self._clock.now_ms())
            if duplicate is not None:
                return duplicate
            return self._append(encoded, timestamp_ms, writer)

    def _append(self, encoded: EncodedBatch, timestamp_ms: int | None, writer: WriterSequence | None) -> Appended:
        self._reserve.take(encoded.size)
        self._use()
        active = self.files.view.active
        if active.size and active.size + encoded.size > self.options.segment_bytes:
            active = self._roll(active.stop)
        at_ms = max(self._clock.now_ms() if timestamp_ms is None else timestamp_ms, self._last_at_ms)
        appended = Appended(active.stop, active.stop + encoded.offset_count, at_ms)
        self._write(active, encoded, appended)
        fault_point("hotlog.after-write", bucket=self.place.bucket, offset=appended.start)
        self._last_at_ms = at_ms
        self.appended_bytes += encoded.size
        if writer is not None:
            self._writers.record(writer.writer_id, writer.sequence, appended)
        return appended

    def _write(self, active: ActiveSegment, encoded: EncodedBatch, appended: Appended) -> None:
        try:
            fault_point("hotlog.before-write", bucket=self.place.bucket, offset=appended.start)
            active.write(
                encoded.parts(appended.start, appended.timestamp_ms),
                encoded.size,
                encoded.offset_count,
                appended.timestamp_ms,
            )
        except OSError as error:
            raise self._passing("writing failed", error) from error

    def _roll(self, base: int) -> ActiveSegment:
        """A new active segment from offset `base` on. The old one is fsynced by the next flush, which every
        acknowledgement waits for anyway. A crash in between leaves an empty segment or none."""
        old, folder = self.files.view.active, self.place.folder
        fault_point("hotlog.roll", bucket=self.place.bucket, offset=base)
        try:
            fault_point("hotlog.roll-files", bucket=self.place.bucket)
            self._writers.forget_before(self._last_at_ms - self._writer_ttl_ms)
            save_writers(folder, base, self._writers)
            write_whole(index_path(folder, old.base), pack_index(old.facts(), old.index), sync=False)
            active = ActiveSegment.create(folder, base, self._last_at_ms, self.options.index_bytes)
            mark_path(folder).touch()  # it is there before the list
            save_listed(folder, [*self.files.view.bases, base], sync=False)
        except OSError as error:
            raise self._passing("a new segment could not be made", error) from error
        self._retired.append(old)
        self.files.remember(old.base, old.index)
        self.files.view = LocalView((*self.files.view.closed, old.facts()), active)
        return active

    def roll(self) -> None:
        """Closes the active segment unless it is empty, so that it can be uploaded."""
        with self._lock:
            self._check_open()
            if self.files.view.active.size:
                self._roll(self.files.view.active.stop)

    def skip_to(self, offset: int) -> None:
        """Goes on at `offset`, above the end: the offsets between name no row and never will.
        Durable when it returns.
        """
        with self._lock:
            active = self.files.view.active
            if offset <= active.stop:
                return
            self._roll(offset)
            if not active.size:
                self._drop_empty(active)
        self.sync()

    def _drop_empty(self, active: ActiveSegment) -> None:
        self.files.view = self.files.view.without([active.base])
        self._retired.remove(active)
        active.close()
        save_listed(self.place.folder, self.files.view.bases, sync=True)
        remove_files(self.place.folder, active.base)
        sync_folder(self.place.folder)

    # ---- reading -------------------------------------------------------------------------------------------------
    def read(
        self,
        start: int,
        stop: int,
        columns: Sequence[str] | None = None,
        *,
        planned: Schema | None = None,
        unsynced: bool = False,
    ) -> Iterator[pa.RecordBatch]:
        """Records `[start, stop)` as `spi.hot.HotStore.read_log` says; `planned` is the reader's schema (default: the
        newest).

        Checks its arguments before the first batch is asked for. `unsynced` is for the bucket's own roll-forward."""
        if not (self.start <= start <= stop <= self.end):
            wrong = start if not self.start <= start <= self.end else stop
            raise OffsetOutOfRange(
                table=self.place.table, bucket=self.place.bucket, offset=wrong, start=self.start, end=self.end
            )
        if stop > self.synced_end and not unsynced:
            self._group.wait(stop)
        reader = self.shape.reader(planned or self.shape.newest, columns)
        stored = (b for b in self.files.read_stored(start, stop) if b.header.record_count)
        return chain.from_iterable(reader.shape(b, start, stop) for b in stored)

    def first_offset_at(self, at_ms: int) -> int:
        """The first offset of a batch at or after that time; the synced end when there is none."""
        offset = self.files.find_time(at_ms)
        return self.synced_end if offset is None else min(offset, self.synced_end)

    # ---- what retention and the remote tier do ---------------------------------------------------------------------
    def drop_local(self, bases: Sequence[int]) -> None:
        """Removes local copies of closed segments. Readers that have them open go on. A crash leaves some of them."""
        folder, remaining_files = self.place.folder, self.files.view.without(bases)
        snapshot = writers_path(
            folder, remaining_files.closed[0].base if remaining_files.closed else remaining_files.active.base
        )
        if snapshot.exists():
            sync_file(snapshot)  # what the removed segments knew of their writers lives on in it
        with self._lock:
            remaining_files = self.files.view.without(bases)
            save_listed(folder, remaining_files.bases, sync=True)
            self.files.view = remaining_files
        for base in sorted(bases):
            fault_point("hotlog.before-drop-local", bucket=self.place.bucket, base=base)
            self.files.forget(base)
            remove_files(folder, base)
        sync_folder(folder)
