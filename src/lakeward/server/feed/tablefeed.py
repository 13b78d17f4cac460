# SPDX-License-Identifier: Apache-2.0
"""Which tables changed since a page last asked, so that a thousand idle ones cost nothing."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from lakeward.model import TablePath
from lakeward.protocol.codec import encode
from lakeward.protocol.views import TableStatus

UNSHOWN = ("table_id", "token", "last_round", "work", "lag_ms", "slack_ms")
"""Fields that pages do not show, or that only grow with time: timestamps are sent instead."""


@dataclass(frozen=True)
class FeedAnswer:
    """`tables`: those that changed. `gone`: names that are there no more. `whole`: forget what you had."""

    version: str
    tables: list[dict[str, Any]]
    gone: list[str]
    whole: bool


class TableFeed:
    """Thread-safe. Versions are this feed's own: one of another server's life is answered with everything."""

    def __init__(self) -> None:
        self._lock, self._life, self._version = threading.Lock(), uuid.uuid4().hex[:8], 0
        self._rows: dict[str, tuple[dict[str, Any], int]] = {}
        self._gone: dict[str, int] = {}

    def take(self, tables: Iterable[TableStatus], now_ms: int) -> None:
        rows = {f"{t.path}/{t.side}": _row(t, now_ms) for t in tables}
        with self._lock:
            changed = [name for name, row in rows.items() if name not in self._rows or self._rows[name][0] != row]
            removed_names = self._rows.keys() - rows.keys()
            if not changed and not removed_names:
                return
            self._version += 1
            for name in changed:
                self._rows[name] = (rows[name], self._version)
                self._gone.pop(name, None)
            for name in removed_names:
                del self._rows[name]
                self._gone[name] = self._version

    def since(self, version: str, may_use: Callable[[TablePath], bool]) -> FeedAnswer:
        life, _, number = version.partition("-")
        with self._lock:
            is_full = life != self._life or not number.isdigit()
            after = -1 if is_full else int(number)
            newer = [row for row, at in self._rows.values() if at > after]
            removed_names = [] if is_full else [name for name, at in self._gone.items() if at > after]
            feed_version = f"{self._life}-{self._version}"
        return FeedAnswer(
            version=feed_version,
            tables=[row for row in newer if may_use(TablePath.parse(row["path"]))],
            gone=[name for name in removed_names if may_use(TablePath.parse(name.partition("/")[0]))],
            whole=is_full,
        )


def _row(table: TableStatus, now_ms: int) -> dict[str, Any]:
    row = {key: value for key, value in encode(table).items() if key not in UNSHOWN}
    row["waits_since_ms"] = now_ms - table.lag_ms if table.lag_ms else None
    row["start_by_ms"] = None if table.slack_ms is None else now_ms + table.slack_ms
    return row
