# SPDX-License-Identifier: Apache-2.0
"""Answers heartbeats and lease checks: identifies the job, applies each report to its table, and collects the job's
orders."""

from __future__ import annotations

from dataclasses import replace

from lakeward.coordinator.schedule.kind import Kind
from lakeward.coordinator.schedule.schedule import Schedule
from lakeward.coordinator.state.board import STANDS, Board
from lakeward.coordinator.state.estimate import RoundSample
from lakeward.coordinator.state.jobs import JobRecord
from lakeward.coordinator.state.record import LakeSide
from lakeward.coordinator.state.work import Lease, Work
from lakeward.model import InstanceId, JobName, RoundId, RoundPhases, RoundResult, SideId
from lakeward.protocol.heartbeat import (
    CommitAnswer,
    CommitReport,
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
    busy_slots,
)
from lakeward.protocol.views import RoundStatus

Reported = TableInWork | TableFinished | TableFailed | LeaseCheck


class Desk:
    def __init__(self, board: Board, schedule: Schedule) -> None:
        self._board, self._schedule, self._kinds = board, schedule, schedule.kinds

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

    def finish(self, report: CommitReport, finished: TableFinished, answer: CommitAnswer) -> CommitAnswer:
        """The end of a round whose commit has been recorded: as a heartbeat would tell it, in the commit's own call."""
        with self._board.change():
            job = self._board.jobs.get(report.job)
            if job is None or job.instance != report.instance:
                return answer
            verdict = self._end(HeartbeatRequest(job=report.job, instance=report.instance), finished)
            is_finished = verdict.verdict is Verdict.OK
            return replace(answer, is_finished=is_finished, next_beat_ms=self._next_beat_ms(job, 1))

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
        for side, work, _ in self._board.leased(job):
            self._kinds[work.kind].give_back(side, work, reason)

    def _hand_out(self, job: JobRecord, request: HeartbeatRequest) -> list[HandedOut]:
        """A job gets the kinds that it knows; what one kind leaves of its room is the next one's."""
        if request.room <= 0:
            return []
        busy = busy_slots([lease.progress for _, _, lease in self._board.leased(job.name)], job.slots)
        room, granted = min(request.room, job.slots - busy), list[HandedOut]()
        for kind in self._kinds.values():
            if kind.name in job.kinds and len(granted) < room:
                sides = kind.choose(job, room - len(granted))
                grants = [(side, self._grant(kind, side, job)) for side in sides]
                granted += kind.together(grants) if job.reads_together else [handed for _, handed in grants]
        return granted

    def _grant(self, kind: Kind, side: LakeSide, job: JobRecord) -> HandedOut:
        now, work = self._board.clock.monotonic(), side.work(kind.name)
        waited_ms = kind.begin(side, work)
        lease = Lease(
            job=job.name,
            instance=job.instance,
            granted_at_ms=self._board.clock.now_ms(),
            waited_ms=waited_ms,
            backlog_bytes=side.waiting.bytes,
            until=now + kind.lease_s,
            granted_at=now,
        )
        self._board.lease(side, work, lease)
        return kind.handed_out(side, work, lease)

    def _next_beat_ms(self, job: JobRecord, room: int) -> int:
        """Sooner when something may start here before the next ordinary beat."""
        beat_ms = int(1_000 * self._board.options.beat_s)
        return beat_ms if room <= 0 else max(100, int(min(beat_ms, self._schedule.next_ms(job.pool))))

    # ---- one piece of work of a beat ----
    def _held(self, job: JobName, instance: InstanceId, said: Reported) -> tuple[LakeSide, Work, Lease] | str:
        """The side and its lease if this instance holds it under this epoch; else the reason why not."""
        side = self._board.side(_side_id(said))
        if side is None:
            return "the table was dropped"
        if side.state in STANDS:
            return f"the table is {side.state}: {side.reason or 'by call'}"
        work = side.works.get(said.kind)
        if work is None or work.lease is None:
            why = side.reason or "it was given back"
            return f"nobody holds the lease, epoch {work.epoch if work else 0} is {side.state}: {why}"
        if (work.lease.job, work.lease.instance) != (job, instance):
            return f"epoch {work.epoch} is leased to job {work.lease.job}, instance {work.lease.instance}"
        if work.epoch != said.epoch:
            return f"epoch {said.epoch} is not current, {work.epoch} is"
        return side, work, work.lease

    def _refuse(self, said: Reported, reason: str) -> TableVerdict:
        side = self._board.side(_side_id(said))
        if side is None:
            return _verdict(said, Verdict.DROPPED, reason)
        return _verdict(said, Verdict.PAUSED if side.state in STANDS else Verdict.FENCED, reason)

    def _renew(self, request: HeartbeatRequest, table: TableInWork) -> TableVerdict:
        held = self._held(request.job, request.instance, table)
        if isinstance(held, str):
            return self._refuse(table, held)
        side, _, lease = held
        kind, now = self._kinds[table.kind], self._board.clock.monotonic()
        lease.until, lease.progress = now + kind.lease_s, table.progress
        if lease.writing_at is None and not table.progress.is_planning:
            lease.writing_at = now
        if not self._bind(side, lease, table.round_id):
            return self._refuse(table, f"this lease went on with round {lease.round_id}")
        enough = kind.why_enough(side, lease)
        return _verdict(table, Verdict.OK) if enough is None else _verdict(table, Verdict.FORCE_FINISH, enough)

    def _bind(self, side: LakeSide, lease: Lease, round_id: RoundId | None) -> bool:
        before = lease.round_id
        bound = lease.bind(round_id)
        if lease.round_id != before:
            self._board.touch(side)
        return bound

    def _end(self, request: HeartbeatRequest, ended: TableFinished | TableFailed) -> TableVerdict:
        side = self._board.side(_side_id(ended))
        work = None if side is None else side.works.get(ended.kind)
        if work is not None and work.last_finish == (ended.epoch, request.instance):
            return _verdict(ended, Verdict.OK, "recorded before")
        held = self._held(request.job, request.instance, ended)
        if isinstance(held, str):
            return self._refuse(ended, held)
        held[1].last_finish = (ended.epoch, request.instance)
        if isinstance(ended, TableFinished):
            self._record_finish(*held, ended)
        else:
            self._record_failure(*held, ended)
        return _verdict(ended, Verdict.OK)

    def _record_finish(self, side: LakeSide, work: Work, lease: Lease, finished: TableFinished) -> None:
        duration_ms = 1_000 * (self._board.clock.monotonic() - lease.granted_at)
        work.last_duration_ms = int(duration_ms)
        work.forgive()
        if finished.result is not None:
            sample = RoundSample(duration_ms=duration_ms, backlog_bytes=lease.backlog_bytes)
            work.estimate = work.estimate.with_sample(sample)
            outcome = "force-finished" if finished.force_finished else "done"
            self._store_round(side, work, lease, outcome, finished.result)
        self._kinds[work.kind].finished(side, work, finished)

    def _record_failure(self, side: LakeSide, work: Work, lease: Lease, failed: TableFailed) -> None:
        kind, reason = self._kinds[work.kind], str(failed.error.get("message") or failed.error.get("code") or "")
        reason = side.advised(reason) or "no reason given"
        if failed.given_back:
            kind.give_back(side, work, f"given back by job {lease.job}: {reason}")
            return
        work.failures += 1
        work.failures_in_a_row += 1
        work.error = failed.error
        self._store_round(side, work, lease, "failed", None, failed)
        kind.failed(side, work, reason)

    def _store_round(
        self,
        side: LakeSide,
        work: Work,
        lease: Lease,
        outcome: str,
        result: RoundResult | None,
        failed: TableFailed | None = None,
    ) -> None:
        """Kept for people; the wait is ours to tell, the phases after it are the job's."""
        phases = result.phases if result is not None else RoundPhases()
        status = RoundStatus(
            round_id=(result.round_id if result is not None else None) or lease.round_id or RoundId(""),
            path=side.info.path,
            side=side.name,
            kind=work.kind,
            epoch=work.epoch,
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
            bytes_read=0 if result is None else result.bytes_read,
            files_replaced=0 if result is None else result.files_replaced,
            groups_left_out=0 if result is None else result.groups_left_out,
            read_with=() if result is None else result.read_with,
            log_bytes=0 if result is None else result.log_bytes,
            error=None if failed is None else failed.error,
        )
        work.totals.add(status)
        self._board.add_round(side, status)

    # ---- lease check ----
    def check_lease(self, check: LeaseCheck) -> LeaseVerdict:
        """Right before a lake commit. A check is a sign of life like a beat."""
        with self._board.change():
            job = self._board.jobs.get(check.job)
            if job is not None and check.instance in job.past:
                return LeaseVerdict(held=False, reason=f"instance {check.instance} was replaced by {job.instance}")
            held = self._held(check.job, check.instance, check)
            if isinstance(held, str):
                return LeaseVerdict(held=False, reason=held)
            side, work, lease = held
            if not self._bind(side, lease, check.round_id):
                return LeaseVerdict(held=False, reason=f"this lease went on with round {lease.round_id}")
            lease.until = self._board.clock.monotonic() + self._kinds[work.kind].lease_s
            return LeaseVerdict(held=True)


def _side_id(said: Reported) -> SideId:
    return SideId(said.table_id, said.side)


def _verdict(said: Reported, verdict: Verdict, reason: str = "") -> TableVerdict:
    return TableVerdict(
        table_id=said.table_id, side=said.side, kind=said.kind, verdict=verdict, reason=reason, round_id=said.round_id
    )
