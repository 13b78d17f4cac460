# SPDX-License-Identifier: Apache-2.0
"""Answers heartbeats and lease checks: who is who, what each report does to its table, what the job is told."""

from __future__ import annotations

from lakeward.coordinator.schedule.backoff import backoff_ms
from lakeward.coordinator.schedule.estimate import RoundSample
from lakeward.coordinator.schedule.schedule import Schedule
from lakeward.coordinator.state.board import Board
from lakeward.coordinator.state.jobs import JobRecord
from lakeward.coordinator.state.record import Lease, TableRecord
from lakeward.model.ids import Epoch, InstanceId, JobName, RoundId, TableId
from lakeward.model.round import RoundPhases, RoundResult
from lakeward.model.state import TableState
from lakeward.protocol.heartbeat import (
    HandedOut,
    HeartbeatAnswer,
    HeartbeatRequest,
    LeaseCheck,
    LeaseVerdict,
    TableFailed,
    TableFinished,
    TableInWork,
    TableVerdict,
    Verdict,
)
from lakeward.protocol.views import RoundStatus

_S = TableState
_NO_WORK = frozenset({_S.PAUSED, _S.QUARANTINED, _S.DISABLED})


class Desk:
    def __init__(self, board: Board, schedule: Schedule) -> None:
        self._board, self._schedule = board, schedule

    # ---- heartbeat ----
    def heartbeat(self, request: HeartbeatRequest) -> HeartbeatAnswer:
        """Order as in Fluss: failed, in work, finished, then new tables. Raises `Superseded`."""
        if request.room > 0:
            self._schedule.tick_if_due()
        board = self._board
        with board.change():
            job = self._register(request)
            verdicts = [self._end(request, failed) for failed in request.failed]
            verdicts += [self._renew(request, table) for table in request.tiering]
            verdicts += [self._end(request, finished) for finished in request.finished]
            if request.leaving:
                self._give_back_all(job.name, f"job {job.name} left")
            tables = [] if request.leaving else self._hand_out(job, request)
            return HeartbeatAnswer(
                coordinator_epoch=board.coordinator_epoch,
                verdicts=tuple(verdicts),
                tables=tuple(tables),
                next_beat_ms=self._next_beat_ms(job, request.room - len(tables)),
            )

    def _register(self, request: HeartbeatRequest) -> JobRecord:
        board = self._board
        job = board.jobs.get(request.job)
        if job is None:
            job = board.jobs[request.job] = JobRecord(name=request.job, instance=request.instance)
            board.touch_job(job)
        job.check_current(request.instance)
        if request.instance != job.instance:
            self._give_back_all(
                job.name, f"instance {request.instance} of job {job.name} took the place of {job.instance}"
            )
        if job.take(request, board.clock.monotonic(), board.clock.now_ms()):
            board.touch_job(job)
        return job

    def _give_back_all(self, job: JobName, reason: str) -> None:
        for record in self._board.tables.values():
            if record.lease is not None and record.lease.job == job:
                self._board.enter(record, _S.PENDING, reason)

    def _hand_out(self, job: JobRecord, request: HeartbeatRequest) -> list[HandedOut]:
        held = sum(1 for r in self._board.tables.values() if r.lease is not None and r.lease.job == job.name)
        room = min(request.room, max(0, job.slots - held))
        return self._schedule.hand_out(job, room) if room > 0 else []

    def _next_beat_ms(self, job: JobRecord, room: int) -> int:
        """Sooner when something may start here before the next ordinary beat."""
        beat_ms = int(1_000 * self._board.options.beat_s)
        return beat_ms if room <= 0 else max(100, int(min(beat_ms, self._schedule.next_ms(job.pool))))

    # ---- one table of a beat ----
    def _held(self, request: HeartbeatRequest, table_id: TableId, epoch: Epoch) -> tuple[TableRecord, Lease] | str:
        return self._find_lease(request.job, request.instance, table_id, epoch)

    def _find_lease(
        self, job: JobName, instance: InstanceId, table_id: TableId, epoch: Epoch
    ) -> tuple[TableRecord, Lease] | str:
        """The record and its lease if this instance holds it under this epoch; else the reason why not, in words."""
        record = self._board.tables.get(table_id)
        if record is None:
            return "the table was dropped"
        if record.state in _NO_WORK:
            return f"the table is {record.state}: {record.reason or 'by call'}"
        if record.lease is None:
            return (
                f"nobody holds the lease, epoch {record.epoch} is {record.state}: "
                f"{record.reason or 'it was given back'}"
            )
        if (record.lease.job, record.lease.instance) != (job, instance):
            return f"epoch {record.epoch} is leased to job {record.lease.job}, instance {record.lease.instance}"
        if record.epoch != epoch:
            return f"epoch {epoch} is not current, {record.epoch} is"
        return record, record.lease

    def _refusal(self, table_id: TableId, reason: str, round_id: RoundId | None) -> TableVerdict:
        record = self._board.tables.get(table_id)
        verdict = Verdict.FENCED
        if record is None:
            verdict = Verdict.DROPPED
        elif record.state in _NO_WORK:
            verdict = Verdict.PAUSED
        return TableVerdict(table_id=table_id, verdict=verdict, reason=reason, round_id=round_id)

    def _renew(self, request: HeartbeatRequest, table: TableInWork) -> TableVerdict:
        held = self._held(request, table.table_id, table.epoch)
        if isinstance(held, str):
            return self._refusal(table.table_id, held, table.round_id)
        record, lease = held
        now = self._board.clock.monotonic()
        lease.until, lease.progress = now + self._board.options.lease_s, table.progress
        if not self._bind(record, lease, table.round_id):
            return self._refusal(table.table_id, f"this lease went on with round {lease.round_id}", table.round_id)
        limit = record.options.round_limit_ms
        over = 1_000 * (now - lease.granted_at) > limit
        reason = f"the round has taken longer than its limit of {limit} ms" if over else ""
        verdict = Verdict.FORCE_FINISH if over else Verdict.OK
        return TableVerdict(table_id=table.table_id, verdict=verdict, reason=reason, round_id=table.round_id)

    def _bind(self, record: TableRecord, lease: Lease, round_id: RoundId | None) -> bool:
        """A lease may go on with a new round (after a lost race), never back to an older one."""
        if round_id is None or round_id == lease.round_id:
            return True
        if round_id in lease.past_rounds:
            return False
        if lease.round_id is not None:
            lease.past_rounds.append(lease.round_id)
        lease.round_id = round_id
        self._board.touch(record)
        return True

    def _end(self, request: HeartbeatRequest, ended: TableFinished | TableFailed) -> TableVerdict:
        record = self._board.tables.get(ended.table_id)
        if record is not None and record.last_finish == (ended.epoch, request.instance):
            return TableVerdict(
                table_id=ended.table_id, verdict=Verdict.OK, reason="recorded before", round_id=ended.round_id
            )
        held = self._held(request, ended.table_id, ended.epoch)
        if isinstance(held, str):
            return self._refusal(ended.table_id, held, ended.round_id)
        if isinstance(ended, TableFinished):
            self._record_finish(*held, ended, request)
        else:
            self._record_failure(*held, ended, request)
        return TableVerdict(table_id=ended.table_id, verdict=Verdict.OK, round_id=ended.round_id)

    def _record_finish(
        self, record: TableRecord, lease: Lease, finished: TableFinished, request: HeartbeatRequest
    ) -> None:
        board = self._board
        duration_ms = 1_000 * (board.clock.monotonic() - lease.granted_at)
        record.last_finish = (finished.epoch, request.instance)
        record.last_tiered_at_ms, record.last_duration_ms = board.clock.now_ms(), int(duration_ms)
        record.caught_up_at_ms = max(record.caught_up_at_ms, finished.caught_up_at_ms or 0)
        record.failures_in_a_row, record.error = 0, None
        if finished.result is not None:
            record.estimate = record.estimate.with_sample(
                RoundSample(duration_ms=duration_ms, backlog_bytes=lease.backlog_bytes)
            )
            record.lake.rows = finished.result.lake_rows if finished.result.lake_rows is not None else record.lake.rows
            record.lake.bytes = (
                finished.result.lake_bytes if finished.result.lake_bytes is not None else record.lake.bytes
            )
            self._store_round(record, lease, "force-finished" if finished.force_finished else "done", finished.result)
        board.enter(record, _S.TIERED)
        board.enter(record, _S.PENDING if finished.force_finished else _S.SCHEDULED)
        board.look(record)
        if record.asked is not None and (record.covers(record.asked) or record.waiting.oldest_at_ms is None):
            record.asked = None

    def _record_failure(
        self, record: TableRecord, lease: Lease, failed: TableFailed, request: HeartbeatRequest
    ) -> None:
        board = self._board
        record.last_finish = (failed.epoch, request.instance)
        reason = str(failed.error.get("message") or failed.error.get("code") or "no reason given")
        if failed.given_back:
            board.enter(record, _S.PENDING, f"given back by job {lease.job}: {reason}")
            return
        record.failures += 1
        record.failures_in_a_row += 1
        record.error = failed.error
        self._store_round(record, lease, "failed", None, failed)
        board.enter(record, _S.FAILED, reason)
        if record.failures_in_a_row >= board.options.quarantine_after:
            board.enter(
                record, _S.QUARANTINED, f"{record.failures_in_a_row} rounds failed in a row, the last one: {reason}"
            )
            return
        wait = backoff_ms(
            record.failures_in_a_row,
            first_s=board.options.backoff_s,
            limit_s=board.options.backoff_limit_s,
            jitter=board.options.backoff_jitter,
            seed=f"{board.options.seed}/{record.table_id}",
        )
        board.retry_after(record, wait)

    def _store_round(
        self,
        record: TableRecord,
        lease: Lease,
        outcome: str,
        result: RoundResult | None,
        failed: TableFailed | None = None,
    ) -> None:
        """Kept for people; the wait is ours to tell, the phases after it are the job's."""
        phases = result.phases if result is not None else RoundPhases()
        status = RoundStatus(
            round_id=(result.round_id if result is not None else None) or lease.round_id or RoundId(""),
            path=record.info.path,
            epoch=record.epoch,
            job=lease.job,
            outcome=outcome,
            started_at_ms=lease.granted_at_ms,
            ended_at_ms=self._board.clock.now_ms(),
            phases=RoundPhases(**{**vars(phases), "wait_s": lease.waited_ms / 1_000}),
            snapshot_id=None if result is None else result.snapshot_id,
            rows=0 if result is None else result.rows,
            deletes=0 if result is None else result.deletes,
            bytes_written=0 if result is None else result.bytes_written,
            files=0 if result is None else result.files,
            error=None if failed is None else failed.error,
        )
        record.totals.add(status)
        self._board.add_round(record.table_id, status)

    # ---- lease check ----
    def check_lease(self, check: LeaseCheck) -> LeaseVerdict:
        """Right before a lake commit. A check is a sign of life like a beat."""
        with self._board.change():
            job = self._board.jobs.get(check.job)
            if job is not None and check.instance in job.past:
                return LeaseVerdict(held=False, reason=f"instance {check.instance} was replaced by {job.instance}")
            held = self._find_lease(check.job, check.instance, check.table_id, check.epoch)
            if isinstance(held, str):
                return LeaseVerdict(held=False, reason=held)
            record, lease = held
            if not self._bind(record, lease, check.round_id):
                return LeaseVerdict(held=False, reason=f"this lease went on with round {lease.round_id}")
            lease.until = self._board.clock.monotonic() + self._board.options.lease_s
            return LeaseVerdict(held=True)
