# SPDX-License-Identifier: Apache-2.0
"""Cuts: made, brought to every side of their tables, kept from expiry, and dropped."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import replace

from lakeward.coordinator.operations import Operations
from lakeward.coordinator.state.board import Board
from lakeward.coordinator.state.record import LakeSide, TableRecord
from lakeward.errors import CutExists, CutNotFound, InvalidRequest, LakewardError, SnapshotGone, TableNotFound
from lakeward.model import (
    Bucket,
    Content,
    Cut,
    CutEnds,
    CutSide,
    CutTable,
    OffsetMap,
    SideId,
    SnapshotId,
    TablePath,
    check_cut,
    fault_point,
)
from lakeward.protocol.tables import CutStatus
from lakeward.spi import LakeReader, LakeSnapshot, SupportsSnapshotNames

log = logging.getLogger(__name__)


class Cuts:
    """Cuts, in memory and in the store. The hot store knows the open ones: rounds stop there until every side has a
    snapshot at exactly that place. Lakes are read without the lock."""

    def __init__(self, board: Board, operations: Operations) -> None:
        self._board, self._operations = board, operations
        self._cuts: dict[str, Cut] = {}
        self._making: set[str] = set()

    def load(self) -> None:
        """At start, after tables were loaded and before a round can be planned."""
        with self._board.change():
            self._cuts = {cut.name: cut for cut in self._board.store.cuts.load()}
            for cut in self._cuts.values():
                if _waits(cut):
                    self._board.hot.add_cut(cut.name, {t.table_id: t.ends for t in cut.tables})
                    self._ask(cut)

    # ---- for people ----
    def create(self, name: str, paths: Sequence[TablePath], schedule: str = "") -> CutStatus:
        """Freezes the tables together; sides reach it by and by. Raises `InvalidRequest`, `CutExists`, and words where
        a side could never get there."""
        with self._board.lock:
            records = self.check(name, paths)
            self._making.add(name)
        try:
            return self._make(name, records, schedule)
        finally:
            with self._board.lock:
                self._making.discard(name)

    def check(self, name: str, paths: Sequence[TablePath]) -> list[TableRecord]:
        """Its tables, if a cut of that name could be made now. Raises as `create`."""
        check_cut(name, paths)
        with self._board.lock:
            if name in self._cuts or name in self._making:
                raise CutExists(cut=name)
            return [self._find(name, path) for path in paths]

    def _find(self, name: str, path: TablePath) -> TableRecord:
        try:
            record = self._board.find_table(path)
        except TableNotFound as error:
            reason = f"{error}; a cut is of tables of one server, as one clock decides what was before what"
            raise InvalidRequest(what=f"cut {name}", reason=reason) from error
        sides = _state_sides(record)
        if not sides:
            raise InvalidRequest(what=f"cut {name}", reason=f"the lake is not enabled for {path}, so nothing keeps it")
        for side in sides:
            why = self._why_never(side)
            if why:
                raise InvalidRequest(what=f"cut {name}", reason=f"{side.label} {why}")
        return record

    def _why_never(self, side: LakeSide) -> str:
        if side.broken is not None or side.resync is not None:
            return "is to be resynced first; the cut can be made once its next round is through"
        if not side.info.is_pk:
            return ""
        late = [b for b, v in self._board.hot.bounds(side.info).items() if v.start > side.committed.get(b, 0)]
        words = "has not been tiered yet and its log no longer begins at the first row: its first round takes rows of"
        return f"{words} its own moment; run `lakeward tier-now {side.argument}`, then make the cut" if late else ""

    def _make(self, name: str, records: Sequence[TableRecord], schedule: str) -> CutStatus:
        board, created_at_ms = self._board, self._board.clock.now_ms()
        ends = board.hot.freeze_cut(name, [record.info for record in records])
        try:
            with board.change():
                tables = tuple(
                    CutTable(
                        path=record.info.path,
                        table_id=record.table_id,
                        ends=ends[record.table_id],
                        sides=tuple(CutSide(name=side.name) for side in _state_sides(record)),
                    )
                    for record in records
                )
                cut = Cut(name=name, created_at_ms=created_at_ms, tables=tables, schedule=schedule)
                self._save(cut)
                self._ask(cut)
        except BaseException:
            board.hot.forget_cut(name)
            raise
        return self._status(cut)

    def listed(self) -> list[CutStatus]:
        """Oldest first."""
        with self._board.lock:
            return [self._status(cut) for cut in sorted(self._cuts.values(), key=_age)]

    def of_schedule(self, schedule: str) -> list[Cut]:
        """Oldest first."""
        with self._board.lock:
            return sorted((cut for cut in self._cuts.values() if cut.schedule == schedule), key=_age)

    def load_cut(self, name: str) -> CutStatus:
        with self._board.lock:
            return self._status(self._named(name))

    def drop(self, name: str) -> None:
        """Its snapshots may expire from now on. Tags go first: where a lake does not answer nothing has changed, and
        the call can be repeated."""
        with self._board.lock:
            cut = self._named(name)
        for table, cut_side in _sides(cut):
            side = self._board.side(SideId(table.table_id, cut_side.name))
            if side is not None and cut_side.snapshot_id is not None:
                self._untag(cut, side)
        with self._board.lock, self._board.store.transaction():
            self._board.store.cuts.forget(name)
            self._cuts.pop(name, None)
        self._board.hot.forget_cut(name)

    def _untag(self, cut: Cut, side: LakeSide) -> None:
        storage = self._board.lake_of(side)
        if storage is None:
            return
        upkeep = storage.open_maintenance(side.info)
        if isinstance(upkeep, SupportsSnapshotNames):
            upkeep.untag(cut.tag)

    def _is_there(self, cut: Cut) -> bool:
        """Or one of its name that was made since, whose tag it is then."""
        with self._board.lock:
            return cut.name in self._cuts

    def _named(self, name: str) -> Cut:
        if name not in self._cuts:
            raise CutNotFound(cut=name[:80])
        return self._cuts[name]

    # ---- upkeep ----
    def settle(self) -> None:
        """Looks whether sides have reached the open cuts, and pins their snapshots. A lake that does not answer is
        asked again the next time."""
        with self._board.lock:
            waiting = [cut for cut in self._cuts.values() if _waits(cut)]
        for cut in waiting:
            for table, cut_side in _sides(cut):
                if not cut_side.is_settled:
                    self._settle(cut, table, cut_side)

    def _settle(self, cut: Cut, table: CutTable, cut_side: CutSide) -> None:
        with self._board.lock:
            record = self._board.tables.get(table.table_id)
            side = self._board.side(SideId(table.table_id, cut_side.name))
        if record is None or side is None:
            lost = "the table was dropped" if record is None else f"lake {cut_side.name} was taken from the table"
            self._note(cut, table, replace(cut_side, lost=f"{lost} before it had all rows of the cut"))
            return
        try:
            settled = self._look(cut, table.ends, side, cut_side)
            if settled.snapshot_id is not None and not self._is_there(cut):
                self._untag(cut, side)
        except LakewardError as error:
            log.warning("cut %s, %s: %s", cut.name, side.label, error)
            return
        if settled.is_settled:
            self._note(cut, table, settled)

    def _look(self, cut: Cut, ends: CutEnds, side: LakeSide, cut_side: CutSide) -> CutSide:
        storage = self._board.lake_of(side)
        if storage is None:  # switched off; it may come back
            return cut_side
        if not ends.is_reached(side.committed):
            return replace(cut_side, lost=self._why_lost(ends, side))
        snapshot_id, is_empty = _find_snapshot(storage.open_reader(side.info), cut, ends)
        if snapshot_id is not None:
            upkeep = storage.open_maintenance(side.info)
            if isinstance(upkeep, SupportsSnapshotNames):
                upkeep.tag(cut.tag, snapshot_id)
            fault_point("cut.tagged", cut=cut.name)
        lost = "" if snapshot_id is not None or is_empty else "its lake has no snapshot at exactly this moment"
        return replace(cut_side, snapshot_id=snapshot_id, is_empty=is_empty, lost=lost)

    def _why_lost(self, ends: CutEnds, side: LakeSide) -> str:
        """Empty: it is on its way."""
        if ends.is_passed(side.committed):
            return "rows that came after the cut reached its lake before all of it had: a resync, or an older job"
        there = self._board.hot.bounds(side.info)
        gone = [b for b, end in ends.ends.items() if b not in there and side.committed.get(b, 0) < end]
        return f"partition {gone[0].partition} was dropped before its rows reached the lake" if gone else ""

    def _note(self, cut: Cut, table: CutTable, settled: CutSide) -> None:
        """Writes the settled sides to disk; once no side is open, rounds need not stop there."""
        with self._board.lock:
            now = self._cuts.get(cut.name)
            if now is None or now.created_at_ms != cut.created_at_ms:
                return
            sides = {(t.table_id, s.name): s for t, s in _sides(now)} | {(table.table_id, settled.name): settled}
            tables = [replace(t, sides=tuple(sides[t.table_id, s.name] for s in t.sides)) for t in now.tables]
            after = replace(now, tables=tuple(tables))
            self._save(after)
        if not _waits(after):
            self._board.hot.forget_cut(cut.name)

    def keeps(self, side: SideId, snapshot_id: SnapshotId) -> bool:
        """Asked by expiry. Of a side that is on its way to a cut nothing goes: the snapshot may be there already."""
        with self._board.lock:
            mine = [s for cut in self._cuts.values() for t, s in _sides(cut) if (t.table_id, s.name) == side]
        return any(not s.is_settled or s.snapshot_id == snapshot_id for s in mine)

    def _save(self, cut: Cut) -> None:
        with self._board.store.transaction():
            self._board.store.cuts.save(cut)
        self._cuts[cut.name] = cut

    def _ask(self, cut: Cut) -> None:
        """Under `change()`: its sides start as soon as there is a slot."""
        for table, cut_side in _sides(cut):
            side = self._board.side(SideId(table.table_id, cut_side.name))
            if side is not None and not cut_side.is_settled:
                self._operations.ask(side, table.ends.ends)

    def _status(self, cut: Cut) -> CutStatus:
        notes = [f"{t.path} ({s.name}): {self._words(t, s)}" for t, s in _sides(cut) if s.snapshot_id is None]
        return CutStatus(cut=cut, state=cut.state, notes=tuple(notes))

    def _words(self, table: CutTable, cut_side: CutSide) -> str:
        side = self._board.side(SideId(table.table_id, cut_side.name))
        if cut_side.is_settled or side is None:
            return cut_side.lost or "it had no rows"
        short: list[tuple[Bucket, int]] = [
            (b, end) for b, end in table.ends.ends.items() if side.committed.get(b, 0) < end
        ]
        if not short:
            return "its lake is asked for the snapshot"
        bucket, end = short[0]
        why = f", {side.reason}" if side.reason else ""
        return f"bucket {bucket} is at {side.committed.get(bucket, 0)} of {end} (the side is {side.state}{why})"


def _age(cut: Cut) -> tuple[int, str]:
    return cut.created_at_ms, cut.name


def _sides(cut: Cut) -> Iterator[tuple[CutTable, CutSide]]:
    return ((table, side) for table in cut.tables for side in table.sides)


def _waits(cut: Cut) -> bool:
    """For a side; one whose table is lost may still wait for others."""
    return any(not side.is_settled for _, side in _sides(cut))


def _state_sides(record: TableRecord) -> list[LakeSide]:
    return [side for side in record.enabled if side.name.content is Content.STATE]


def _find_snapshot(reader: LakeReader, cut: Cut, ends: CutEnds) -> tuple[SnapshotId | None, bool]:
    """(a snapshot at exactly the cut, whether the table had no row then). Of several, as others commit too, the newest
    from before the cut was made, or else the oldest."""
    exact, is_first = list[LakeSnapshot](), True
    for listed in reversed(reader.snapshots()):
        offsets = _offsets(reader, listed)
        if ends.is_at(offsets):
            exact.append(listed)
        elif exact or not ends.is_reached(offsets):
            is_first = False
            break
    before = [s for s in exact if s.committed_at_ms <= cut.created_at_ms]
    chosen = before[0] if before else exact[-1] if exact else None
    is_empty = chosen is None and is_first and not any([*ends.ends.values(), *ends.gone.values()])
    return None if chosen is None else chosen.snapshot_id, is_empty


def _offsets(reader: LakeReader, listed: LakeSnapshot) -> OffsetMap:
    try:
        loaded = reader.load_snapshot(listed.snapshot_id)
    except SnapshotGone:
        return OffsetMap()
    return (loaded.offsets if loaded is not None else None) or OffsetMap()
