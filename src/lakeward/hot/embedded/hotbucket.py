# SPDX-License-Identifier: Apache-2.0
"""One bucket of a table: its log and, on PK tables, the KV that folds it, opened when first needed."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from lakeward.errors import BucketStopped, BucketUnavailable, DiskFull, LakewardError
from lakeward.hot.embedded.kv.bucket import KvBucket, KvOptions
from lakeward.hot.embedded.log.active import find_mark
from lakeward.hot.embedded.log.log import BucketLog
from lakeward.hot.embedded.services import StoreServices
from lakeward.model import DISK_FULL, Bucket, Schema, TableInfo

_log = logging.getLogger(__name__)


class HotBucket:
    """`log` raises `BucketStopped` when the log could not be opened: one damaged bucket stops no other. Damage is kept;
    anything else may be over by the next call, which tries again."""

    def __init__(
        self, bucket: Bucket, table: TableInfo, services: StoreServices, folder: Path, open_log: Callable[[], BucketLog]
    ) -> None:
        self.bucket, self._table, self._services, self._folder = bucket, table, services, folder
        self._open_log, self._open_lock = open_log, threading.Lock()
        self._opened: BucketLog | Exception = OSError("not opened yet")
        self._kv: KvBucket | None = None
        self._kv_lock = threading.Lock()
        self._oldest: tuple[int, int | None] = (-1, None)
        self.retry()

    @property
    def folder(self) -> Path:
        return self._folder

    @property
    def table(self) -> TableInfo:
        return self._table

    def retry(self) -> None:
        """Opens the log unless it is open or damaged. Tells of a failure once."""
        with self._open_lock:
            if isinstance(self._opened, BucketLog) or _is_damage(self._opened):
                return
            try:
                self._opened = self._open_log()
            except (LakewardError, OSError) as error:
                if str(error) != str(self._opened):
                    _log.error("table %s, bucket %s is stopped: %s", self._table.path, self.bucket, error)
                self._opened = error

    @property
    def log(self) -> BucketLog:
        if not isinstance(self._opened, BucketLog):
            self.retry()
        if isinstance(self._opened, BucketLog):
            return self._opened
        raise self._refusal(self._opened)

    def _refusal(self, error: Exception) -> LakewardError:
        if isinstance(error, OSError) and error.errno in DISK_FULL:
            return DiskFull(where=str(self._folder), free_bytes=0, reserve_bytes=0)
        kind = BucketStopped if _is_damage(error) else BucketUnavailable
        return kind(table=str(self._table.path), bucket=str(self.bucket), what="reads or writes", reason=str(error))

    @property
    def failure(self) -> Exception | None:
        return None if isinstance(self._opened, BucketLog) else self._opened

    @property
    def stopped(self) -> str | None:
        """Why it takes no writes; None: it takes them."""
        return self._opened.stopped if isinstance(self._opened, BucketLog) else str(self._opened)

    def kv(self, schemas: Sequence[Schema]) -> KvBucket:
        """Its files are opened when they are needed, which may roll it forward. Raises `BucketStopped`."""
        with self._kv_lock:
            if self._kv is None:
                self._kv = KvBucket(
                    self._folder / "kv",
                    self._table,
                    self.bucket,
                    self.log,
                    schemas=_by_id(schemas),
                    resources=self._services.kv,
                    clock=self._services.clock,
                    options=KvOptions.of(self._services.options.config),
                    open_files=self._services.open_files,
                )
            return self._kv

    @property
    def opened_kv(self) -> KvBucket | None:
        return self._kv

    def set_table(self, table: TableInfo, schemas: Sequence[Schema]) -> None:
        with self._kv_lock:
            self._table = table
            if self._kv is not None:
                self._kv.set_table(table, _by_id(schemas))

    def oldest_waiting_ms(self, offset: int) -> int | None:
        """When the record at `offset` came; None at the end. Remembered, as it is asked on every scheduling tick."""
        if self._oldest[0] != offset or self._oldest[1] is None:
            self._oldest = (offset, self.log.files.time_of(offset))
        return self._oldest[1]

    def known_end(self) -> int:
        """Where the log ends; of a damaged one, how far it was known to be on disk."""
        if isinstance(self._opened, BucketLog):
            return self._opened.end
        mark = find_mark(self._folder / "log")
        return 0 if mark is None else mark.offset

    def close(self) -> None:
        with self._kv_lock:
            if self._kv is not None:
                self._kv.close()
        if isinstance(self._opened, BucketLog):
            self._opened.close()

    def abandon(self) -> None:
        """Closes without putting anything to disk: its files will be removed."""
        with self._kv_lock:
            if self._kv is not None:
                self._kv.abandon()
        if isinstance(self._opened, BucketLog):
            self._opened.abandon()


def _is_damage(error: Exception) -> bool:
    return isinstance(error, LakewardError) and not error.retryable


def _by_id(schemas: Sequence[Schema]) -> Mapping[int, Schema]:
    return {s.schema_id: s for s in schemas}
