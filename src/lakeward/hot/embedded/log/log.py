# SPDX-License-Identifier: Apache-2.0
"""A bucket's log: appends under one lock, group commit, reads without a lock over local and remote segments."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from itertools import chain

import pyarrow as pa

from lakeward.config.options import Fsync
from lakeward.errors import (
    BucketStopped,
    BucketUnavailable,
    CorruptBatch,
    DiskFull,
    InvalidRequest,
    LakewardError,
    OffsetOutOfRange,
)
from lakeward.hot.embedded.arrivals import Arrivals
from lakeward.hot.embedded.disk import DiskReserve
from lakeward.hot.embedded.log.active import ActiveSegment, MarkFile, SyncedMark, mark_path
from lakeward.hot.embedded.log.appended import Appended, WriterSequence
from lakeward.hot.embedded.log.durable import sync_file, sync_folder, write_whole
from lakeward.hot.embedded.log.files import LocalView, LogFiles, LogPlace
from lakeward.hot.embedded.log.groupcommit import GroupCommit
from lakeward.hot.embedded.log.listed import find_listed, list_path, save_listed
from lakeward.hot.embedded.log.logoptions import LogOptions
from lakeward.hot.embedded.log.recovery import CLEAN, RecoveredLog, recover, save_clean, save_writers
from lakeward.hot.embedded.log.remote import RemoteLog
from lakeward.hot.embedded.log.rowshape import RowShape
from lakeward.hot.embedded.log.segment import Segment, index_path, pack_index, remove_files, writers_path
from lakeward.hot.embedded.log.stored import LocalBytes, iter_batches
from lakeward.hot.embedded.openfiles import OpenFiles, default_budget
from lakeward.hot.logbatch.codec import EncodedBatch, encode_batch
from lakeward.hot.logbatch.header import MAX_BATCH_BYTES, NO_SEQUENCE, NO_WRITER
from lakeward.model import DISK_FULL, Clock, Schema, fault_point
from lakeward.spi import LogBounds


class BucketLog:
    """Thread-safe. `append` does not wait for the disk; `wait_synced` does."""

    def __init__(
        self,
        place: LogPlace,
        shape: RowShape,
        options: LogOptions,
        *,
        clock: Clock,
        reserve: DiskReserve,
        remote: RemoteLog | None = None,
        first_offset: int = 0,
        writer_ttl_ms: int = 7 * 86_400_000,
        arrivals: Arrivals | None = None,
        open_files: OpenFiles | None = None,
    ) -> None:
        """Opens or makes the log. Raises `CorruptBatch`, and leaves the files alone then."""
        self.place, self.shape, self.options = place, shape, options
        self._clock, self._reserve, self._writer_ttl_ms = clock, reserve, writer_ttl_ms
        self._arrivals = arrivals or Arrivals()
        self._open_files = open_files or OpenFiles(default_budget())
        self.used_at = 0.0
        recovered = recover(place.folder, place.bucket, first_offset, options.index_bytes)
        self.cut_bytes = recovered.cut_bytes
        self.appended_bytes = 0
        self.files = LogFiles(place, LocalView(recovered.closed, recovered.active), remote)
        self._lock = threading.Lock()
        self._writers = recovered.writers
        self._last_at_ms = _newest_time(recovered)
        self._retired: list[ActiveSegment] = []
        self._stopped: str | None = None
        self._closing = self._closed = self._doubtful = self._is_open = False
        self._mark_file = MarkFile(place.folder)
        base = recovered.active.base
        self._mark = SyncedMark(base, 0, base)
        self._group = GroupCommit(
            self._flush, recovered.active.stop if recovered.is_synced else base, self._arrivals.tell
        )
        self._is_listed = self._list_again()
        self.close_idle()
        (place.folder / CLEAN).unlink(missing_ok=True)

    def _list_again(self) -> bool:
        """Writes the list of segments from the folder if it differs. It is always written for a folder of an earlier
        version, which gets its list with the second segment."""
        folder, bases = self.place.folder, self.files.view.bases
        listed, is_there = find_listed(folder), list_path(folder).exists()
        if listed == bases or not (is_there or len(bases) > 1):
            return is_there
        with suppress(OSError):  # an older list names what was cut, above the mark
            mark_path(folder).touch()  # it is there before the list
            save_listed(folder, bases, sync=True)
            return True
        return is_there

    # ---- where it stands -----------------------------------------------------------------------------------------
    @property
    def start(self) -> int:
        """The lowest offset that can be read, remote tier included."""
        return self.files.start

    @property
    def end(self) -> int:
        """The offset of the next record to be appended."""
        return self.files.view.active.stop

    @property
    def synced_end(self) -> int:
        """Everything below is on disk; readers see no further."""
        return self._group.synced

    @property
    def stopped(self) -> str | None:
        return self._stopped

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

    # ---- the disk ------------------------------------------------------------------------------------------------
    def wait_synced(self, stop: int) -> None:
        """Returns when the fsync policy lets a put that ends at `stop` be acknowledged: `always` waits for the disk.

        Raises `BucketStopped`: whether the put is stored is then unknown, and a retry with its sequence tells."""
        if self.options.fsync is Fsync.ALWAYS:
            self._group.wait(stop)
        else:
            self._arrivals.tell()

    def may_acknowledge(self, stop: int) -> bool:
        """`wait_synced` would return at once."""
        return self.options.fsync is not Fsync.ALWAYS or self._group.synced >= stop

    def sync(self) -> int:
        """Forces everything to disk that was appended before the call; returns that end."""
        end = self.end
        self._group.wait(end)
        return end

    def _flush(self) -> int:
        with self._lock:
            active, retired = self.files.view.active, list(self._retired)
            size, stop = active.size, active.stop
            if self._closed:
                raise self._refusal("it is closed")
            try:
                self._use()
                active.fd  # noqa: B018 - opened here, as an append beside the flush would open it too
            except OSError as error:
                raise self._passing("the segment could not be opened", error) from error
        try:
            fault_point("hotlog.before-fsync", bucket=self.place.bucket)
            if self._doubtful:
                self._write_again([*retired, active], size)
            for segment in (*retired, active):
                os.fdatasync(segment.fd)
            if retired:
                sync_file(list_path(self.place.folder))
                sync_folder(self.place.folder)
                self._is_listed = True
            self._doubtful = False
        except (OSError, CorruptBatch) as error:
            self._doubtful = True
            reason = f"fsync failed, whether the put is stored is unknown: {error}"
            raise self._refusal(reason) from error
        fault_point("hotlog.after-fsync", bucket=self.place.bucket)
        self._mark = SyncedMark(active.base, size, stop)
        with suppress(OSError):  # an older mark claims less, and the next flush writes a newer one
            self._mark_file.write(self._mark, is_listed=self._is_listed)
        self._close_retired(retired)
        return stop

    # ---- file handles --------------------------------------------------------------------------------------------
    @property
    def handles(self) -> int:
        return 2

    def _use(self) -> None:
        """The active segment and the mark are open from here until `close_idle`."""
        self.used_at = time.monotonic()
        if not self._is_open:
            self._is_open = True
            self._open_files.add(self)

    def close_idle(self) -> bool:
        """As `openfiles.Closable`. Raises `BucketStopped` when it cannot be put to disk."""
        self.sync()
        return self._group.between(self._let_go)

    def _let_go(self) -> bool:
        with self._lock:
            active = self.files.view.active
            if self._retired or active.stop != self._group.synced:
                return False
            self._is_open = False
            self._open_files.remove(self)
            active.close()
            self._mark_file.close()
            return True

    def _close_retired(self, retired: Sequence[ActiveSegment]) -> None:
        with self._lock:
            self._retired = self._retired[len(retired) :]
        for segment in retired:
            segment.close()

    def _write_again(self, segments: Sequence[ActiveSegment], active_size: int) -> None:
        """After a failed fsync the kernel may count pages as clean that never reached the
        disk: make them dirty again.
        """
        for number, segment in enumerate(segments):
            start = self._mark.position if segment.base == self._mark.base else 0
            stop = active_size if number == len(segments) - 1 else segment.size
            with closing(LocalBytes(segment.path)) as source:
                for batch in iter_batches(source, start, stop):
                    os.pwrite(segment.fd, batch.data, batch.position)

    def _passing(self, what: str, error: OSError) -> LakewardError:
        """An error of the system that may be over at the next call; nothing of what was tried counts."""
        if error.errno in DISK_FULL:
            return DiskFull(where=str(self.place.folder), free_bytes=0, reserve_bytes=0)
        return BucketUnavailable(
            table=self.place.table, bucket=self.place.bucket, what="writes", reason=f"{what}: {error}"
        )

    def stop(self, reason: str | None) -> None:
        """Refuses writes with this reason until it is called with None. Reads go on."""
        self._stopped = reason

    def _check_open(self) -> None:
        if self._closing or self._stopped is not None:
            raise self._refusal("it is closed" if self._closing else str(self._stopped))

    def _refusal(self, reason: str) -> BucketStopped:
        return BucketStopped(table=self.place.table, bucket=self.place.bucket, what="writes", reason=reason)

    def close(self) -> None:
        """Orderly: everything on disk, and the next start fast. Safe to repeat; readers that are under way go on."""
        with self._lock:
            if self._closing:
                return
            self._closing = True
        try:
            self.sync()
            with suppress(OSError):  # without the note the next start reads the active segment
                save_clean(self.place.folder, self.files.view.active, self._writers)
        finally:
            self._close_files()

    def abandon(self) -> None:
        """Closes without putting anything to disk. Safe to repeat."""
        with self._lock:
            if self._closing:
                return
            self._closing = True
        self._close_files()

    def _close_files(self) -> None:
        with self._lock:
            self._closed = True
        self._group.drain()
        self._open_files.remove(self)
        self._mark_file.close()
        for segment in (*self._retired, self.files.view.active):
            segment.close()

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


def _newest_time(recovered: RecoveredLog) -> int:
    return max([recovered.active.last_at_ms, *(s.last_at_ms for s in recovered.closed[-1:])])
