# SPDX-License-Identifier: Apache-2.0
"""Shows the coordinator's state: tables, jobs, rounds, queue, ledger, and its figures as plain numbers."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeVar

from lakeward.config import options as keys
from lakeward.coordinator.lake.adoption import status_of
from lakeward.coordinator.lake.lakes import Lakes
from lakeward.coordinator.options import DEFAULT_POOL
from lakeward.coordinator.schedule.schedule import BREATH_S, Schedule
from lakeward.coordinator.show.explain import explain
from lakeward.coordinator.state.board import Board
from lakeward.coordinator.state.estimate import unknown_round_ms
from lakeward.coordinator.state.jobs import JobRecord
from lakeward.coordinator.state.record import LakeSide
from lakeward.coordinator.state.storedrecords import DayCost
from lakeward.coordinator.state.work import Lease, RoundTotals, Work
from lakeward.model import TIER, Bucket, InstanceId, JobName, SideId, SideName, TablePath, TableState, WorkKind
from lakeward.protocol.operate import CoordinatorStatus, LedgerAnswer, QueueEntry
from lakeward.protocol.views import JobStatus, LagExplanation, RoundStatus, TableStatus, WorkStatus

_S = TableState
T = TypeVar("T")

SHOWN_AT_ONCE = 100
"""Tables looked at while the lock is held once."""

LATE_BEATS, SILENT_BEATS = 3, 10
"""Missed heartbeats after which a job is reported as late, and as silent."""

MOST_ROUNDS = 10_000
"""Looked through for those of one lake: as many as may be asked for."""


class StatusDesk:
    def __init__(self, board: Board, schedule: Schedule, lakes: Lakes) -> None:
        self._board, self._schedule, self._lakes = board, schedule, lakes
        self.counters: dict[str, float] = {
            "orphanBytesReclaimed": 0,
            "expiredBytesReclaimed": 0,
            "orphanFilesRemoved": 0,
        }

    # ---- tables ----
    def table(self, path: TablePath, name: SideName | None = None) -> TableStatus:
        with self._board.lock:
            return self._side(self._board.find(path, name))

    def _each(self, show: Callable[[LakeSide], T], chosen: Callable[[LakeSide], bool] = lambda _: True) -> list[T]:
        """Calls `show` for every side, by name. Each is shown at one moment; heartbeats may be handled between two."""
        with self._board.lock:
            sides = sorted((s for s in self._board.sides() if chosen(s)), key=lambda s: s.label)
        shown: list[T] = []
        for first in range(0, len(sides), SHOWN_AT_ONCE):
            if first:
                time.sleep(BREATH_S)
            with self._board.lock:
                shown += [show(s) for s in sides[first : first + SHOWN_AT_ONCE]]
        return shown

    def _side(self, side: LakeSide) -> TableStatus:
        now_ms = self._board.clock.now_ms()
        options, tier, deadline = side.options, side.tier, self._schedule.deadline_ms(side)
        round_ms = self._schedule.round_ms(side)
        stopped, blocked = self._board.hot.stopped_buckets(side.info), _blocked(side)
        if side.table.is_cut_off:
            self._board.look(side)  # nobody else does: no round is planned
        return TableStatus(
            path=side.info.path,
            table_id=side.table_id,
            side=side.name,
            state=side.state or _S.NEW,
            epoch=tier.epoch,
            freshness_ms=options.freshness_ms,
            pool=options.pool,
            priority=options.priority,
            lag_ms=side.lag_ms(now_ms, self._board.clock.monotonic()) or 0,
            waiting_rows=side.waiting.rows,
            deadline_at_ms=deadline,
            slack_ms=None if deadline is None else int(deadline - now_ms - round_ms),
            job=None if tier.lease is None else tier.lease.job,
            token=side.token,
            last_tiered_at_ms=side.last_tiered_at_ms,
            last_duration_ms=tier.last_duration_ms,
            failures=tier.failures,
            failures_in_a_row=tier.failures_in_a_row,
            misses=side.misses,
            reason=side.broken
            or (blocked if side.table.is_cut_off else None)
            or side.reason
            or (side.lake_error or {}).get("message")
            or _first_stop(stopped)
            or _trouble(side)
            or _resync(side),
            feasible=self.is_feasible(side),
            served=self.is_served(side),
            lake_rows=side.lake.rows,
            lake_bytes=side.lake.bytes,
            lake_files=side.lake.files,
            lake_delete_files=side.lake.delete_files,
            lake_snapshots=side.lake.snapshots,
            generation=side.generation,
            work=tuple(_work(work) for work in side.works.values()),
            stopped_buckets=len(stopped),
            blocked=blocked,
        )

    def is_feasible(self, side: LakeSide) -> bool:
        freshness_ms = side.options.freshness_ms
        return 2 * side.tier.estimate.typical_ms(unknown_round_ms(freshness_ms)) <= freshness_ms

    def is_served(self, side: LakeSide) -> bool:
        """Whether a live job of its pool has slots, and the plugin of its lake format."""
        jobs = self._schedule.live_jobs(side.options.pool)
        return not side.options.enabled or any(j.slots > 0 and j.has_format(side.options.format) for j in jobs)

    def warnings_of(self, path: TablePath) -> tuple[str, ...]:
        """Warnings for the person who created or altered a table."""
        with self._board.lock:
            sides = self._board.find_table(path).sides.values()
            return tuple(words for side in sides for words in self._warnings(side))

    def _warnings(self, side: LakeSide) -> Iterator[str]:
        if side.broken is not None:
            yield side.broken
        if side.options.enabled and not self.is_served(side):
            pool = side.options.pool
            command = "lakeward tier" if pool == DEFAULT_POOL else f"lakeward tier --pool {shlex.quote(pool)}"
            plugin = f" with a plugin for {side.options.format}" if self._schedule.live_jobs(pool) else ""
            yield f"no live job{plugin} serves pool {pool!r}: {side.label} waits until one does (`{command}`)"
        if not self.is_feasible(side):
            yield _infeasible(side)

    # ---- jobs ----
    def jobs(self) -> list[JobStatus]:
        """Those that registered, and expected ones that never did."""
        with self._board.lock:
            leased = self._board.leased()
            registered_jobs = [
                self._job(job, leased) for job in sorted(self._board.jobs.values(), key=lambda j: j.name)
            ]
            missing = [n for n in self._board.options.jobs_expected if JobName(n) not in self._board.jobs]
        absent = [
            JobStatus(
                name=JobName(n),
                instance=InstanceId(""),
                pool="",
                slots=0,
                live=False,
                last_beat_at_ms=0,
                expected=True,
                state="never seen",
            )
            for n in missing
        ]
        return registered_jobs + absent

    def _job(self, job: JobRecord, leased: Sequence[tuple[LakeSide, Work, Lease]]) -> JobStatus:
        held = [(side, lease) for side, _, lease in leased if lease.job == job.name]
        silent_s = 0.0 if job.left else self._board.clock.monotonic() - job.seen
        is_live = job.is_live(self._board.clock.monotonic(), self._board.options.lease_s)
        beats_missed = int(silent_s / self._board.options.beat_s)
        return JobStatus(
            name=job.name,
            instance=job.instance,
            pool=job.pool,
            slots=job.slots,
            live=is_live,
            last_beat_at_ms=job.last_beat_at_ms,
            host=job.host,
            version=job.version,
            working_on=tuple(dict.fromkeys(side.info.path for side, _ in held)),
            progress={side.label: lease.progress for side, lease in held},
            kinds=job.kinds,
            memory_bytes=job.memory_bytes,
            clock_apart_ms=job.clock_apart_ms,
            beats_missed=beats_missed,
            expected=job.name in self._board.options.jobs_expected,
            state=_job_state(job, beats_missed, is_live=is_live),
        )

    def missing_jobs(self) -> list[str]:
        return [j.name for j in self.jobs() if j.expected and not j.live]

    # ---- rounds, ledger, queue ----
    def rounds(
        self,
        path: TablePath | None = None,
        limit: int = 100,
        name: SideName | None = None,
        kind: WorkKind | None = None,
    ) -> list[RoundStatus]:
        """Newest first; of every kind of work, and of all sides, unless one is named."""
        store = self._board.store
        with self._board.lock:
            if path is None:
                newest = store.rounds.load(None, kind, limit=limit if name is None else MOST_ROUNDS)
                return [r for r in newest if name in (None, r.side)][:limit]
            shown_sides = (
                self._board.find_table(path).sides.values() if name is None else [self._board.find(path, name)]
            )
            listed = [r for side in shown_sides for r in store.rounds.load(side.id, kind, limit=limit)]
        return sorted(listed, key=lambda r: -r.ended_at_ms)[:limit] if len(shown_sides) > 1 else listed

    def explain(self, path: TablePath, name: SideName | None = None) -> LagExplanation:
        with self._board.lock:
            side = self._board.find(path, name)
            last = next(iter(self.rounds(path, 1, side.name, TIER)), None)
            self._board.look(side)  # rows written since the last tick wait too
            return explain(side, self._board.clock.now_ms(), last, self.is_served(side))

    def costs(self, days: int) -> list[DayCost]:
        """Cost of each table's work per day, newest first."""
        with self._board.lock:
            return self._board.store.rounds.load_costs(days)

    def ledger_page(
        self, path: TablePath, limit: int | None = 1_000, before: int | None = None, name: SideName | None = None
    ) -> LedgerAnswer:
        """`limit` None: all entries."""
        with self._board.lock:
            side = self._board.find(path, name)
            page = self._board.store.ledger.load(side.id, limit=limit, before=before)
            return LedgerAnswer(
                path=path,
                side=side.name,
                generation=side.generation,
                committed=side.committed,
                entries=tuple(entry for _, entry in page),
                next_before=page[0][0] if len(page) == limit else None,
            )

    def queue(self) -> list[QueueEntry]:
        """Tables that wait, in the order of their latest start."""
        entries = self._each(self._entry, lambda s: s.state in (_S.PENDING, _S.SCHEDULED, _S.FAILED))
        return sorted(
            entries, key=lambda e: (e.state is not _S.PENDING, e.starts_at_ms is None, e.starts_at_ms or 0, str(e.path))
        )

    def _entry(self, side: LakeSide) -> QueueEntry:
        shown, round_ms = self._side(side), self._schedule.round_ms(side)
        margin = round_ms * self._board.options.margin_share + 1_000 * self._board.options.margin_s
        deadline = shown.deadline_at_ms
        return QueueEntry(
            path=side.info.path,
            side=side.name,
            state=shown.state,
            epoch=side.tier.epoch,
            pool=side.options.pool,
            priority=side.options.priority,
            deadline_at_ms=deadline,
            starts_at_ms=None if deadline is None else int(deadline - round_ms - margin),
            expected_round_ms=int(round_ms),
            slack_ms=shown.slack_ms,
            waits_since_ms=side.pending_since_ms,
            retry_at_ms=side.tier.retry_at_ms,
        )

    # ---- the whole ----
    def status(self) -> CoordinatorStatus:
        tables = tuple(self._each(self._side))
        with self._board.lock:
            sides = sorted(self._board.sides(), key=lambda s: s.label)
            jobs = tuple(self.jobs())
            infeasible = [_infeasible(s) for s in sides if not self.is_feasible(s) and s.options.enabled]
            unserved = sorted({t.pool for t in tables if not t.served})
            missing = tuple(j.name for j in jobs if j.expected and not j.live)
            return CoordinatorStatus(
                coordinator_epoch=self._board.coordinator_epoch,
                now_ms=self._board.clock.now_ms(),
                tables=tables,
                jobs=jobs,
                jobs_missing=missing,
                pools_unserved=tuple(unserved),
                adoptions=tuple(map(status_of, self._board.hot.loads())),
                lakes=self._lakes.shown(),
                figures=self.figures(),
                warnings=(
                    *[f"nobody serves pool {p!r}" for p in unserved],
                    *[f"job {n} is expected and not alive" for n in missing],
                    *self._lakes.trouble.values(),
                    *infeasible,
                    *self._board.store.left_out.lines,
                    *self._board.hot.left_out(),
                ),
            )

    def figures(self) -> dict[str, float]:
        """Names as in design.md section 9."""
        with self._board.lock:
            sides = self._board.sides()
            live = list(self._schedule.live_jobs())
            return {
                "pendingTablesCount": sum(s.state is _S.PENDING for s in sides),
                "runningTablesCount": sum(s.state is _S.TIERING for s in sides),
                "lakeTableCount": sum(s.options.enabled for s in sides),
                "quarantinedTablesCount": sum(s.state is _S.QUARANTINED for s in sides),
                "jobsLive": len(live),
                "jobsExpected": len(self._board.options.jobs_expected),
                "slots": sum(j.slots for j in live),
                **self.counters,
            }

    def side_figures(self) -> dict[SideId, dict[str, float]]:
        """Per side, names as Fluss's; -1 where nothing is known yet, as there."""
        return dict(self._each(lambda s: (s.id, self._figures_of(s)), lambda s: s.options.enabled))

    def _figures_of(self, side: LakeSide) -> dict[str, float]:
        now_ms, shown = self._board.clock.now_ms(), self._side(side)
        others = [w for w in side.works.values() if w is not side.tier]
        debts = [w.debt_files for w in others if w.debt_files is not None]
        return {
            "tierLag": -1 if side.last_tiered_at_ms is None else now_ms - side.last_tiered_at_ms,
            "tierDuration": _known(side.tier.last_duration_ms),
            "pendingTime": 0 if side.pending_since_ms is None else now_ms - side.pending_since_ms,
            "failuresTotal": side.tier.failures,
            "fileSize": _known(side.lake.bytes),
            "recordCount": _known(side.lake.rows),
            "fileCount": _known(side.lake.files),
            "deleteFileCount": _known(side.lake.delete_files),
            "snapshotCount": _known(side.lake.snapshots),
            "debtFiles": sum(debts) if debts else -1,
            "writeAmplification": sum(w.totals.bytes for w in others) / max(1, side.tier.totals.bytes),
            "freshness": side.options.freshness_ms,
            "lag": shown.lag_ms,
            "waitingRows": shown.waiting_rows,
            "waitingBytes": side.waiting.bytes,
            "deadlineMisses": side.misses,
            **({} if shown.slack_ms is None else {"slack": shown.slack_ms}),
        }

    def work_figures(self) -> dict[tuple[SideId, WorkKind], dict[str, float]]:
        """Counters of finished work, per side and kind of work."""
        shown = self._each(
            lambda s: [((s.id, w.kind), _totals(w.totals)) for w in s.works.values()], lambda s: s.options.enabled
        )
        return {key: figures for rows in shown for key, figures in rows}


def _job_state(job: JobRecord, beats_missed: int, *, is_live: bool) -> str:
    if job.left:
        return "left"
    if not is_live or beats_missed >= SILENT_BEATS:
        return "silent"
    return "late" if beats_missed >= LATE_BEATS else "live"


def _blocked(side: LakeSide) -> str:
    if side.table.is_cut_off:
        key = keys.DATALAKE_ENABLED.key
        return (
            f"the server's lakes are switched off ({key} = false): its rows wait in the log; start it with {key} = true"
        )
    error = side.lake_error or {}
    passes = not side.options.enabled or error.get("retryable")
    return side.broken or ("" if passes else str(error.get("message") or ""))


def _totals(totals: RoundTotals) -> dict[str, float]:
    return {
        "roundsEnded": totals.rounds,
        "rowsOut": totals.rows,
        "deletesOut": totals.deletes,
        "bytesOut": totals.bytes,
        "queueWaitSeconds": totals.wait_s,
        "commitSeconds": totals.commit_s,
        "workSeconds": totals.work_s,
        "bytesRewritten": totals.bytes_read,
        "filesReplaced": totals.files_replaced,
        "groupsDropped": totals.groups_left_out,
        "roundsSharingRead": totals.sharing_read,
        "logBytesRead": totals.log_bytes,
    }


def _work(work: Work) -> WorkStatus:
    lease = work.lease
    return WorkStatus(
        kind=work.kind,
        epoch=work.epoch,
        job=None if lease is None else lease.job,
        round_id=None if lease is None else lease.round_id,
        since_ms=None if lease is None else lease.granted_at_ms,
        progress=None if lease is None else lease.progress,
        failures=work.failures,
        failures_in_a_row=work.failures_in_a_row,
        last_duration_ms=work.last_duration_ms,
        retry_at_ms=work.retry_at_ms,
        debt_files=work.debt_files,
        debt_rows=work.debt_rows,
    )


def _known(value: int | None) -> float:
    return -1 if value is None else value


def _first_stop(stopped: Mapping[Bucket, str]) -> str | None:
    return next((f"bucket {bucket} takes no writes: {reason}" for bucket, reason in stopped.items()), None)


def _resync(side: LakeSide) -> str | None:
    if side.resync is None:
        return None
    left = "all" if side.to_compare is None else f"{len(side.to_compare):,}"
    return f"a resync is under way; buckets still to be compared with the hot store: {left}"


def _trouble(side: LakeSide) -> str | None:
    leases = (work.lease for work in side.works.values())
    return next((lease.progress.trouble for lease in leases if lease is not None and lease.progress.trouble), None)


def _infeasible(side: LakeSide) -> str:
    best = 2 * side.tier.estimate.typical_ms(0)
    return (
        f"table {side.label}: rounds take {best / 2_000:.1f} s, so rows wait up to {best / 1_000:.1f} s at best; "
        f"table.datalake.freshness is {side.options.freshness_ms / 1_000:g} s"
    )
