# SPDX-License-Identifier: Apache-2.0
"""The files of one bucket's log: opened and recovered, put to disk by group commit, closed when idle or at the end."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Sequence
from contextlib import closing, suppress

from lakeward.config.options import Fsync
from lakeward.errors import BucketStopped, BucketUnavailable, CorruptBatch, DiskFull, LakewardError
from lakeward.hot.embedded.arrivals import Arrivals
from lakeward.hot.embedded.disk import DiskReserve
from lakeward.hot.embedded.log.active import ActiveSegment, MarkFile, SyncedMark, mark_path
from lakeward.hot.embedded.log.durable import sync_file, sync_folder
from lakeward.hot.embedded.log.files import LocalView, LogFiles, LogPlace
from lakeward.hot.embedded.log.groupcommit import GroupCommit
from lakeward.hot.embedded.log.logoptions import LogOptions
from lakeward.hot.embedded.log.recovery import CLEAN, RecoveredLog, recover, save_clean
from lakeward.hot.embedded.log.remote import RemoteLog
from lakeward.hot.embedded.log.rowshape import RowShape
from lakeward.hot.embedded.log.segment import find_listed, list_path, save_listed
from lakeward.hot.embedded.log.stored import LocalBytes, iter_batches
from lakeward.hot.embedded.openfiles import OpenFiles, default_budget
from lakeward.model import DISK_FULL, Clock, fault_point


class LogFolder:
    """Thread-safe. `_lock` guards the segments and the writers."""

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

    # ---- where it stands ----
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

    # ---- the disk ----
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

    def _close_retired(self, retired: Sequence[ActiveSegment]) -> None:
        with self._lock:
            self._retired = self._retired[len(retired) :]
        for segment in retired:
            segment.close()

    # ---- file handles ----
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

    # ---- refusals and the end ----
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


def _newest_time(recovered: RecoveredLog) -> int:
    return max([recovered.active.last_at_ms, *(s.last_at_ms for s in recovered.closed[-1:])])
