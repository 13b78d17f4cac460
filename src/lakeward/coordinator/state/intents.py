# SPDX-License-Identifier: Apache-2.0
"""Intents in the coordinator's database."""

from __future__ import annotations

import json
from collections.abc import Sequence

from lakeward.coordinator.state.board import Board
from lakeward.model.ids import RoundId, TableId
from lakeward.model.intent import Intent, IntentKind, IntentState
from lakeward.spi.intents import IntentStore


class BoardIntents(IntentStore):
    def __init__(self, board: Board) -> None:
        self._board = board

    def record(self, intent: Intent) -> None:
        body = json.dumps({"prefix": intent.prefix, "token": intent.token, "fence": intent.fence, "kind": intent.kind})
        with self._board.lock, self._board.store.transaction():
            self._board.store.connection.execute(
                "insert or ignore into intents values (?, ?, ?, ?, ?)",
                (intent.round_id, intent.table_id, intent.recorded_at_ms, intent.state, body),
            )

    def abandon(self, round_id: RoundId) -> None:
        with self._board.lock, self._board.store.transaction():
            self._board.store.connection.execute(
                "update intents set state = ? where round_id = ? and state = ?",
                (IntentState.ABANDONED, round_id, IntentState.OPEN),
            )

    def open_intents(self, table_id: TableId) -> Sequence[Intent]:
        with self._board.lock:
            rows = self._board.store.connection.execute(
                "select round_id, recorded_at_ms, state, body from intents where table_id = ? order by recorded_at_ms",
                (table_id,),
            ).fetchall()
        return [_intent(table_id, *row) for row in rows]

    def forget(self, round_id: RoundId) -> None:
        with self._board.lock, self._board.store.transaction():
            self._board.store.connection.execute("delete from intents where round_id = ?", (round_id,))


def _intent(table_id: TableId, round_id: str, recorded_at_ms: int, state: str, body: str) -> Intent:
    facts = json.loads(body)
    return Intent(
        round_id=RoundId(round_id),
        table_id=table_id,
        prefix=facts["prefix"],
        token=facts["token"],
        fence=facts["fence"],
        recorded_at_ms=recorded_at_ms,
        kind=IntentKind(facts["kind"]),
        state=IntentState(state),
    )
