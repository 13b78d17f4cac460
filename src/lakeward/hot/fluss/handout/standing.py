# SPDX-License-Identifier: Apache-2.0
"""State of a table in Fluss's own schedule, and a way to make it due before its freshness is over. Fluss has no call
for either.

It answers a heartbeat with a wrong epoch by naming the right one, and one with the right epoch by naming the state,
unless that is Tiering. A reported failure of a table that waits for its time makes it due: Fluss counts no failure,
logs a line, and hands the table to the next job that asks. Both are checked against the epoch under Fluss's lock, and a
table that became due has another epoch: a table that a job works on is never touched. The same in 0.9.1 and 1.0."""

from __future__ import annotations

import re
from collections.abc import Callable
from enum import StrEnum

from lakeward.errors import FlussError
from lakeward.hot.fluss.failures import Code
from lakeward.hot.fluss.handout.beats import beat_entry
from lakeward.hot.fluss.handout.epochs import join_epoch
from lakeward.hot.fluss.handout.heldnote import HeldNote
from lakeward.hot.fluss.lakeoptions import not_tiered
from lakeward.hot.fluss.wire.messages import Message
from lakeward.model import Clock, Epoch, TableInfo

Beat = Callable[[Message], Message]

_NO_EPOCH = (1 << 31) - 1
"""Higher than any table's: hand-outs since the coordinator started."""

_PAUSES_S = (2.0, 150.0)
"""Two questions for one lease: a round that ends without a commit is noticed by the second one. The lease is 120 s,
checked every 15 s."""

_CURRENT_EPOCH = re.compile(r"current epoch (\d+)")
_STATE = re.compile(r"but in (\w+) state")


class Standing(StrEnum):
    WAITS = "waits for its time"
    DUE = "due, and no job has asked for it yet"
    IN_WORK = "a job works on it, or died at it: Fluss hands out a dead job's table again after two minutes"


class StandingWatch:
    """Asks until a table's rows are in the lake. The question renews the lease of a table in work, a dead job's too: it
    is asked again when the table's epoch or its lake has changed, else after more than a lease. Commands that follow
    each other know of it through the note, so that a series of them renews the lease once."""

    def __init__(self, beat: Beat, table: TableInfo, clock: Clock, note: HeldNote | None = None) -> None:
        self._beat, self._table, self._clock, self._note = beat, table, clock, note
        self._in_work: tuple[Epoch, str | None] | None = None
        self._pauses, self._ask_at = iter(_PAUSES_S), 0.0

    def make_due(self, lake: str | None) -> Standing:
        """As the function; `lake`: whatever another commit changes."""
        now, at = self._clock.monotonic(), (_current_epoch(self._beat, self._table), lake)
        if self._in_work is None and self._note is not None and self._note.is_known_in_work(self._table.table_id, *at):
            self._in_work, self._ask_at = at, now + _PAUSES_S[-1]
        if at == self._in_work and now < self._ask_at:
            return Standing.IN_WORK
        standing = make_due(self._beat, self._table)
        if standing is not Standing.IN_WORK or at != self._in_work:
            self._pauses = iter(_PAUSES_S)
        self._in_work = at if standing is Standing.IN_WORK else None
        if self._in_work is not None and self._note is not None:
            self._note.note_in_work(self._table.table_id, *at)
        self._ask_at = now + next(self._pauses, _PAUSES_S[-1])
        return standing


def make_due(beat: Beat, table: TableInfo) -> Standing:
    """Where it stood; a table that waited for its time is due after this. One in work has its lease renewed by the
    question. Raises `InvalidTable` where Fluss does not tier it."""
    for _ in range(3):  # it may come due between two questions
        epoch = _current_epoch(beat, table)
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


def _current_epoch(beat: Beat, table: TableInfo) -> Epoch:
    """Renews nothing."""
    coordinator = beat({}).get("coordinator_epoch", 0)
    error = _ask(beat, table, join_epoch(coordinator, _NO_EPOCH)) or {}
    if error.get("code") == Code.TABLE_NOT_FOUND:
        raise not_tiered(table)
    return join_epoch(coordinator, int(_found(_CURRENT_EPOCH, table, error)))


def _found(pattern: re.Pattern[str], table: TableInfo, error: Message) -> str:
    words = str(error.get("message", ""))
    match = pattern.search(words)
    if match is None:
        what, code = f"a question about {table.path}", error.get("code", Code.UNKNOWN)
        raise FlussError(address="the cluster", what=what, fluss_code=code, text=words or "no message")
    return match[1]
