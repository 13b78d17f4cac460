# SPDX-License-Identifier: Apache-2.0
"""Answers the hot store before it lets go of anything: from memory, and only with what the lake itself confirmed."""

from __future__ import annotations

from lakeward.coordinator.state.board import Board
from lakeward.coordinator.state.readleases import ReadLeases
from lakeward.coordinator.state.record import LakeSide
from lakeward.model import Bucket, TableId
from lakeward.spi import RetentionGuard


class BoardRetention(RetentionGuard):
    def __init__(self, board: Board, leases: ReadLeases) -> None:
        self._board, self._leases = board, leases

    def lake_offset(self, table_id: TableId, bucket: Bucket) -> int | None:
        """The committed offset of the slowest side that is on."""
        with self._board.lock:
            record = self._board.tables.get(table_id)
            offsets = [_offset(side, bucket) for side in record.enabled] if record is not None else []
            known = [offset for offset in offsets if offset is not None]
            return min(known) if known and len(known) == len(offsets) else None

    def held_from(self, table_id: TableId, bucket: Bucket) -> int | None:
        """The lowest offset of a read lease, and, while a round runs, the offset it started from."""
        with self._board.lock:
            held = [self._leases.held_from(table_id, bucket)]
            record = self._board.tables.get(table_id)
            sides = record.sides.values() if record is not None else ()
            held += [side.committed.get(bucket, 0) for side in sides if side.tier.lease is not None]
            return min((h for h in held if h is not None), default=None)

    def lake_enabled(self, table_id: TableId) -> bool:
        """A table we do not know yet is treated as enabled, and one whose lake the server has switched off: keeping is
        safe."""
        with self._board.lock:
            record = self._board.tables.get(table_id)
            return record is None or bool(record.enabled) or record.is_cut_off


def _offset(side: LakeSide, bucket: Bucket) -> int | None:
    if not side.lake_seen:
        return None
    confirmed = side.confirmed.get(bucket)
    return None if confirmed is None else min(confirmed, side.committed.get(bucket, 0))
