# SPDX-License-Identifier: Apache-2.0
"""Intents in memory."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace

from lakeward.model import Intent, IntentState, RoundId, TableId
from lakeward.spi import IntentStore


class MemoryIntents(IntentStore):
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._intents: dict[RoundId, Intent] = {}

    def record(self, intent: Intent) -> None:
        with self._lock:
            self._intents.setdefault(intent.round_id, intent)

    def abandon(self, round_id: RoundId) -> None:
        with self._lock:
            if round_id in self._intents:
                self._intents[round_id] = replace(self._intents[round_id], state=IntentState.ABANDONED)

    def open_intents(self, table_id: TableId) -> Sequence[Intent]:
        with self._lock:
            ours = [
                i for i in self._intents.values() if i.table_id == table_id and i.state is not IntentState.COMMITTED
            ]
            return sorted(ours, key=lambda i: i.recorded_at_ms)

    def forget(self, round_id: RoundId) -> None:
        with self._lock:
            self._intents.pop(round_id, None)
