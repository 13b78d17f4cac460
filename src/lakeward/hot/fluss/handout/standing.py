# SPDX-License-Identifier: Apache-2.0
"""Where a table stands in Fluss's own schedule, and how it comes due before its freshness is over.

Fluss has no call for either. It answers a heartbeat with a wrong epoch by naming the right one, and one with the right
epoch by naming the state, unless that is Tiering. A failure that is told of a table which waits for its time makes it
due: Fluss counts no failure, logs a line, and hands the table to whoever asks next. Both are checked against the epoch
under Fluss's lock, and a table that became due has another: what a job works on is never touched. The same in 0.9.1 and
1.0.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from enum import StrEnum

from lakeward.errors import FlussError
from lakeward.hot.fluss.failures import Code
from lakeward.hot.fluss.handout.beats import beat_entry
from lakeward.hot.fluss.handout.epochs import join_epoch
from lakeward.hot.fluss.lakeoptions import not_tiered
from lakeward.hot.fluss.wire.protobuf import Message
from lakeward.model.ids import Epoch
from lakeward.model.table import TableInfo

Beat = Callable[[Message], Message]

_NO_EPOCH = (1 << 31) - 1
"""Higher than any table's: hand-outs since the coordinator started."""

_CURRENT_EPOCH = re.compile(r"current epoch (\d+)")
_STATE = re.compile(r"but in (\w+) state")


class Standing(StrEnum):
    WAITS = "waits for its time"
    DUE = "due, and no job has asked for it yet"
    IN_WORK = "a job works on it"


def make_due(beat: Beat, table: TableInfo) -> Standing:
    """Where it stood; a table that waited for its time is due after this. One in work has its lease renewed by the
    question. Raises `InvalidTable` where Fluss does not tier it."""
    coordinator = beat({}).get("coordinator_epoch", 0)
    for _ in range(3):  # it may come due between two questions
        epoch = join_epoch(coordinator, _epoch(table, _ask(beat, table, join_epoch(coordinator, _NO_EPOCH))))
        error = _ask(beat, table, epoch)
        if error is None:
            return Standing.IN_WORK
        if error.get("code") == Code.FENCED_EPOCH:
            continue
        if _found(_STATE, table, error) != "Scheduled":
            return Standing.DUE
        beat({"failed": [beat_entry(table.table_id, epoch)]})
        return Standing.WAITS
    return Standing.DUE


def _ask(beat: Beat, table: TableInfo, epoch: Epoch) -> Message | None:
    (entry,) = beat({"tiering": [beat_entry(table.table_id, epoch)]})["tiering"]
    error: Message | None = entry.get("error")
    return error


def _epoch(table: TableInfo, error: Message | None) -> int:
    if error is not None and error.get("code") == Code.TABLE_NOT_FOUND:
        raise not_tiered(table)
    return int(_found(_CURRENT_EPOCH, table, error or {}))


def _found(pattern: re.Pattern[str], table: TableInfo, error: Message) -> str:
    words = str(error.get("message", ""))
    match = pattern.search(words)
    if match is None:
        what, code = f"a question about {table.path}", error.get("code", Code.UNKNOWN)
        raise FlussError(address="the cluster", what=what, fluss_code=code, text=words or "no message")
    return match[1]
