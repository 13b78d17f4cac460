# SPDX-License-Identifier: Apache-2.0
"""Which tables there are: records made, changed and ended as tables are created, found, altered and dropped."""

from __future__ import annotations

from lakeward.coordinator.options import table_options
from lakeward.coordinator.state.board import Board
from lakeward.coordinator.state.record import TableRecord
from lakeward.coordinator.state.statestore import StoredTable
from lakeward.model.offsets import OffsetMap
from lakeward.model.state import TableState
from lakeward.model.table import TableInfo, TablePath

_S = TableState


class Registry:
    def __init__(self, board: Board) -> None:
        self._board = board

    def load(self) -> None:
        """At start: the hot store says which tables there are, the stored state what was known of each."""
        board = self._board
        tables = board.hot.list_tables()
        with board.change():
            stored = {s.table_id: s for s in board.store.load_tables()}
            offsets = board.store.load_offsets()
            for table in tables:
                self._found(table, stored.pop(table.table_id, None), offsets.get(table.table_id, OffsetMap()))
            gone = [s for s in stored.values() if s.state != _S.DROPPED]
            with board.store.transaction():
                board.store.save_tables([_dropped(s) for s in gone], board.clock.now_ms())

    def _found(self, table: TableInfo, stored: StoredTable | None, offsets: OffsetMap) -> None:
        board = self._board
        record = TableRecord(info=table, options=table_options(table, board.options), committed=offsets)
        board.add(record)
        if stored is not None:
            record.epoch = stored.epoch
            record.load_json(stored.body)
            if stored.state != _S.DROPPED:
                record.state = TableState(stored.state)
        if record.lease is not None:
            # Monotonic time starts anew with the process: a full period of grace.
            now = board.clock.monotonic()
            record.lease.until = now + board.options.lease_s
            record.lease.granted_at = now - max(0, board.clock.now_ms() - record.lease.granted_at_ms) / 1_000
        if record.pending_since_ms is not None:
            record.pending_since = (
                board.clock.monotonic() - max(0, board.clock.now_ms() - record.pending_since_ms) / 1_000
            )
        if record.retry_at_ms is not None:
            limit_ms = int(1_000 * board.options.backoff_limit_s)
            board.retry_after(record, min(limit_ms, max(0, record.retry_at_ms - board.clock.now_ms())))
        self._settle(record)

    def _settle(self, record: TableRecord) -> None:
        """Gives a record without a state its first one, and follows what the properties say of the lake."""
        if record.state is None:
            self._board.enter(record, _S.INITIALIZED if record.options.enabled else _S.DISABLED)
        if not record.options.enabled and record.state is not _S.DISABLED:
            self._board.enter(record, _S.DISABLED, "the lake is switched off for this table")
        elif record.options.enabled and record.state in (_S.NEW, _S.INITIALIZED, _S.DISABLED, _S.TIERED):
            self._board.enter(record, _S.SCHEDULED)

    def register(self, table: TableInfo, *, new: bool) -> TableRecord:
        """A table that was created now. `new`: its lake side is known to be empty, so nothing needs to be read first.

        One that was adopted has the id of the table that the lake belonged to. When that was dropped here, its ledger
        goes on: what it records is recorded once, and no epoch is handed out twice."""
        board = self._board
        record = TableRecord(info=table, options=table_options(table, board.options), lake_seen=new)
        with board.change():
            if not new:
                self._go_on(record)
            board.add(record)
            board.enter(record, _S.NEW if record.options.enabled else _S.DISABLED)
            self._settle(record)
        return record

    def _go_on(self, record: TableRecord) -> None:
        stored = next((s for s in self._board.store.load_tables() if s.table_id == record.table_id), None)
        if stored is None:
            return
        before = TableRecord(info=record.info, options=record.options)
        before.load_json(stored.body)
        record.epoch, record.generation = stored.epoch, before.generation
        record.last_round, record.estimate = before.last_round, before.estimate
        record.committed = self._board.store.load_offsets().get(record.table_id, OffsetMap())

    def altered(self, table: TableInfo) -> None:
        """The lake may have been switched on or off; freshness, pool and priority count from now on."""
        board = self._board
        with board.change():
            record = board.find(table.path)
            was = record.options.enabled
            record.info, record.options = table, table_options(table, board.options)
            if record.options.enabled and not was:
                record.lake_seen = False
            self._settle(record)
            board.touch(record)

    def dropped(self, path: TablePath) -> None:
        board = self._board
        with board.change():
            record = board.find(path)
            board.enter(record, _S.DROPPED)
            board.remove(record)


def _dropped(stored: StoredTable) -> StoredTable:
    return StoredTable(
        table_id=stored.table_id,
        path=stored.path,
        state=_S.DROPPED,
        epoch=stored.epoch,
        body={**stored.body, "lease": None},
    )
