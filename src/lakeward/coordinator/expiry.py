# SPDX-License-Identifier: Apache-2.0
"""Snapshot expiry: what a round's commit may take out, the files of what went, and tables that have no rounds."""

from __future__ import annotations

from dataclasses import replace

from lakeward.coordinator.show.status import StatusDesk
from lakeward.coordinator.state.board import Board
from lakeward.coordinator.state.readleases import ReadLeases
from lakeward.coordinator.state.record import LakeSide
from lakeward.model import SideId
from lakeward.protocol.heartbeat import LeaseCheck, LeaseVerdict
from lakeward.spi import Expired, LakeMaintenance, LakeStorage


class Expiry:
    """A snapshot is marked first, with what it takes to find its files; it leaves the lake with the next commit; then
    its files are deleted, then the mark. A crash anywhere leaves the mark, and the next pass goes on from it."""

    def __init__(self, board: Board, leases: ReadLeases, status: StatusDesk) -> None:
        self._board, self.leases, self._status = board, leases, status

    # ---- asked by a round, right before its lake commit ----
    def grant(self, check: LeaseCheck, verdict: LeaseVerdict) -> LeaseVerdict:
        """The verdict, with those of the round's expirable snapshots that have no reader. Does not access the lake."""
        if not verdict.held or not check.expirable:
            return verdict
        with self._board.lock:
            side = self._board.side(SideId(check.table_id, check.side))
            if side is None or not side.options.expired:
                return verdict
            return replace(verdict, expire=tuple(self.leases.mark(side.id, check.expirable, check.token or "")))

    # ---- upkeep ----
    def is_pending(self, side: LakeSide) -> bool:
        """Is there something to finish, also when expiry was switched off since?"""
        return bool(self.leases.marked(side.id))

    def run(self, side: LakeSide) -> int:
        """Returns the bytes freed."""
        storage = self._board.lake_of(side)
        if storage is None:
            return 0
        maintenance = storage.open_maintenance(side.lake_table)
        freed = self._finish(side, maintenance)
        if side.options.expired and not self._has_rounds(side):
            freed += self._expire(side, maintenance)
        self._lift(side, storage)
        with self._board.lock:
            self._status.counters["expiredBytesReclaimed"] += freed
        return freed

    def _finish(self, side: LakeSide, maintenance: LakeMaintenance) -> int:
        """Deletes the files of marked snapshots that have left the lake, then their marks."""
        marks = self.leases.marked(side.id)
        done = maintenance.delete_expired([m.snapshot for m in marks]) if marks else Expired()
        self.leases.unmark(side.id, done.snapshots)
        return done.bytes

    def _has_rounds(self, side: LakeSide) -> bool:
        """Rounds expire snapshots with their own commits; a commit of the coordinator beside them would only be one
        more."""
        with self._board.lock:
            if side.tier.lease is not None:
                return True
            pause_ms = max(2 * side.options.freshness_ms, int(1_000 * self._board.options.upkeep_s))
            last = side.last_tiered_at_ms
            return last is not None and self._board.clock.now_ms() - last < pause_ms

    def _expire(self, side: LakeSide, maintenance: LakeMaintenance) -> int:
        marked = self.leases.mark(side.id, maintenance.expirable(self._board.clock.now_ms()))
        if not marked:
            return 0
        freed = maintenance.expire(marked)
        return freed + self._finish(side, maintenance)

    def _lift(self, side: LakeSide, storage: LakeStorage) -> None:
        """Marks of snapshots that stayed after all (the round failed, a tag was put on them) go once the commit that
        may take them out can no longer land: the lake's token is another, or no round was ever granted them."""
        marks = self.leases.marked(side.id)
        if marks:
            token = storage.open_reader(side.lake_table).load_base().token
            self.leases.lift(side.id, [m for m in marks if m.token != (token or "")])
