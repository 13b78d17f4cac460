# SPDX-License-Identifier: Apache-2.0
"""The effect of a commit report on the ledger: a pure decision, made before anything is written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from lakeward.errors import InvalidRequest, LedgerGap
from lakeward.model import Bucket, JobName, LedgerEntry, LedgerKind, OffsetMap, OffsetRange, RoundId, TableId
from lakeward.protocol.heartbeat import CommitReport, CommittedRange


@dataclass(frozen=True, kw_only=True)
class LedgerState:
    """Where a side's ledger stands. `log_starts`: where each bucket's hot log begins now."""

    name: str
    offsets: OffsetMap
    generation: int = 0
    resyncing: bool = False
    resync_offsets: Mapping[Bucket, int] = field(default_factory=dict)
    log_starts: Mapping[Bucket, int] | None = None
    holes: Mapping[Bucket, Sequence[OffsetRange]] = field(default_factory=dict)
    """Offsets that the log skipped: another side had them when the data folder was restored."""


@dataclass(frozen=True, kw_only=True)
class LedgerChange:
    """Entries to append and the side's offsets and generation after them."""

    entries: tuple[LedgerEntry, ...]
    offsets: OffsetMap
    generation: int


def plan_commit(state: LedgerState, report: CommitReport, now_ms: int) -> LedgerChange:
    """Raises `LedgerGap`, or `InvalidRequest` for a report that contradicts itself. Never lowers an offset within a
    generation.
    """
    if report.generation > state.generation + 1 or (
        report.generation > state.generation and not _may_begin(state, report)
    ):
        raise InvalidRequest(
            what=f"commit of {state.name}",
            reason=f"generation {report.generation} was not asked for, {state.generation} is current",
        )
    if report.generation > state.generation:
        return _begin_generation(state, report, now_ms)
    if report.kind is LedgerKind.ROUND:
        return _add_round(state, report, now_ms)
    return adopt(state, report.offsets, report, now_ms)


def plan_dropped(state: LedgerState, report: CommitReport, now_ms: int) -> list[LedgerEntry]:
    """The ranges that a changelog's retention removed, as far as a round reported them."""
    dropped = [
        (r.bucket, OffsetRange(r.range.start, min(r.range.stop, state.offsets.get(r.bucket, 0)))) for r in report.ranges
    ]
    return [_entry(report, b, r, LedgerKind.DROPPED, now_ms, rows=0) for b, r in dropped if len(r)]


def _may_begin(state: LedgerState, report: CommitReport) -> bool:
    """A new generation comes from a resync that was asked for, or from a lake that has it already."""
    return state.resyncing or report.kind is LedgerKind.ADOPTED


def _begin_generation(state: LedgerState, report: CommitReport, now_ms: int) -> LedgerChange:
    """The offsets are the report's own, whatever they were before: this is the one place where they may be lower."""
    entries: list[LedgerEntry] = []
    ranges = {r.bucket: r for r in report.ranges}
    for bucket, stop in report.offsets.items():
        had = min(state.resync_offsets.get(bucket, 0), stop)
        added = ranges.get(bucket)
        start = stop if added is None else added.range.start
        if added is None and report.kind is not LedgerKind.ROUND:
            had = stop
        if had and start >= had:
            entries.append(_entry(report, bucket, OffsetRange(0, had), LedgerKind.ADOPTED, now_ms))
        if start > had:
            entries.append(_entry(report, bucket, OffsetRange(had, start), LedgerKind.GAP, now_ms, rows=0))
        if added is not None:
            entries.append(_entry(report, bucket, added.range, LedgerKind.ROUND, now_ms, rows=added.rows))
    return LedgerChange(entries=tuple(entries), offsets=report.offsets, generation=report.generation)


def _add_round(state: LedgerState, report: CommitReport, now_ms: int) -> LedgerChange:
    if report.generation < state.generation:
        raise InvalidRequest(
            what=f"commit of {state.name}",
            reason=f"generation {report.generation} is over, {state.generation} is current",
        )
    if report.ranges and all(r.range.stop <= state.offsets.get(r.bucket, -1) for r in report.ranges):
        # A late report of a round that an adoption has covered already.
        return LedgerChange(entries=(), offsets=state.offsets, generation=state.generation)
    entries: list[LedgerEntry] = []
    offsets = dict(state.offsets)
    for added in sorted(report.ranges, key=lambda r: (r.bucket, r.range)):
        entries += _gap_before(state, report, added, offsets, now_ms)
        entries += _around_holes(state, report, added, now_ms)
        offsets[added.bucket] = added.range.stop
    touched = {r.bucket for r in report.ranges}
    for bucket, stop in report.offsets.items():
        if bucket in touched and stop != offsets[bucket]:
            reason = f"bucket {bucket}: ranges end at {offsets[bucket]}, offsets say {stop}"
            raise InvalidRequest(what=f"commit of {state.name}", reason=reason)
        if bucket not in touched and stop > offsets.get(bucket, -1):
            # The snapshot's map names a round that was never reported to us.
            entries.append(
                _entry(report, bucket, OffsetRange(offsets.get(bucket, 0), stop), LedgerKind.ADOPTED, now_ms)
            )
            offsets[bucket] = stop
    return LedgerChange(entries=tuple(entries), offsets=OffsetMap(offsets), generation=state.generation)


def _around_holes(state: LedgerState, report: CommitReport, added: CommittedRange, now_ms: int) -> list[LedgerEntry]:
    """The round's entry; where its range goes across offsets that the log skipped, these are gaps and it is several."""
    start, stop = added.range.start, added.range.stop
    entries: list[LedgerEntry] = []
    for hole in sorted(state.holes.get(added.bucket, ())):
        first, last = max(hole.start, start), min(hole.stop, stop)
        if first < last:
            if start < first:
                entries.append(_entry(report, added.bucket, OffsetRange(start, first), LedgerKind.ROUND, now_ms))
            entries.append(_entry(report, added.bucket, OffsetRange(first, last), LedgerKind.GAP, now_ms, rows=0))
            start = last
    if start < stop:
        rows = None if entries else added.rows
        entries.append(_entry(report, added.bucket, OffsetRange(start, stop), LedgerKind.ROUND, now_ms, rows=rows))
    return entries


def _gap_before(
    state: LedgerState, report: CommitReport, added: CommittedRange, offsets: Mapping[Bucket, int], now_ms: int
) -> list[LedgerEntry]:
    """Nothing where the range begins at the ledger's end. A bucket that was never tiered may begin where its log
    begins: what lies before was gone before the lake was switched on, and is recorded as a gap."""
    end = offsets.get(added.bucket)
    if added.range.start == (end or 0):
        return []
    log_start = (state.log_starts or {}).get(added.bucket, 0)
    if (end is None or state.resyncing) and (end or 0) < added.range.start <= log_start:
        return [_entry(report, added.bucket, OffsetRange(end or 0, added.range.start), LedgerKind.GAP, now_ms, rows=0)]
    raise LedgerGap(
        table=state.name, bucket=str(added.bucket), start=added.range.start, stop=added.range.stop, ledger_end=end or 0
    )


def adopt(state: LedgerState, offsets: OffsetMap, report: CommitReport, now_ms: int) -> LedgerChange:
    """Takes over what the lake has: one entry per bucket that moved, which may cover several rounds."""
    kind = LedgerKind.ADOPTED if report.kind is LedgerKind.ROUND else report.kind
    entries = [
        _entry(
            report,
            b,
            OffsetRange(state.offsets.get(b, 0), stop),
            kind,
            now_ms,
            rows=0 if kind is LedgerKind.GAP else None,
        )
        for b, stop in offsets.items()
        if stop > state.offsets.get(b, -1)
    ]
    return LedgerChange(entries=tuple(entries), offsets=state.offsets.raised(offsets), generation=state.generation)


def _entry(
    report: CommitReport, bucket: Bucket, covered: OffsetRange, kind: LedgerKind, now_ms: int, rows: int | None = None
) -> LedgerEntry:
    return LedgerEntry(
        table_id=TableId(report.table_id),
        side=report.side,
        bucket=bucket,
        range=covered,
        round_id=RoundId(report.round_id),
        snapshot_id=report.snapshot_id,
        epoch=report.epoch,
        job=JobName(report.job),
        kind=kind,
        rows=rows,
        generation=report.generation,
        committed_at_ms=now_ms,
    )
