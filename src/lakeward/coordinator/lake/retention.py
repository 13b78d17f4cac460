# SPDX-License-Identifier: Apache-2.0
"""Answers the hot store before it lets go of anything: from memory, and only with what the lake itself confirmed."""

from __future__ import annotations

from lakeward.coordinator.state.board import Board
from lakeward.coordinator.state.readleases import ReadLeases
from lakeward.model.bucket import Bucket
from lakeward.model.ids import TableId
from lakeward.spi.hotadmin import RetentionGuard


class BoardRetention(RetentionGuard):
    def __init__(self, board: Board, leases: ReadLeases) -> None:
        self._board, self._leases = board, leases

    def lake_offset(self, table_id: TableId, bucket: Bucket) -> int | None:
        with self._board.lock:
            record = self._board.tables.get(table_id)
            if record is None or not record.lake_seen:
                return None
            confirmed = record.confirmed.get(bucket)
            return None if confirmed is None else min(confirmed, record.committed.get(bucket, 0))

    def held_from(self, table_id: TableId, bucket: Bucket) -> int | None:
        """The lowest offset of a read lease, and, while a round runs, the offset it started from."""
        with self._board.lock:
            held = [self._leases.held_from(table_id, bucket)]
            record = self._board.tables.get(table_id)
            if record is not None and record.lease is not None:
                held.append(record.committed.get(bucket, 0))
            return min((h for h in held if h is not None), default=None)

    def lake_enabled(self, table_id: TableId) -> bool:
        """A table we do not know yet is treated as enabled: keeping is safe."""
        with self._board.lock:
            record = self._board.tables.get(table_id)
            return record is None or record.options.enabled
