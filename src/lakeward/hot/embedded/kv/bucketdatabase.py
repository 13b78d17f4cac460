# SPDX-License-Identifier: Apache-2.0
"""The database of one KV bucket: opened when needed, rebuilt from the log when they disagree, closed when idle."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from lakeward.errors import BucketStopped, DiskFull, KvFailed
from lakeward.hot.embedded.kv.changelog_log import ChangelogLog
from lakeward.hot.embedded.kv.database import KvDatabase, KvResources
from lakeward.hot.embedded.kv.kvoptions import KvOptions
from lakeward.hot.embedded.kv.put import PutBuilder
from lakeward.hot.embedded.kv.recovery import Recovery, is_damage
from lakeward.hot.embedded.kv.rowcodec import RowCodec
from lakeward.hot.embedded.kv.snapshot import BucketSnapshots
from lakeward.hot.embedded.openfiles import OpenFiles, default_budget
from lakeward.model import Bucket, BucketFunction, Clock, Schema, TableDescriptor, TableInfo

DATABASE = "db"


class BucketDatabase:
    """Thread-safe. `_in_step` and what it calls need the lock; `_using` does not."""

    def __init__(
        self,
        folder: Path,
        table: TableInfo,
        bucket: Bucket,
        log: ChangelogLog,
        *,
        schemas: Mapping[int, Schema],
        resources: KvResources,
        clock: Clock,
        options: KvOptions | None = None,
        open_files: OpenFiles | None = None,
    ) -> None:
        """Opens no file: the first call that needs one does."""
        self.bucket, self._folder = bucket, folder / DATABASE
        self._open_files = open_files or OpenFiles(default_budget())
        self.used_at, self._users, self._pins = 0.0, 0, threading.Lock()
        self._table, self._log, self._clock, self._options = table, log, clock, options or KvOptions()
        self._lock = threading.RLock()
        self._builder = make_builder(table, schemas, self._options)
        self.snapshots = BucketSnapshots(
            folder / "snapshots", str(table.path), resources, clock, self._options.snapshots_retained
        )
        self.snapshots.drop_above(log.end)
        self._recovery = Recovery(str(table.path), str(bucket), self._folder, log, self.snapshots, resources)
        self._unflushed = 0
        self._closed = False
        self._damaged = False
        self._database: KvDatabase | None = None
        self._snapshot_due = clock.monotonic() + self._options.snapshot_interval_s

    def set_table(self, table: TableInfo, schemas: Mapping[int, Schema]) -> None:
        """After ALTER TABLE: puts from now on are of the new schema."""
        with self._lock:
            self._table, self._builder = table, make_builder(table, schemas, self._options)

    def close(self) -> None:
        """Flushes, so that the next start has nothing to roll forward. Safe to repeat."""
        with self._lock:
            database, self._closed = self._database, True
            if database is not None:
                self._flush(database, wait=True)
            self._stop()

    def abandon(self) -> None:
        """Closes without flushing or syncing anything: the log has it all. For a bucket whose folder is removed."""
        with self._lock:
            self._closed = True
            self._stop()

    def _flush(self, database: KvDatabase, *, wait: bool = False) -> None:
        """To disk, log first: KV on disk is then never ahead of the log on disk. The put at hand stands even if this
        fails.
        """
        try:
            self._log.sync()
            database.flush(wait=wait)
            self._unflushed = 0
        except (KvFailed, DiskFull, OSError):
            self._stop()

    # ---- file handles ------------------------------------------------------------------------------------------------
    @property
    def handles(self) -> int:
        database = self._database
        return 0 if database is None else database.handles

    def close_idle(self) -> bool:
        """As `openfiles.Closable`."""
        if not self._lock.acquire(blocking=False):
            return False
        try:
            database = self._database
            if database is not None and self._unflushed:
                self._flush(database, wait=True)
            with self._pins:
                if self._users:
                    return False
                closing, self._database = self._database, None
            self._let_go(closing)
            return True
        finally:
            self._lock.release()

    @contextmanager
    def _using(self, what: str) -> Iterator[KvDatabase]:
        """The database, which stays open meanwhile. For calls that do not hold the lock."""
        with self._pins:
            self._users += 1
        try:
            yield self._open_database(what)
        finally:
            with self._pins:
                self._users -= 1

    def _in_step(self, what: str) -> KvDatabase:
        """The database, which holds exactly the log. The lock is held."""
        self.used_at = time.monotonic()
        database = self._database
        if database is None or database.state.applied != self._log.end:
            return self._heal(what)
        return database

    def _open_database(self, what: str) -> KvDatabase:
        database, self.used_at = self._database, time.monotonic()
        if database is not None:
            return database
        with self._lock:
            return self._in_step(what)

    def _heal(self, what: str) -> KvDatabase:
        if self._closed:
            raise self._stopped(what, "it is closed")
        self._stop()
        try:
            self._database = self._recovery.open(self._builder, damaged=self._damaged)
            self._damaged = False
        except (KvFailed, OSError) as error:
            raise self._stopped(what, str(error)) from error
        self._open_files.add(self)
        return self._database

    @contextmanager
    def _noting_damage(self) -> Iterator[None]:
        """Marks a database that RocksDB reports as broken, so that the next call rebuilds it."""
        try:
            yield
        except KvFailed as error:
            if is_damage(error):
                with self._lock:
                    self._damaged = True
                    self._stop()
            raise

    def _stop(self) -> None:
        """No call gets through before log and KV agree again."""
        database, self._database = self._database, None
        self._let_go(database)

    def _let_go(self, database: KvDatabase | None) -> None:
        self._open_files.remove(self)
        if database is not None:
            with suppress(KvFailed, DiskFull):
                database.close()

    def _stopped(self, what: str, reason: str) -> BucketStopped:
        return BucketStopped(table=str(self._table.path), bucket=str(self.bucket), what=what, reason=reason)


def make_builder(table: TableInfo, schemas: Mapping[int, Schema], options: KvOptions) -> PutBuilder:
    with_before_images = options.has_before_images(table.descriptor)
    return PutBuilder(
        str(table.path),
        RowCodec(schemas),
        table.descriptor.primary_key,
        with_before_images=with_before_images,
        is_hudi=_is_hudi(table.descriptor),
    )


def _is_hudi(descriptor: TableDescriptor) -> bool:
    """Has it a lake in Hudi, or may it get one?"""
    is_named = descriptor.properties.get("table.datalake.format") == "hudi"
    return is_named or descriptor.bucket_function is BucketFunction.HUDI
