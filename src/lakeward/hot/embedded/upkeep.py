# SPDX-License-Identifier: Apache-2.0
"""Background work of the store: fsync on an interval, uploads, retention, partitions by time, KV snapshots. Tests run
each kind by hand. Trouble with one table or the remote tier stops nothing else."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from datetime import timedelta
from functools import partial

from lakeward.config import Option, options
from lakeward.config.options import Fsync
from lakeward.hot.embedded.hotbucket import HotBucket
from lakeward.hot.embedded.hotpartitions import remote_parts
from lakeward.hot.embedded.hottable import HotTable
from lakeward.hot.embedded.log.retention import plan_drop_local, plan_expiry, plan_upload
from lakeward.hot.embedded.partitions import plan_precreate
from lakeward.hot.embedded.services import StoreServices
from lakeward.model import BackgroundThread, TableInfo, fault_point
from lakeward.spi import RetentionGuard

_log = logging.getLogger(__name__)

_AFTER_FAILURE_S = 1.0
_FSYNC = "fsync"


class StoreUpkeep:
    """`guard` None: nothing is let go of. `failures` holds the last trouble per task, for status pages."""

    def __init__(self, tables: Callable[[], list[HotTable]], services: StoreServices) -> None:
        self._tables, self._services = tables, services
        self.guard: RetentionGuard | None = None
        self.failures: dict[str, str] = {}
        self._dropping = threading.Lock()
        self.standing = threading.RLock()
        """While it is held, no file is uploaded, released or removed. Fsyncs continue."""

        self.threads: list[BackgroundThread] = []

    # ---- running -------------------------------------------------------------------------------------------------
    def start(self) -> None:
        """Two threads: fsyncs on their own, since everything else may take long."""
        slow = {
            self.upload: self._seconds(options.REMOTE_LOG_TASK_INTERVAL_DURATION),
            self.expire: self._seconds(options.LOG_RETENTION_CHECK_INTERVAL),
            self.tend_partitions: self._seconds(options.AUTO_PARTITION_CHECK_INTERVAL),
            self.tend_keys: 1.0,
            self.tend_files: 5.0,
        }
        quick = {self.flush: self._seconds(options.LOG_FSYNC_INTERVAL)}
        for name, tasks in (("lakeward-fsync", quick), ("lakeward-store", slow)):
            turns = _Turns({task: every_s for task, every_s in tasks.items() if every_s > 0})
            if turns.due_at:
                self.threads.append(BackgroundThread(name, turns.run, _AFTER_FAILURE_S))
        for thread in self.threads:
            thread.start()

    def stop(self) -> None:
        for thread in self.threads:
            thread.stop()

    def _seconds(self, option: Option[timedelta]) -> float:
        return self._services.options.config.get(option).total_seconds()

    def _each_table(self, task: str, run: Callable[[HotTable], None]) -> None:
        for table in self._tables():
            self._guarded(f"{task} {table.info.path}", partial(run, table))

    def _each_bucket(self, task: str, table: HotTable, run: Callable[[HotTable, HotBucket], None]) -> None:
        for bucket in table.opened():
            if bucket.failure is None:
                self._guarded(f"{task} {table.info.path} {bucket.bucket}", partial(run, table, bucket))

    def _guarded(self, name: str, run: Callable[[], None]) -> None:
        for thread in self.threads:
            if thread.is_current():
                thread.beat()
        try:
            with nullcontext() if name.startswith(_FSYNC) else self.standing:
                run()
            self.failures.pop(name, None)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is this table's alone
            if self.failures.get(name) != str(error):
                _log.warning("%s: %s", name, error)
            self.failures[name] = str(error)

    # ---- tasks ---------------------------------------------------------------------------------------------------
    def flush(self) -> None:
        """Tables with fsync `interval`."""
        for table in self._tables():
            if table.options.fsync is Fsync.INTERVAL:
                self._each_bucket(_FSYNC, table, lambda _, bucket: None if _is_synced(bucket) else _sync(bucket))

    def upload(self) -> None:
        """Copies closed segments to the remote tier, then lets go of local copies beyond the newest."""
        self.finish_drops()
        if self._services.remote is not None:
            self._each_table("upload", lambda table: self._each_bucket("upload", table, self._upload_bucket))

    def _upload_bucket(self, table: HotTable, bucket: HotBucket) -> None:
        log, files = bucket.log, bucket.log.files
        remote = files.remote
        assert remote is not None
        if log.synced_end < log.end:
            log.sync()
        remote.sweep_once()
        uploaded = {s.base for s in remote.segments}
        for segment in plan_upload(files.view.closed, uploaded, log.synced_end, self._services.options.upload_segments):
            remote.upload(log.place.folder, segment)
        if remote.end > log.end:
            log.stop(
                f"the remote tier holds offsets up to {remote.end}, this log ends at {log.end}: start the server with "
                f"--restored"
            )
            return
        fault_point("hotlog.after-upload", bucket=str(bucket.bucket))
        now = self._services.clock.now_ms()
        uploaded = {s.base for s in remote.segments}
        dropped_segments = plan_drop_local(
            files.view.closed, uploaded, table.options.local_segments, now, table.options.local_ttl_ms
        )
        if dropped_segments:
            log.drop_local([s.base for s in dropped_segments])

    def finish_drops(self) -> None:
        """Removes the files of dropped tables and partitions; what the remote tier keeps back is tried again."""
        meta = self._services.meta
        with self._dropping:
            dropped = meta.dropping_tables()
            tables = {t.info.table_id: t for t in self._tables()}  # waits for a drop that still closes its files
            for info, folder in dropped:
                self._guarded(f"drop {info.path} {info.table_id}", partial(self._remove_table, info, folder))
            for table_id, partition_id in meta.dropping_partitions():
                if table_id in tables:
                    self._guarded(
                        f"drop partition {partition_id}", partial(tables[table_id].remove_partition_files, partition_id)
                    )

    def _remove_table(self, info: TableInfo, folder: str) -> None:
        fault_point("hotlog.before-drop-table", table=str(info.path))
        self._services.folder.remove(self._services.folder.tables / folder)
        if self._services.remote is not None:
            self._services.remote.remove(remote_parts(info))
        self._services.meta.forget_table(info.table_id)

    def expire(self) -> None:
        """Segments past `table.log.ttl` of which the lake, leases and KV need nothing."""
        guard = self.guard
        if guard is not None:
            self._each_table(
                "expire",
                lambda table: self._each_bucket("expire", table, lambda t, b: self._expire_bucket(guard, t, b)),
            )

    def _expire_bucket(self, guard: RetentionGuard, table: HotTable, bucket: HotBucket) -> None:
        files = bucket.log.files
        needed, now = self._needed_from(guard, table, bucket), self._services.clock.now_ms()
        expired_segments = plan_expiry(files.closed_everywhere(), now, table.options.ttl_ms, needed)
        bases = {s.base for s in expired_segments}
        if not bases:
            return
        if files.remote is not None:
            files.remote.remove(bases)
        fault_point("hotlog.before-expire-local", bucket=str(bucket.bucket))
        local = [s.base for s in files.view.closed if s.base in bases]
        if local:
            bucket.log.drop_local(local)

    def _needed_from(self, guard: RetentionGuard, table: HotTable, bucket: HotBucket) -> int | None:
        table_id, needs = table.info.table_id, []
        if guard.lake_enabled(table_id):
            needs.append(guard.lake_offset(table_id, bucket.bucket) or 0)
        held = guard.held_from(table_id, bucket.bucket)
        if held is not None:
            needs.append(held)
        if table.info.is_pk:
            needs.append(bucket.kv(table.schemas).needed_from())
        return min(needs) if needs else None

    def tend_partitions(self) -> None:
        """Creates partitions ahead of time, and drops expired ones once the lake has all of them and they have no
        readers."""
        self._each_table("partitions", self._tend_partitions_of)

    def _tend_partitions_of(self, table: HotTable) -> None:
        auto = table.options.auto_partition
        if auto is None:
            return
        keys = len(table.info.descriptor.partition_keys)
        for name in plan_precreate(auto, keys, table.partitions, self._services.clock.now_ms()):
            table.create_partition(name)
        guard = self.guard
        for name in table.partitions:
            if guard is not None and table.is_expired(name) and self._is_free(guard, table, name):
                table.drop_partition(name)
        self.finish_drops()

    def _is_free(self, guard: RetentionGuard, table: HotTable, name: str) -> bool:
        table_id = table.info.table_id
        for bucket in table.opened():
            if bucket.bucket.partition != name:
                continue
            end = bucket.log.end
            if end == bucket.log.start:
                continue
            if guard.lake_enabled(table_id) and (guard.lake_offset(table_id, bucket.bucket) or 0) < end:
                return False
            if guard.held_from(table_id, bucket.bucket) is not None:
                return False
        return True

    def tend_files(self) -> None:
        """Closes unused files, opens those that could not be opened before, takes the ballast again when there is room,
        and forgets writers that ended."""
        services = self._services
        self._guarded("ballast", lambda: services.ballast.restore(services.options.reserve_bytes))
        self._guarded("open files", self._services.open_files.close_unused)
        for table in self._tables():
            for bucket in table.opened():
                bucket.retry()
                if bucket.failure is None:
                    bucket.log.forget_writers()

    def tend_keys(self) -> None:
        """KV snapshots on their interval; only where KV was used: the others did not change."""
        for table in self._tables():
            if table.info.is_pk:
                self._each_bucket(
                    "keys", table, lambda _, bucket: None if bucket.opened_kv is None else bucket.opened_kv.tick()
                )


class _Turns:
    """Tasks of one thread, each at its own pace, one at a time."""

    def __init__(self, every_s: Mapping[Callable[[], None], float]) -> None:
        self._every_s = every_s
        self.due_at = {task: time.monotonic() + seconds for task, seconds in every_s.items()}

    def run(self) -> float:
        """Runs what is due longest, if anything is; returns how long nothing is due after that."""
        task = min(self.due_at, key=lambda t: self.due_at[t])
        if self.due_at[task] <= time.monotonic():
            self.due_at[task] = time.monotonic() + self._every_s[task]
            fault_point("upkeep.task", task=task.__name__)
            task()
            self.due_at[task] = time.monotonic() + self._every_s[task]
        return max(0.0, min(self.due_at.values()) - time.monotonic())


def _is_synced(bucket: HotBucket) -> bool:
    return bucket.log.synced_end >= bucket.log.end


def _sync(bucket: HotBucket) -> None:
    bucket.log.sync()
