# SPDX-License-Identifier: Apache-2.0
"""What the coordinator's parts share: the records, the one lock, the durable store, and the moves between states."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from lakeward.coordinator.options import CoordinatorOptions
from lakeward.coordinator.state.jobs import JobRecord
from lakeward.coordinator.state.record import TableRecord
from lakeward.coordinator.state.statestore import StateStore, StoredTable
from lakeward.errors import TableNotFound
from lakeward.model.clock import Clock
from lakeward.model.ids import Epoch, JobName, TableId
from lakeward.model.state import TableState, check_transition
from lakeward.model.table import TablePath
from lakeward.protocol.codec import encode
from lakeward.protocol.views import RoundStatus
from lakeward.spi.hotadmin import HotAdmin
from lakeward.spi.lake import LakeStorage


class Board:
    """Records in memory, changed under `change()` only; what changed is on disk before `change()` ends.

    The lock is never held while a lake is asked. Calls into the hot store under it are limited to those it answers from
    memory."""

    def __init__(
        self,
        store: StateStore,
        hot: HotAdmin,
        lakes: Callable[[str], LakeStorage],
        clock: Clock,
        options: CoordinatorOptions,
    ) -> None:
        self.store, self.hot, self.lakes, self.clock, self.options = store, hot, lakes, clock, options
        self.lock = threading.RLock()
        self.changed = threading.Condition(self.lock)
        self.tables: dict[TableId, TableRecord] = {}
        self.by_path: dict[TablePath, TableId] = {}
        self.jobs: dict[JobName, JobRecord] = {}
        self._dirty: dict[TableId, TableRecord] = {}
        self._dirty_jobs: dict[JobName, JobRecord] = {}
        self._ended: list[tuple[TableId, RoundStatus]] = []
        self.coordinator_epoch = 0

    @contextmanager
    def change(self) -> Iterator[None]:
        """Records touched inside are written in one transaction. When writing fails they stay dirty and go with the
        next one; the caller gets the error, so nobody has seen what is not on disk."""
        with self.lock:
            try:
                yield
            finally:
                self._flush()
                self.changed.notify_all()

    def _flush(self) -> None:
        """One transaction, so one wait for the disk."""
        if not self._dirty and not self._dirty_jobs and not self._ended:
            return
        with self.store.transaction():
            self.store.save_tables([_stored(r) for r in self._dirty.values()], self.clock.now_ms())
            for job in self._dirty_jobs.values():
                self.store.save_job(job.name, job.to_json())
            for table_id, ended in self._ended:
                self.store.append_round(ended.round_id, table_id, ended.ended_at_ms, encode(ended))
        self._dirty.clear()
        self._dirty_jobs.clear()
        self._ended.clear()

    def touch(self, record: TableRecord) -> None:
        self._dirty[record.table_id] = record

    def save(self, record: TableRecord) -> None:
        """Inside a transaction of the store: this record goes to disk with it."""
        self.store.save_tables([_stored(record)], self.clock.now_ms())

    def add_round(self, table_id: TableId, ended: RoundStatus) -> None:
        self._ended.append((table_id, ended))

    def touch_job(self, job: JobRecord) -> None:
        self._dirty_jobs[job.name] = job

    def add(self, record: TableRecord) -> None:
        self.tables[record.table_id] = record
        self.by_path[record.info.path] = record.table_id
        self.touch(record)

    def remove(self, record: TableRecord) -> None:
        del self.tables[record.table_id]
        if self.by_path.get(record.info.path) == record.table_id:
            del self.by_path[record.info.path]

    def find(self, path: TablePath) -> TableRecord:
        """Raises `TableNotFound`."""
        table_id = self.by_path.get(path)
        if table_id is None:
            raise TableNotFound(table=str(path))
        return self.tables[table_id]

    def enter(self, record: TableRecord, target: TableState, reason: str | None = None) -> None:
        """The one place where a state changes. Raises `IllegalTransition` before anything moved."""
        check_transition(record.name, record.state, target)
        record.state, record.reason = target, reason
        if target is not TableState.TIERING:
            record.lease = None
        record.pending_since_ms = record.pending_since = None
        if target is TableState.PENDING:
            record.epoch = Epoch(record.epoch + 1)
            record.pending_since_ms, record.pending_since = self.clock.now_ms(), self.clock.monotonic()
            record.retry_at_ms = record.retry_at = None
        self.touch(record)

    def look(self, record: TableRecord) -> None:
        """Asks the hot store what waits."""
        record.see(self.hot.waiting(record.info, record.committed), self.clock.monotonic())

    def retry_after(self, record: TableRecord, wait_ms: int) -> None:
        """When a failed table may try again."""
        record.retry_at_ms = self.clock.now_ms() + wait_ms
        record.retry_at = self.clock.monotonic() + wait_ms / 1_000
        self.touch(record)

    def lake_of(self, record: TableRecord) -> LakeStorage | None:
        """The lake of a table that is tiered; None otherwise."""
        if not record.options.enabled or record.options.format is None:
            return None
        return self.lakes(record.options.format)


def _stored(record: TableRecord) -> StoredTable:
    assert record.state is not None
    return StoredTable(
        table_id=record.table_id, path=record.name, state=record.state, epoch=record.epoch, body=record.to_json()
    )
