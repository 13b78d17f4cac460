# SPDX-License-Identifier: Apache-2.0
"""Which tables there are: records made, changed and ended as tables are created, found, altered and dropped."""

from __future__ import annotations

from dataclasses import replace

from lakeward.coordinator.options import SideOptions, Sides, sides_of
from lakeward.coordinator.state.board import Board
from lakeward.coordinator.state.record import LakeSide, TableRecord
from lakeward.coordinator.state.statestore import StoredSide
from lakeward.coordinator.state.work import Work
from lakeward.model import OffsetMap, SideName, TableInfo, TablePath, TableState

_S = TableState


class Registry:
    def __init__(self, board: Board) -> None:
        self._board = board

    def load(self) -> None:
        """At start: the hot store says which tables there are, the stored state what was known of each side."""
        board = self._board
        tables, sides_by_properties = board.hot.load_tables(), dict[frozenset[tuple[str, str]], Sides]()
        with board.change():
            stored, offsets = board.store.load_sides(), board.store.load_offsets()
            for table in tables:
                properties = frozenset(table.descriptor.properties.items())
                if properties not in sides_by_properties:  # most tables have the same few
                    sides_by_properties[properties] = sides_of(table, board.options)
                record = _record(table, sides_by_properties[properties])
                board.add(record, is_stored=True)
                for side in record.sides.values():
                    self._restore(side, stored.pop(side.id, None), offsets.get(side.id, OffsetMap()))
            dropped_sides = [s for s in stored.values() if s.state != _S.DROPPED]
            with board.store.transaction():
                board.store.save_sides([_dropped(s) for s in dropped_sides], board.clock.now_ms())

    def _restore(self, side: LakeSide, stored: StoredSide | None, offsets: OffsetMap) -> None:
        side.committed = offsets
        if stored is not None:
            side.load_json(stored.body)
            if stored.state != _S.DROPPED:
                side.state = TableState(stored.state)
        if side.pending_since_ms is not None:
            side.pending_since = self._since(side.pending_since_ms)
        for work in side.works.values():
            self._wind_up(side, work)
        self._settle(side)

    def _wind_up(self, side: LakeSide, work: Work) -> None:
        """Monotonic time starts at zero with the process: leases get a full period of grace."""
        board = self._board
        if work.lease is not None:
            work.lease.until = board.clock.monotonic() + board.options.lease_s
            work.lease.granted_at = self._since(work.lease.granted_at_ms)
            board.lease(side, work, work.lease)
        if work.retry_at_ms is not None:
            limit_ms = int(1_000 * board.options.backoff_limit_s)
            board.retry_after(side, work, min(limit_ms, max(0, work.retry_at_ms - board.clock.now_ms())))

    def _since(self, at_ms: int) -> float:
        """In this process's monotonic time."""
        return self._board.clock.monotonic() - max(0, self._board.clock.now_ms() - at_ms) / 1_000

    def _settle(self, side: LakeSide) -> None:
        """Gives a side without a state its first one, and follows what the properties say of the lake."""
        if side.state is None:
            self._board.enter(side, _S.INITIALIZED if side.options.enabled else _S.DISABLED)
        if not side.options.enabled and side.state is not _S.DISABLED:
            self._board.enter(side, _S.DISABLED, "the lake is switched off for this table")
        elif side.options.enabled and side.state in (_S.NEW, _S.INITIALIZED, _S.DISABLED, _S.TIERED):
            self._board.enter(side, _S.SCHEDULED)

    def register(self, table: TableInfo, *, new: bool) -> TableRecord:
        """A table that was created now. `new`: its lake side is known to be empty, so nothing needs to be read first.

        One that was adopted has the id of the table that the lake belonged to. When that was dropped here, its ledger
        goes on: what it records is recorded once, and no epoch is handed out twice."""
        board = self._board
        record = _record(table, sides_of(table, board.options))
        with board.change():
            board.add(record)
            for side in record.sides.values():
                side.lake_seen = new
                self._begin(side, is_new=new)
        return record

    def _begin(self, side: LakeSide, *, is_new: bool) -> None:
        if not is_new:
            self._go_on(side)
        self._board.enter(side, _S.NEW if side.options.enabled else _S.DISABLED)
        self._settle(side)

    def _go_on(self, side: LakeSide) -> None:
        stored = self._board.store.load_sides(side.table_id).get(side.id)
        if stored is None:
            return
        before = LakeSide(side.table, side.options, side.name)
        before.load_json(stored.body)
        side.generation, side.token, side.missing = before.generation, before.token, before.missing
        for kind, work in before.works.items():
            side.works[kind] = Work(kind, epoch=work.epoch, estimate=work.estimate)
        side.committed = self._board.store.load_offsets().get(side.id, OffsetMap())

    def altered(self, table: TableInfo) -> None:
        """Lakes may have been added or taken away, or switched on or off; freshness, pool and priority count from now
        on. What was known of a side that is taken away stays stored, for when it is added again."""
        board = self._board
        with board.change():
            record = board.find_table(table.path)
            expected_sides = sides_of(table, board.options)
            record.info = table
            for side in [s for s in record.sides.values() if s.name not in expected_sides]:
                board.enter(side, _S.DROPPED)
                board.remove_side(side)
            for name, options in expected_sides.items():
                self._follow(record, name, options)
            record.sides = {name: record.sides[name] for name in expected_sides}

    def _follow(self, record: TableRecord, name: SideName, options: SideOptions) -> None:
        side = record.sides.get(name)
        if side is None:
            side = record.add_side(name, options)
            self._board.add_side(side)
            self._begin(side, is_new=False)
            return
        if options.enabled and not side.options.enabled:
            side.lake_seen = False
        side.options = options
        self._settle(side)
        self._board.touch(side)

    def dropped(self, path: TablePath) -> None:
        board = self._board
        with board.change():
            record = board.find_table(path)
            for side in record.sides.values():
                board.enter(side, _S.DROPPED)
            board.remove(record)


def _record(table: TableInfo, sides: Sides) -> TableRecord:
    record = TableRecord(info=table)
    for name, options in sides.items():
        record.add_side(name, options)
    return record


def _dropped(stored: StoredSide) -> StoredSide:
    works = {kind: {**work, "lease": None} for kind, work in stored.body.get("works", {}).items()}
    return replace(stored, state=_S.DROPPED, body={**stored.body, "works": works})
