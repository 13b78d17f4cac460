# SPDX-License-Identifier: Apache-2.0
"""Records what reached the lake: commit reports of jobs, and what the coordinator reads in the lake itself."""

from __future__ import annotations

from copy import copy

from lakeward.coordinator.state.board import Board
from lakeward.coordinator.state.ledger import LedgerChange, LedgerState, plan_commit
from lakeward.coordinator.state.record import TableRecord
from lakeward.errors import LakeBehind, TableNotFound
from lakeward.model.bucket import Bucket
from lakeward.model.ids import Epoch, InstanceId, JobName, RoundId, TableId
from lakeward.model.intent import IntentState
from lakeward.model.ledger import LedgerEntry, LedgerKind
from lakeward.model.offsets import OffsetMap, OffsetRange
from lakeward.model.round import LakeBase
from lakeward.model.table import TablePath
from lakeward.protocol.commit import CommitAnswer, CommitReport, Committed

COORDINATOR = JobName("coordinator")


class Commits:
    def __init__(self, board: Board) -> None:
        self._board = board

    def committed(self, path: TablePath) -> Committed:
        with self._board.lock:
            record = self._board.find(path)
            return Committed(
                table_id=record.table_id,
                offsets=record.committed,
                round_id=record.last_round,
                generation=record.generation,
                epoch=record.epoch,
                resync=record.repair is not None,
            )

    def knows_round(self, table_id: TableId, round_id: RoundId) -> bool:
        with self._board.lock:
            return self._board.store.is_known_round(table_id, round_id)

    def commit(self, report: CommitReport) -> CommitAnswer:
        """Idempotent per round. A report that no log can explain is held against the lake first."""
        self._check_against_lake(report)
        with self._board.change():
            record = self._record(report.table_id)
            if self._board.store.is_known_round(report.table_id, report.round_id) and report.kind is LedgerKind.ROUND:
                return CommitAnswer(first=False, offsets=record.committed)
            return CommitAnswer(first=self._apply(record, report), offsets=record.committed)

    def _record(self, table_id: TableId) -> TableRecord:
        record = self._board.tables.get(table_id)
        if record is None:
            raise TableNotFound(table=f"with id {table_id}")
        return record

    def _apply(self, record: TableRecord, report: CommitReport) -> bool:
        """True if this told us something new. Ledger, offsets and record go to disk together, then memory follows."""
        board, now_ms = self._board, self._board.clock.now_ms()
        change = plan_commit(self._ledger_state(record), report, now_ms)
        fresh = bool(change.entries) or not board.store.is_known_round(report.table_id, report.round_id)
        after = self._after(record, report, change, fresh=fresh)
        with board.store.transaction():
            board.store.append_ledger(change.entries)
            board.store.add_known_round(report.table_id, report.round_id, now_ms)
            board.store.save_offsets(record.table_id, change.offsets)
            board.store.set_intent_state(report.round_id, IntentState.COMMITTED)
            board.save(after)
        repaired = after.generation > record.generation
        vars(record).update(vars(after))
        board.look(record)
        if repaired:
            board.hot.lift_stops(record.info)
        return fresh

    def _after(self, record: TableRecord, report: CommitReport, change: LedgerChange, *, fresh: bool) -> TableRecord:
        """The record as it is once the report is on disk."""
        after = copy(record)
        if change.generation > record.generation:
            after.repair, after.broken, after.confirmed, after.confirmed_at = None, None, OffsetMap(), None
        after.committed, after.generation = change.offsets, change.generation
        after.last_round = report.round_id if fresh else record.last_round
        after.epoch = Epoch(max(record.epoch, report.epoch)) if record.lease is None else record.epoch
        after.lake = copy(record.lake)
        self._take_figures(after, report)
        return after

    def _take_figures(self, record: TableRecord, report: CommitReport) -> None:
        for name in ("rows", "bytes", "files", "delete_files", "snapshots"):
            value = getattr(report, f"lake_{name}")
            if value is not None:
                setattr(record.lake, name, value)

    def _ledger_state(self, record: TableRecord) -> LedgerState:
        bounds = self._board.hot.bounds(record.info)
        return LedgerState(
            name=record.name,
            offsets=record.committed,
            generation=record.generation,
            repairing=record.repair is not None,
            repair_offsets=record.repair_offsets,
            log_starts={b: v.start for b, v in bounds.items()},
        )

    def _check_against_lake(self, report: CommitReport) -> None:
        """Offsets above the log's end or a new generation are believed only when the lake itself says so: a job may be
        wrong, and what is recorded here lets the hot store forget rows."""
        with self._board.lock:
            record = self._record(report.table_id)
            storage = self._board.lake_of(record)
            ends = {b: v.end for b, v in self._board.hot.bounds(record.info).items()}
            odd = [
                b for b, offset in report.offsets.items() if offset > max(ends.get(b, 0), record.committed.get(b, 0))
            ]
            if storage is None or not (odd or report.generation > record.generation):
                return
        base = storage.open_reader(record.info).load_base()
        for bucket in odd or report.offsets:
            if base.offsets.get(bucket, 0) < report.offsets[bucket] or base.generation < report.generation:
                raise LakeBehind(
                    table=record.name,
                    bucket=str(bucket),
                    lake_offset=base.offsets.get(bucket, 0),
                    committed=report.offsets[bucket],
                )

    # ---- what the coordinator saw itself ----
    def adopt_base(self, record: TableRecord, base: LakeBase) -> bool:
        """Under `change()`: takes over what the lake holds beyond the ledger; true if that was anything."""
        if base.epoch > record.epoch:
            record.epoch = base.epoch
            self._board.touch(record)
        if base.token is None:
            return False
        moved = base.token != record.last_round and not self._board.store.is_known_round(
            record.table_id, RoundId(base.token)
        )
        ahead = base.generation > record.generation or any(
            o > record.committed.get(b, -1) for b, o in base.offsets.items()
        )
        if not ahead and not moved:
            return False
        report = CommitReport(
            table_id=record.table_id,
            round_id=RoundId(base.token),
            snapshot_id=base.head,
            epoch=base.epoch,
            job=COORDINATOR,
            instance=InstanceId(""),
            offsets=base.offsets,
            kind=LedgerKind.ADOPTED,
            generation=max(base.generation, record.generation),
        )
        if base.generation > record.generation + 1:
            record.generation = base.generation - 1
        self._apply(record, report)
        return True

    def record_gaps(self, record: TableRecord, gaps: dict[Bucket, OffsetRange], why: str) -> None:
        """Under `change()`: offsets that no row has: the log went on above them."""
        now_ms = self._board.clock.now_ms()
        entries = [
            LedgerEntry(
                table_id=record.table_id,
                bucket=bucket,
                range=gap,
                round_id=RoundId(f"gap-{why}-{now_ms}"),
                snapshot_id=None,
                epoch=record.epoch,
                job=COORDINATOR,
                kind=LedgerKind.GAP,
                rows=0,
                generation=record.generation,
                committed_at_ms=now_ms,
            )
            for bucket, gap in gaps.items()
            if len(gap)
        ]
        with self._board.store.transaction():
            self._board.store.append_ledger(entries)
