# SPDX-License-Identifier: Apache-2.0
"""Compactions of Fluss tables: after some rounds, under the lease of the round that just ended, which is reported to
Fluss when the compaction is over. Pure except for its memory.

Fluss has only one kind of work. While the lease is held this way no other job, the Flink job included, gets the table;
its next round is delayed by the duration of the compaction, which may be as long as a round."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from lakeward.hot.fluss.handout.beats import beat_entry
from lakeward.hot.fluss.wire.messages import Message
from lakeward.model import TIER, Epoch, RoundId, TableId, TablePath
from lakeward.model.side import COMPACT
from lakeward.protocol.heartbeat import HandedOut, HeartbeatRequest, TableFailed, TableFinished, TableInWork

LOOK_ROUNDS = 8
"""Rounds that wrote files after which a table is looked at: the fan-in, as fewer files can not be merged."""

QUIET_S = 3_600.0
"""A table that nothing came to for so long is looked at once more: what is left is packed then."""

Held = tuple[TableId, Epoch]


@dataclass
class Compactions:
    """`is_on`: whether a table is to be compacted. A table's first round here is followed by a check, since files of
    earlier jobs are unknown. A check that is due waits for a free slot, not for rows: Fluss hands out tables without
    new rows too."""

    is_on: Callable[[TableId], bool]
    _rounds: dict[TableId, int] = field(default_factory=dict)
    _counted: dict[TableId, RoundId | None] = field(default_factory=dict)
    _unpacked: dict[TableId, float] = field(default_factory=dict)
    _held: dict[Held, TableFinished] = field(default_factory=dict)
    _handed: set[Held] = field(default_factory=set)

    def translate(self, request: HeartbeatRequest, now: float) -> HeartbeatRequest:
        """The request as Fluss understands it; `now`: seconds of a clock that only goes forward. Safe to repeat: the
        same request gives the same answer until `told`."""
        ends = set(map(_key, _ends(request)))
        works = {_key(w) for w in request.tiering if w.kind == COMPACT}
        room = 0 if request.leaving or COMPACT not in request.kinds else request.room - len(self.waiting(works))
        for end in request.finished:
            if end.kind == TIER and _key(end) not in self._held and self._is_due(end, room, now):
                self._held[_key(end)] = end
                room -= 1
        over = [k for k in self._held if request.leaving or k in ends or (k in self._handed and k not in works)]
        finished_rounds = [e for e in request.finished if e.kind == TIER and _key(e) not in self._held]
        return replace(
            request,
            tiering=tuple(w for w in request.tiering if w.kind == TIER or not request.leaving),
            finished=(*finished_rounds, *(self._held[k] for k in over)),
            failed=tuple(f for f in request.failed if f.kind == TIER),
        )

    @property
    def keys(self) -> list[Held]:
        """Tables whose round is over and whose end Fluss has not been told yet."""
        return list(self._held)

    def waiting(self, works: Iterable[Held] = ()) -> list[Held]:
        """Tables whose compaction has not been handed out yet: renewed by us, as no work of the job does it."""
        return [k for k in self._held if k not in self._handed and k not in works]

    def renewed(self) -> list[Message]:
        return [beat_entry(*key) for key in self.waiting()]

    def told(self, request: HeartbeatRequest, told: HeartbeatRequest, answer: Message) -> Sequence[Held]:
        """Fluss has answered `told`, which `request` became: the compactions that are handed out now."""
        for end in _ends(request):
            is_more = isinstance(end, TableFinished) and end.force_finished
            self._rounds[end.table_id] = LOOK_ROUNDS if is_more else 0
        refused = {TableId(str(e.get("table_id", 0))) for e in answer.get("tiering", []) if "error" in e}
        for key in [*map(_key, told.finished), *(k for k in self._held if k[0] in refused)]:
            self._held.pop(key, None)
            self._handed.discard(key)
        handed = self.waiting()
        self._handed.update(handed)
        return handed

    def hand_out(self, key: Held, path: TablePath, limit_ms: int) -> HandedOut:
        """For the answer to the job. `limit_ms`: the table's freshness, which is all that Fluss gives to its work."""
        table_id, epoch = key
        return HandedOut(
            table_id=table_id, path=path, epoch=epoch, freshness_ms=limit_ms, limit_ms=limit_ms, kind=COMPACT
        )

    def _is_due(self, end: TableFinished, room: int, now: float) -> bool:
        self._count(end, now)
        is_quiet = now - self._unpacked.get(end.table_id, now) >= QUIET_S
        is_due = is_quiet or self._rounds.get(end.table_id, LOOK_ROUNDS) >= LOOK_ROUNDS
        if not is_due or room <= 0 or end.force_finished or not self.is_on(end.table_id):
            return False
        if is_quiet:
            del self._unpacked[end.table_id]
        return True

    def _count(self, end: TableFinished, now: float) -> None:
        if end.result is not None and end.result.files and self._counted.get(end.table_id) != end.round_id:
            self._counted[end.table_id] = end.round_id
            self._rounds[end.table_id] = self._rounds.get(end.table_id, LOOK_ROUNDS) + 1
            self._unpacked[end.table_id] = now


def _ends(request: HeartbeatRequest) -> list[TableFinished | TableFailed]:
    """Reports for the compactions that ended."""
    return [*(f for f in request.finished if f.kind == COMPACT), *(f for f in request.failed if f.kind == COMPACT)]


def _key(about: TableFinished | TableFailed | TableInWork) -> Held:
    return about.table_id, about.epoch
