# SPDX-License-Identifier: Apache-2.0
"""Shows the observed state of a cluster's tables with the terms of pages and metrics. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from lakeward.hot.fluss.clusterview import LATE, REFUSED, UNREADABLE, CommitView, TableLook
from lakeward.model import (
    NO_EPOCH,
    TIER,
    InstanceId,
    JobName,
    RoundId,
    RoundPhases,
    SnapshotId,
    TablePath,
    TableState,
    WorkKind,
)
from lakeward.protocol.views import JobStatus, LagExplanation, RoundStatus, TableStatus, WorkStatus

DONE = "done"
_STATES = {REFUSED: TableState.DISABLED, UNREADABLE: TableState.FAILED, LATE: TableState.PENDING}


def show_table(look: TableLook, aged_ms: int, debt: WorkStatus | None, own: Sequence[RoundStatus] = ()) -> TableStatus:
    """`aged_ms`: how long ago that was; what waited then has waited longer. `debt`: what compaction has to do.
    `own`: rounds of the job in this process, newest first."""
    view, totals, tiered = look.view, look.view.totals, [r for r in own if r.kind == TIER]
    failed = next((n for n, r in enumerate(tiered) if r.error is None), len(tiered))
    error = tiered[0].error if failed else None
    lag_ms = view.lag_ms + aged_ms if view.waiting else 0
    return TableStatus(
        path=look.table.path,
        table_id=look.table.table_id,
        state=_STATES.get(view.state, TableState.SCHEDULED) if error is None else TableState.FAILED,
        epoch=NO_EPOCH,
        freshness_ms=view.freshness_ms,
        lag_ms=lag_ms,
        waiting_rows=view.waiting,
        job=None if view.job is None else JobName(view.job),
        last_tiered_at_ms=view.last_commit_at_ms,
        last_duration_ms=next((int(1_000 * r.phases.total_s) for r in tiered if r.outcome == DONE), None),
        failures=sum(r.error is not None for r in tiered),
        failures_in_a_row=failed,
        reason=view.reason if error is None else str(error.get("message")),
        lake_rows=None if totals is None or not totals.is_exact else totals.rows,
        lake_bytes=None if totals is None else totals.bytes,
        lake_files=None if totals is None else totals.data_files,
        lake_delete_files=None if totals is None else totals.delete_files,
        lake_snapshots=None if totals is None else totals.snapshots,
        work=() if debt is None else (debt,),
    )


def show_commit(commit: CommitView) -> RoundStatus:
    """How long a round took, and those that failed, only the job itself knows."""
    return RoundStatus(
        round_id=RoundId(commit.round_id),
        path=TablePath.parse(commit.path),
        epoch=NO_EPOCH,
        job=JobName(commit.job),
        outcome=DONE,
        started_at_ms=commit.committed_at_ms,
        ended_at_ms=commit.committed_at_ms,
        phases=RoundPhases(),
        snapshot_id=SnapshotId(commit.snapshot_id),
        rows=commit.rows or 0,
        deletes=commit.deletes or 0,
        bytes_written=commit.bytes_written or 0,
        files=commit.files,
        kind=WorkKind(commit.kind),
        files_replaced=commit.files_replaced,
    )


def show_jobs(looks: Iterable[TableLook], known: Sequence[JobStatus]) -> tuple[JobStatus, ...]:
    """Fluss has no list of jobs: shows `known` and the jobs that made the last commit of a table. A job whose tables
    are all late counts as dead."""
    own, tables = {j.name for j in known}, list(looks)
    names = sorted({t.view.job for t in tables if t.view.job is not None} - own)
    return (*known, *(_job(name, [t for t in tables if t.view.job == name]) for name in names))


def _job(name: str, tables: Sequence[TableLook]) -> JobStatus:
    return JobStatus(
        name=JobName(name),
        instance=InstanceId(""),
        pool="default",
        slots=None,
        live=any(t.view.state != LATE for t in tables),
        last_beat_at_ms=max(t.view.last_commit_at_ms or 0 for t in tables),
    )


def explain_lag(look: TableLook, status: TableStatus, is_in_work: bool) -> LagExplanation:
    lag, freshness = status.lag_ms, status.freshness_ms
    waits = f"{status.waiting_rows:,} rows wait, the oldest for {lag / 1_000:.1f} s"
    if status.reason is not None:
        words = status.reason
    elif not status.waiting_rows:
        words = "nothing waits: the lake has everything that was acknowledged"
    elif is_in_work:
        words = f"{waits}; a round of this job runs"
    elif lag <= freshness:
        words = f"{waits}; Fluss hands the table out once its freshness of {freshness / 1_000:g} s is over"
    else:
        words = f"{waits}, with {freshness / 1_000:g} s allowed: no job took the table, or its round takes that long"
    parts = {"not_due": min(lag, freshness), "late": max(0, lag - freshness)}
    return LagExplanation(
        path=look.table.path,
        lag_ms=lag,
        parts_ms={k: v for k, v in parts.items() if v},
        words=words,
        committed=look.committed,
    )


def table_figures(table: TableStatus, now_ms: int) -> Mapping[str, float]:
    """Names as a server's; -1 where nothing is known, as there."""
    lag, tiered_at = table.lag_ms, table.last_tiered_at_ms
    return {
        "tierLag": -1 if tiered_at is None else now_ms - tiered_at,
        "tierDuration": _known(table.last_duration_ms),
        "pendingTime": max(0, lag - table.freshness_ms),
        "failuresTotal": table.failures,
        "fileSize": _known(table.lake_bytes),
        "recordCount": _known(table.lake_rows),
        "fileCount": _known(table.lake_files),
        "deleteFileCount": _known(table.lake_delete_files),
        "snapshotCount": _known(table.lake_snapshots),
        "debtFiles": table.debt_files if table.work else -1,
        "freshness": table.freshness_ms,
        "lag": lag,
        "waitingRows": table.waiting_rows,
    }


def _known(value: int | None) -> float:
    return -1 if value is None else value
