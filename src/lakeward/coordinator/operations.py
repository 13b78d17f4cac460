# SPDX-License-Identifier: Apache-2.0
"""What operators do to one table: pause, resume, ask for its data now, repair."""

from __future__ import annotations

from dataclasses import dataclass

from lakeward.coordinator.state.board import Board
from lakeward.coordinator.state.record import TableRecord
from lakeward.errors import InvalidRequest, TableBusy, TableNotFound, TimedOut
from lakeward.model.ids import TableId
from lakeward.model.offsets import OffsetMap
from lakeward.model.state import TableState
from lakeward.model.table import TablePath
from lakeward.protocol.operate import RepairChoice, TierNowAnswer

_S = TableState
_STANDS = frozenset({_S.PAUSED, _S.QUARANTINED, _S.DISABLED})

POLL_S = 0.05
"""How often a waiting tier-now looks again when nothing wakes it."""


@dataclass(frozen=True, kw_only=True)
class Asked:
    """A tier-now call under way: it is done when the lake has these offsets."""

    table_id: TableId
    path: TablePath
    offsets: OffsetMap
    since: float
    epoch: int


class Operations:
    def __init__(self, board: Board) -> None:
        self._board = board

    def pause(self, path: TablePath, reason: str = "paused by call") -> None:
        """A round in work is told to stop at its next beat and may not commit any more. Safe to repeat."""
        with self._board.change():
            record = self._board.find(path)
            if record.state is not _S.PAUSED:
                self._board.enter(record, _S.PAUSED, reason)

    def resume(self, path: TablePath) -> None:
        """From Paused or Quarantined; the count of failures starts anew. Safe to repeat."""
        with self._board.change():
            record = self._board.find(path)
            if record.broken is not None:
                raise TableBusy(table=record.name, reason=record.broken)
            record.failures_in_a_row, record.error = 0, None
            if record.state is _S.FAILED:
                self._board.retry_after(record, 0)
            elif record.state in (_S.PAUSED, _S.QUARANTINED):
                self._board.enter(record, _S.SCHEDULED)
            elif record.state is _S.DISABLED:
                raise TableBusy(
                    table=record.name, reason="the lake is switched off for it; set table.datalake.enabled to true"
                )
            self._board.touch(record)

    # ---- tier now ----
    def ask_now(self, path: TablePath) -> Asked:
        """Notes what must reach the lake. Raises `TableBusy` when no round can run."""
        with self._board.lock:
            record = self._board.find(path)
        offsets = OffsetMap({b: v.end for b, v in self._board.hot.bounds(record.info, sync=True).items()})
        with self._board.change():
            if record.state in _STANDS:
                raise TableBusy(table=record.name, reason=f"it is {record.state}: {record.reason or 'by call'}")
            asked = Asked(
                table_id=record.table_id,
                path=path,
                offsets=offsets,
                since=self._board.clock.monotonic(),
                epoch=record.epoch,
            )
            if not record.covers(offsets):
                record.asked = offsets if record.asked is None else record.asked.raised(offsets)
                self._board.look(record)
                if record.state is _S.FAILED:
                    self._board.retry_after(record, 0)
                    self._board.touch(record)
            return asked

    def check_asked(self, asked: Asked) -> TierNowAnswer | None:
        """The answer once the lake has it; None before. Raises `TableBusy` or `TableNotFound` when it never will."""
        with self._board.lock:
            record = self._board.tables.get(asked.table_id)
            if record is None:
                raise TableNotFound(table=str(asked.path))
            if record.covers(asked.offsets):
                took = int(1_000 * (self._board.clock.monotonic() - asked.since))
                return TierNowAnswer(
                    path=asked.path, committed=record.committed, rounds=record.epoch - asked.epoch, took_ms=took
                )
            if record.state in _STANDS:
                raise TableBusy(table=record.name, reason=f"it is {record.state}: {record.reason or 'by call'}")
            return None

    def tier_now(self, path: TablePath, limit_s: float | None = None) -> TierNowAnswer:
        """Blocks until everything acknowledged at the call is in the lake. Raises `TimedOut` at the limit."""
        limit = self.limit(limit_s)
        asked = self.ask_now(path)
        with self._board.changed:
            while True:
                answer = self.check_asked(asked)
                if answer is not None:
                    return answer
                self.check_limit(asked, limit)
                self._board.changed.wait(POLL_S)

    def check_limit(self, asked: Asked, limit_s: float) -> None:
        with self._board.lock:
            if self._board.clock.monotonic() - asked.since < limit_s:
                return
            record = self._board.tables.get(asked.table_id)
            words = "dropped" if record is None else self._words(record)
        raise TimedOut(what=f"tiering {asked.path} now", limit_s=limit_s, state=words)

    def limit(self, limit_s: float | None) -> float:
        longest = self._board.options.tier_now_limit_s
        return longest if limit_s is None else min(limit_s, longest)

    def _words(self, record: TableRecord) -> str:
        job = f" by job {record.lease.job}" if record.lease is not None else ""
        why = f" ({record.reason})" if record.reason else ""
        return f"the table is {record.state}{job}{why}, {record.waiting.rows} rows wait"

    # ---- repair ----
    def repair(self, path: TablePath, choice: RepairChoice) -> None:
        """The next round makes lake and log meet again and begins a new generation of the ledger. The lake is read
        first, outside the lock: what it holds now is where the new generation begins. Safe to repeat until that round
        has committed."""
        with self._board.lock:
            record = self._board.find(path)
            storage = self._board.lake_of(record)
        if storage is None:
            raise InvalidRequest(what=f"resync of {path}", reason="the lake is not enabled for this table")
        if choice is RepairChoice.GAP and record.info.is_pk:
            raise InvalidRequest(what=f"resync of {path}", reason="a PK table cannot have a gap; choose resync")
        base = storage.open_reader(record.info).load_base_as_is()
        with self._board.change():
            if self._board.tables.get(record.table_id) is not record:
                raise TableNotFound(table=str(path))
            record.repair, record.repair_offsets, record.broken = choice, base.offsets, None
            record.lake_seen, record.lake_error = True, None
            record.generation = max(record.generation, base.generation)
            record.failures_in_a_row, record.error = 0, None
            if record.state in (_S.PAUSED, _S.QUARANTINED):
                self._board.enter(record, _S.SCHEDULED)
            elif record.state is _S.FAILED:
                self._board.retry_after(record, 0)
            elif record.state is _S.TIERING:
                # The round in work was planned without the repair.
                self._board.enter(record, _S.PENDING, "a repair was asked for")
            self._board.touch(record)
