# SPDX-License-Identifier: Apache-2.0
"""One bucket of a table: its log and, on PK tables, the KV that folds it, opened when first needed."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

from lakeward.errors import BucketStopped
from lakeward.hot.embedded.kv.bucket import KvBucket, KvOptions
from lakeward.hot.embedded.log.active import find_mark
from lakeward.hot.embedded.log.log import BucketLog
from lakeward.hot.embedded.services import StoreServices
from lakeward.model.bucket import Bucket
from lakeward.model.schema import Schema
from lakeward.model.table import TableInfo


class HotBucket:
    """`log` raises `BucketStopped` when the log could not be opened: one damaged bucket stops no other."""

    def __init__(
        self, bucket: Bucket, table: TableInfo, services: StoreServices, folder: Path, opened: BucketLog | Exception
    ) -> None:
        self.bucket, self._table, self._services, self._folder = bucket, table, services, folder
        self._opened = opened
        self._kv: KvBucket | None = None
        self._kv_lock = threading.Lock()
        self._oldest: tuple[int, int | None] = (-1, None)

    @property
    def log(self) -> BucketLog:
        if isinstance(self._opened, BucketLog):
            return self._opened
        raise BucketStopped(
            table=str(self._table.path), bucket=str(self.bucket), what="reads or writes", reason=str(self._opened)
        )

    @property
    def failure(self) -> Exception | None:
        return None if isinstance(self._opened, BucketLog) else self._opened

    @property
    def stopped(self) -> str | None:
        """Why it takes no writes; None: it takes them."""
        return self._opened.stopped if isinstance(self._opened, BucketLog) else str(self._opened)

    def kv(self, schemas: Sequence[Schema]) -> KvBucket:
        """Opens it at first, which may roll it forward. Raises `BucketStopped`."""
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


def _by_id(schemas: Sequence[Schema]) -> Mapping[int, Schema]:
    return {s.schema_id: s for s in schemas}
