# SPDX-License-Identifier: Apache-2.0
"""Shows the coordinator's state: tables, jobs, rounds, queue, ledger, and its figures as plain numbers."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from lakeward.coordinator.lake.lakes import Lakes
from lakeward.coordinator.schedule.estimate import unknown_round_ms
from lakeward.coordinator.schedule.schedule import BREATH_S, Schedule
from lakeward.coordinator.state.board import Board
from lakeward.coordinator.state.jobs import JobRecord
from lakeward.coordinator.state.record import TableRecord
from lakeward.model.ids import InstanceId, JobName, TableId
from lakeward.model.state import TableState
from lakeward.model.table import TablePath
from lakeward.protocol.codec import decode
from lakeward.protocol.operate import CoordinatorStatus, LedgerAnswer, QueueEntry
from lakeward.protocol.views import JobStatus, RoundStatus, TableStatus

_S = TableState
T = TypeVar("T")

SHOWN_AT_ONCE = 100
"""Tables looked at while the lock is held once."""


class StatusDesk:
    def __init__(self, board: Board, schedule: Schedule, lakes: Lakes) -> None:
        self._board, self._schedule, self._lakes = board, schedule, lakes
        self.counters: dict[str, float] = {
            "orphanBytesReclaimed": 0,
            "expiredBytesReclaimed": 0,
            "orphanFilesRemoved": 0,
        }

    # ---- tables ----
    def table(self, path: TablePath) -> TableStatus:
        with self._board.lock:
            return self._table(self._board.find(path))

    def _each(
        self, show: Callable[[TableRecord], T], chosen: Callable[[TableRecord], bool] = lambda _: True
    ) -> list[T]:
        """Of every table, by name. Each is shown as it is at one moment; heartbeats pass between them."""
        with self._board.lock:
            records = sorted((r for r in self._board.tables.values() if chosen(r)), key=lambda r: r.name)
        shown: list[T] = []
        for first in range(0, len(records), SHOWN_AT_ONCE):
            if first:
                time.sleep(BREATH_S)
            with self._board.lock:
                shown += [show(r) for r in records[first : first + SHOWN_AT_ONCE]]
        return shown

    def _table(self, record: TableRecord) -> TableStatus:
        now_ms = self._board.clock.now_ms()
        options, deadline = record.options, self._schedule.deadline_ms(record)
        round_ms = self._schedule.round_ms(record)
        return TableStatus(
            path=record.info.path,
            table_id=record.table_id,
            state=record.state or _S.NEW,
            epoch=record.epoch,
            freshness_ms=options.freshness_ms,
            pool=options.pool,
            priority=options.priority,
            lag_ms=record.lag_ms(now_ms, self._board.clock.monotonic()) or 0,
            waiting_rows=record.waiting.rows,
            deadline_at_ms=deadline,
            slack_ms=None if deadline is None else int(deadline - now_ms - round_ms),
            job=None if record.lease is None else record.lease.job,
            last_round=record.last_round,
            last_tiered_at_ms=record.last_tiered_at_ms,
            last_duration_ms=record.last_duration_ms,
            failures=record.failures,
            failures_in_a_row=record.failures_in_a_row,
            misses=record.misses,
            reason=record.broken or record.reason or (record.lake_error or {}).get("message"),
            feasible=self.is_feasible(record),
            served=self.is_served(record),
            lake_rows=record.lake.rows,
            lake_bytes=record.lake.bytes,
            lake_files=record.lake.files,
            lake_delete_files=record.lake.delete_files,
            lake_snapshots=record.lake.snapshots,
            generation=record.generation,
        )

    def is_feasible(self, record: TableRecord) -> bool:
        return (
            2 * record.estimate.typical_ms(unknown_round_ms(record.options.freshness_ms)) <= record.options.freshness_ms
        )

    def is_served(self, record: TableRecord) -> bool:
        return not record.options.enabled or any(j.slots > 0 for j in self._schedule.live_jobs(record.options.pool))

    def warnings_of(self, path: TablePath) -> tuple[str, ...]:
        """For whoever created or altered a table."""
        with self._board.lock:
            record = self._board.find(path)
            found = []
            if record.broken is not None:
                found.append(record.broken)
            if record.options.enabled and not self.is_served(record):
                found.append(
                    f"no live job serves pool {record.options.pool!r}: {path} waits until one does (`lakeward tier`)"
                )
            if not self.is_feasible(record):
                found.append(_infeasible(record))
            return tuple(found)

    # ---- jobs ----
    def jobs(self) -> list[JobStatus]:
        """Those that registered, and expected ones that never did."""
        with self._board.lock:
            known = [self._job(job) for job in sorted(self._board.jobs.values(), key=lambda j: j.name)]
            missing = [n for n in self._board.options.jobs_expected if JobName(n) not in self._board.jobs]
        absent = [
            JobStatus(
                name=JobName(n), instance=InstanceId(""), pool="", slots=0, live=False, last_beat_at_ms=0, expected=True
            )
            for n in missing
        ]
        return known + absent

    def _job(self, job: JobRecord) -> JobStatus:
        held = [r for r in self._board.tables.values() if r.lease is not None and r.lease.job == job.name]
        return JobStatus(
            name=job.name,
            instance=job.instance,
            pool=job.pool,
            slots=job.slots,
            live=job.is_live(self._board.clock.monotonic(), self._board.options.lease_s),
            last_beat_at_ms=job.last_beat_at_ms,
            host=job.host,
            version=job.version,
            working_on=tuple(r.info.path for r in held),
            progress={r.name: r.lease.progress for r in held if r.lease is not None},
            expected=job.name in self._board.options.jobs_expected,
        )

    def missing_jobs(self) -> list[str]:
        return [j.name for j in self.jobs() if j.expected and not j.live]

    # ---- rounds, ledger, queue ----
    def rounds(self, path: TablePath | None = None, limit: int = 100) -> list[RoundStatus]:
        """Newest first."""
        with self._board.lock:
            table_id = None if path is None else self._board.find(path).table_id
            rows = self._board.store.load_rounds(table_id, limit=limit)
        return [decode(RoundStatus, row) for row in rows]

    def ledger(self, path: TablePath, limit: int = 1_000, before: int | None = None) -> LedgerAnswer:
        with self._board.lock:
            record = self._board.find(path)
            page = self._board.store.load_ledger(record.table_id, limit=limit, before=before)
            return LedgerAnswer(
                path=path,
                generation=record.generation,
                committed=record.committed,
                entries=tuple(entry for _, entry in page),
                next_before=page[0][0] if len(page) == limit else None,
            )

    def queue(self) -> list[QueueEntry]:
        """Tables that wait, in the order of their latest start."""
        entries = self._each(self._entry, lambda r: r.state in (_S.PENDING, _S.SCHEDULED, _S.FAILED))
        return sorted(
            entries, key=lambda e: (e.state is not _S.PENDING, e.starts_at_ms is None, e.starts_at_ms or 0, str(e.path))
        )

    def _entry(self, record: TableRecord) -> QueueEntry:
        shown, round_ms = self._table(record), self._schedule.round_ms(record)
        margin = round_ms * self._board.options.margin_share + 1_000 * self._board.options.margin_s
        deadline = shown.deadline_at_ms
        return QueueEntry(
            path=record.info.path,
            state=shown.state,
            epoch=record.epoch,
            pool=record.options.pool,
            priority=record.options.priority,
            deadline_at_ms=deadline,
            starts_at_ms=None if deadline is None else int(deadline - round_ms - margin),
            expected_round_ms=int(round_ms),
            slack_ms=shown.slack_ms,
            waits_since_ms=record.pending_since_ms,
            retry_at_ms=record.retry_at_ms,
        )

    # ---- the whole ----
    def status(self) -> CoordinatorStatus:
        tables = tuple(self._each(self._table))
        with self._board.lock:
            records = sorted(self._board.tables.values(), key=lambda r: r.name)
            jobs = tuple(self.jobs())
            infeasible = [_infeasible(r) for r in records if not self.is_feasible(r) and r.options.enabled]
            unserved = sorted({t.pool for t in tables if not t.served})
            missing = tuple(j.name for j in jobs if j.expected and not j.live)
            return CoordinatorStatus(
                coordinator_epoch=self._board.coordinator_epoch,
                now_ms=self._board.clock.now_ms(),
                tables=tables,
                jobs=jobs,
                jobs_missing=missing,
                pools_unserved=tuple(unserved),
                lakes={f: self._lakes.trouble.get(f, "") for f in sorted(self._formats())},
                figures=self.figures(),
                warnings=(
                    *[f"nobody serves pool {p!r}" for p in unserved],
                    *[f"job {n} is expected and not alive" for n in missing],
                    *self._lakes.trouble.values(),
                    *infeasible,
                ),
            )

    def _formats(self) -> set[str]:
        found = {r.options.format for r in self._board.tables.values() if r.options.enabled} | {
            self._board.options.lake_format
        }
        return {f for f in found if f is not None}

    def figures(self) -> dict[str, float]:
        """Names as in design.md section 9."""
        with self._board.lock:
            records = self._board.tables.values()
            live = list(self._schedule.live_jobs())
            return {
                "pendingTablesCount": sum(r.state is _S.PENDING for r in records),
                "runningTablesCount": sum(r.state is _S.TIERING for r in records),
                "lakeTableCount": sum(r.options.enabled for r in records),
                "quarantinedTablesCount": sum(r.state is _S.QUARANTINED for r in records),
                "jobsLive": len(live),
                "jobsExpected": len(self._board.options.jobs_expected),
                "slots": sum(j.slots for j in live),
                **self.counters,
            }

    def table_figures(self) -> dict[TableId, dict[str, float]]:
        """Per table, names as Fluss's; -1 where nothing is known yet, as there."""
        return dict(self._each(lambda r: (r.table_id, self._table_figures(r)), lambda r: r.options.enabled))

    def _table_figures(self, record: TableRecord) -> dict[str, float]:
        now_ms, shown = self._board.clock.now_ms(), self._table(record)
        return {
            "tierLag": -1 if record.last_tiered_at_ms is None else now_ms - record.last_tiered_at_ms,
            "tierDuration": _known(record.last_duration_ms),
            "pendingTime": 0 if record.pending_since_ms is None else now_ms - record.pending_since_ms,
            "failuresTotal": record.failures,
            "fileSize": _known(record.lake.bytes),
            "recordCount": _known(record.lake.rows),
            "fileCount": _known(record.lake.files),
            "deleteFileCount": _known(record.lake.delete_files),
            "snapshotCount": _known(record.lake.snapshots),
            "freshness": record.options.freshness_ms,
            "lag": shown.lag_ms,
            "waitingRows": shown.waiting_rows,
            "waitingBytes": record.waiting.bytes,
            "deadlineMisses": record.misses,
            **({} if shown.slack_ms is None else {"slack": shown.slack_ms}),
            "roundsEnded": record.totals.rounds,
            "rowsOut": record.totals.rows,
            "deletesOut": record.totals.deletes,
            "bytesOut": record.totals.bytes,
            "queueWaitSeconds": record.totals.wait_s,
            "commitSeconds": record.totals.commit_s,
        }


def _known(value: int | None) -> float:
    return -1 if value is None else value


def _infeasible(record: TableRecord) -> str:
    best = 2 * record.estimate.typical_ms(0)
    return (
        f"table {record.name}: rounds take {best / 2_000:.1f} s, so rows wait up to {best / 1_000:.1f} s at best; "
        f"table.datalake.freshness is {record.options.freshness_ms / 1_000:g} s"
    )
