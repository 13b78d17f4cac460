# SPDX-License-Identifier: Apache-2.0
"""Intents in the coordinator's database."""

from __future__ import annotations

from collections.abc import Sequence

from lakeward.coordinator.state.board import Board
from lakeward.model import DEFAULT_SIDE, Intent, IntentState, RoundId, SideId, SideName, TableId
from lakeward.spi import IntentStore


class BoardIntents(IntentStore):
    """`side`: the side whose open intents are returned."""

    def __init__(self, board: Board, side: SideName = DEFAULT_SIDE) -> None:
        self._board, self._side = board, side

    def record(self, intent: Intent) -> None:
        with self._board.lock, self._board.store.transaction():
            self._board.store.intents.add(intent)

    def abandon(self, round_id: RoundId) -> None:
        with self._board.lock, self._board.store.transaction():
            self._board.store.intents.set_state(round_id, IntentState.ABANDONED, only=IntentState.OPEN)

    def open_intents(self, table_id: TableId) -> Sequence[Intent]:
        with self._board.lock:
            return self._board.store.intents.load(SideId(table_id, self._side))

    def forget(self, round_id: RoundId) -> None:
        with self._board.lock, self._board.store.transaction():
            self._board.store.intents.forget(round_id)
