# SPDX-License-Identifier: Apache-2.0
"""Records what reached the lake: commit reports of jobs, and what the coordinator reads in the lake itself."""

from __future__ import annotations

from dataclasses import replace

from lakeward.coordinator.state.board import Board
from lakeward.coordinator.state.ledger import LedgerChange, LedgerState, plan_commit, plan_dropped
from lakeward.coordinator.state.record import LakeSide
from lakeward.coordinator.state.work import Work
from lakeward.errors import LakeBehind, TableNotFound
from lakeward.model import (
    SKIPPED,
    TIER,
    Bucket,
    Epoch,
    InstanceId,
    IntentState,
    JobName,
    LakeBase,
    LedgerEntry,
    LedgerKind,
    OffsetMap,
    OffsetRange,
    RoundId,
    SideId,
    SideName,
    TablePath,
    named_sides,
)
from lakeward.protocol.heartbeat import CommitAnswer, CommitReport, Committed
from lakeward.protocol.operate import ResyncChoice

COORDINATOR = JobName("coordinator")


class Commits:
    def __init__(self, board: Board) -> None:
        self._board = board

    def committed(self, path: TablePath, name: SideName | None = None) -> Committed:
        with self._board.lock:
            side = self._board.find(path, name)
            return Committed(
                table_id=side.table_id,
                side=side.name,
                offsets=side.committed,
                token=side.token,
                generation=side.generation,
                resync=side.resync is not None,
                to_compare=None if side.to_compare is None else tuple(sorted(side.to_compare)),
            )

    def knows_round(self, side: SideId, round_id: RoundId) -> bool:
        with self._board.lock:
            return self._board.store.ledger.is_known_round(side, round_id)

    def commit(self, report: CommitReport) -> CommitAnswer:
        """Idempotent per round. A report that no log can explain is held against the lake first."""
        self._check_against_lake(report)
        with self._board.change():
            side = self._side(report)
            if report.kind is LedgerKind.DROPPED:
                return self._drop(side, report)
            if self._board.store.ledger.is_known_round(side.id, report.round_id) and report.kind is LedgerKind.ROUND:
                return CommitAnswer(first=False, offsets=side.committed)
            return CommitAnswer(first=self._apply(side, report), offsets=side.committed)

    def _side(self, report: CommitReport) -> LakeSide:
        side = self._board.side(SideId(report.table_id, report.side))
        if side is None:
            raise TableNotFound(table=f"with id {report.table_id}")
        return side

    def _apply(self, side: LakeSide, report: CommitReport) -> bool:
        """True if this told us something new. Ledger, offsets and side go to disk together, then memory follows."""
        board, now_ms = self._board, self._board.clock.now_ms()
        change = self._plan(side, report, now_ms)
        fresh = bool(change.entries) or not board.store.ledger.is_known_round(side.id, report.round_id)
        new_generation = change.generation > side.generation
        after = side.copy()
        self._take(after, report, change, fresh=fresh)
        with board.store.transaction():
            board.store.ledger.append(change.entries)
            board.store.ledger.add_known_round(side.id, report.round_id, now_ms)
            board.store.save_offsets(side.id, change.offsets)
            board.store.intents.set_state(report.round_id, IntentState.COMMITTED)
            board.save(after)
        self._take(side, report, change, fresh=fresh)
        board.look_after_commit(side) if report.work == TIER else board.look(side)
        if new_generation and side.resync is None:
            board.hot.lift_stops(side.info)
        return fresh

    def _drop(self, side: LakeSide, report: CommitReport) -> CommitAnswer:
        """Only the ledger hears of it: the lake is about to let these rows go."""
        entries = plan_dropped(self._ledger_state(side), report, self._board.clock.now_ms())
        with self._board.store.transaction():
            self._board.store.ledger.append(entries)
        return CommitAnswer(first=bool(entries), offsets=side.committed)

    def _plan(self, side: LakeSide, report: CommitReport, now_ms: int) -> LedgerChange:
        if report.work != TIER:
            return LedgerChange(entries=(), offsets=side.committed, generation=side.generation)
        return plan_commit(self._ledger_state(side), report, now_ms)

    def _take(self, side: LakeSide, report: CommitReport, change: LedgerChange, *, fresh: bool) -> None:
        """Applies the report; first to a copy, for the disk."""
        if change.generation > side.generation:
            _take_resync(side, report, change.offsets)
            side.broken, side.confirmed, side.confirmed_at = None, OffsetMap(), None
            side.missing = 0
        side.committed, side.generation = change.offsets, change.generation
        side.missing += sum(
            len(e.range) for e in change.entries if e.kind is LedgerKind.GAP and not side.lake_table.is_pk
        )
        if report.work == TIER:
            side.token = report.round_id if fresh else side.token
            if side.tier.lease is None:
                side.tier.epoch = Epoch(max(side.tier.epoch, report.epoch))
        self._take_figures(side, report)

    def _take_figures(self, side: LakeSide, report: CommitReport) -> None:
        told = {n: getattr(report, f"lake_{n}") for n in vars(side.lake)}
        side.lake = replace(side.lake, **{n: v for n, v in told.items() if v is not None})

    def _ledger_state(self, side: LakeSide) -> LedgerState:
        bounds, holes = self._board.hot.bounds(side.info), dict[Bucket, list[OffsetRange]]()
        has_had_others = not side.lake_table.is_pk and bool(
            named_sides(side.info.descriptor.properties) or side.info.is_pk
        )
        for bucket, hole in self._board.hot.gaps(side.info) if has_had_others else ():
            holes.setdefault(bucket, []).append(hole)
        return LedgerState(
            name=side.label,
            offsets=side.committed,
            generation=side.generation,
            resyncing=side.resync is not None,
            resync_offsets=side.resync_offsets,
            log_starts={b: v.start for b, v in bounds.items()},
            holes=holes,
        )

    def _check_against_lake(self, report: CommitReport) -> None:
        """Checks a report: from a job without the lease only the lake's own state is accepted; from a job with the
        lease, no offset above the log's end and no new generation. The recorded offsets let the hot store delete rows.
        """
        with self._board.lock:
            side = self._side(report)
            storage = self._board.lake_of(side)
            ends = {b: v.end for b, v in self._board.hot.bounds(side.info).items()}
            odd = [b for b, offset in report.offsets.items() if offset > max(ends.get(b, 0), side.committed.get(b, 0))]
            is_held = any(_is_held(work, report) for work in side.works.values())
            if storage is None or (is_held and not odd and report.generation <= side.generation):
                return
        base = storage.open_reader(side.lake_table).load_base()
        for bucket in (odd if is_held else ()) or report.offsets:
            if base.offsets.get(bucket, 0) < report.offsets[bucket] or base.generation < report.generation:
                raise LakeBehind(
                    table=side.label,
                    bucket=str(bucket),
                    lake_offset=base.offsets.get(bucket, 0),
                    committed=report.offsets[bucket],
                )

    # ---- what the coordinator saw itself ----
    def adopt_base(self, side: LakeSide, base: LakeBase) -> bool:
        """Under `change()`: takes over what the lake holds beyond the ledger; true if that was anything."""
        if base.epoch > side.tier.epoch:
            side.tier.epoch = base.epoch
            self._board.touch(side)
        if base.token is None:
            return False
        moved = base.token != side.token and not self._board.store.ledger.is_known_round(side.id, RoundId(base.token))
        ahead = base.generation > side.generation or any(o > side.committed.get(b, -1) for b, o in base.offsets.items())
        if not ahead and not moved:
            return False
        report = CommitReport(
            table_id=side.table_id,
            side=side.name,
            round_id=RoundId(base.token),
            snapshot_id=base.head,
            epoch=base.epoch,
            job=COORDINATOR,
            instance=InstanceId(""),
            offsets=base.offsets,
            kind=LedgerKind.ADOPTED,
            generation=max(base.generation, side.generation),
            resyncing=base.is_resyncing,
        )
        if base.generation > side.generation + 1:
            side.generation = base.generation - 1
        self._apply(side, report)
        return True

    def record_gaps(self, side: LakeSide, gaps: dict[Bucket, OffsetRange], why: str) -> None:
        """Under `change()`: offsets that no row has: the log went on above them."""
        now_ms = self._board.clock.now_ms()
        entries = [
            LedgerEntry(
                table_id=side.table_id,
                side=side.name,
                bucket=bucket,
                range=gap,
                round_id=RoundId(f"{SKIPPED}{why}-{now_ms}"),
                snapshot_id=None,
                epoch=side.tier.epoch,
                job=COORDINATOR,
                kind=LedgerKind.GAP,
                rows=0,
                generation=side.generation,
                committed_at_ms=now_ms,
            )
            for bucket, gap in gaps.items()
            if len(gap)
        ]
        with self._board.store.transaction():
            self._board.store.ledger.append(entries)


def _take_resync(side: LakeSide, report: CommitReport, offsets: OffsetMap) -> None:
    """A resync is done when each of its buckets was compared; what is left goes on in the next generation."""
    is_left = report.resyncing
    if is_left is None:  # a job from before 0.2: of a round that was cut short it does not say what it compared
        finished = report.finished
        is_left = side.resync is not None and (finished is None or finished.force_finished)
    if not is_left:
        side.resync, side.to_compare = None, None
        return
    side.resync, side.resync_offsets = side.resync or ResyncChoice.RESYNC, offsets
    if report.to_compare:
        side.to_compare = frozenset(report.to_compare)


def _is_held(work: Work, report: CommitReport) -> bool:
    lease = work.lease
    if lease is None or work.epoch != report.epoch:
        return False
    return (lease.job, lease.instance) == (report.job, report.instance)
