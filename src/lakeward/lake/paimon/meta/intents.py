# SPDX-License-Identifier: Apache-2.0
"""Stores intents as small files next to our mark, one per round: Fluss keeps no intents."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import replace

from lakeward.lake.paimon.meta.connection import PaimonConnection, lake_errors
from lakeward.lake.paimon.meta.history import PaimonHistory, mark_path
from lakeward.model import Intent, IntentState, RoundId, TableId, TableInfo
from lakeward.protocol.codec import decode, encode
from lakeward.spi import ROUND_KEY, IntentStore

_PREFIX = "intent-"


class PaimonIntentStore(IntentStore):
    def __init__(self, connection: PaimonConnection, table: TableInfo) -> None:
        self._connection, self._table = connection, table

    def record(self, intent: Intent) -> None:
        history = self._history()
        with lake_errors(history.table, "record an intent of"):
            history.files.put_exclusively(_path(history, intent.round_id), _text(intent))

    def abandon(self, round_id: RoundId) -> None:
        history = self._history()
        with lake_errors(history.table, "abandon an intent of"):
            intent = _read(history, _path(history, round_id))
            if intent is not None:
                history.files.put(_path(history, round_id), _text(replace(intent, state=IntentState.ABANDONED)))

    def open_intents(self, table_id: TableId) -> Sequence[Intent]:
        """Lists intents. An intent whose round is in the lake counts as committed: its writer may have died before it
        recorded that."""
        history = self._history()
        landed = {s.properties.get(ROUND_KEY) for s in history.newest_first()}
        with lake_errors(history.table, "list intents of"):
            folder = os.path.dirname(mark_path(history.folder))
            names = [n for n in history.files.names(folder) if n.startswith(_PREFIX)]
            intents = [i for i in (_read(history, os.path.join(folder, n)) for n in names) if i is not None]
        updated = [
            replace(i, state=IntentState.COMMITTED) if i.round_id in landed else i
            for i in intents
            if i.table_id == table_id
        ]
        return sorted(updated, key=lambda i: i.recorded_at_ms)

    def forget(self, round_id: RoundId) -> None:
        history = self._history()
        with lake_errors(history.table, "forget an intent of"):
            history.files.delete(_path(history, round_id))

    def _history(self) -> PaimonHistory:
        return PaimonHistory.of(self._connection.load(self._table.path), self._table)


def _path(history: PaimonHistory, round_id: RoundId) -> str:
    return os.path.join(os.path.dirname(mark_path(history.folder)), f"{_PREFIX}{round_id}.json")


def _text(intent: Intent) -> str:
    return json.dumps(encode(intent))


def _read(history: PaimonHistory, path: str) -> Intent | None:
    text = history.files.read(path)
    return None if text is None else decode(Intent, json.loads(text))
