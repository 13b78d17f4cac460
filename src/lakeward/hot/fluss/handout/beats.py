# SPDX-License-Identifier: Apache-2.0
"""Our heartbeat as Fluss's and back: which entry each table becomes, and what an error to one means. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from lakeward.hot.fluss.failures import Code
from lakeward.hot.fluss.handout.epochs import split_epoch
from lakeward.hot.fluss.wire.messages import Message
from lakeward.model import Epoch, TableId
from lakeward.protocol.heartbeat import (
    HeartbeatRequest,
    LeaseVerdict,
    TableFinished,
    TableInWork,
    TableVerdict,
    Verdict,
)

_REASONS: Mapping[int, str] = {
    Code.FENCED_EPOCH: "another job has the table",
    Code.INVALID_COORDINATOR: "Fluss's coordinator was restarted or replaced",
    Code.UNKNOWN: "Fluss does not count this table as being tiered",
}


def beat_entry(table_id: TableId, epoch: Epoch, stats: Message | None = None) -> Message:
    coordinator, tiering = split_epoch(epoch)
    return {"table_id": int(table_id), "coordinator_epoch": coordinator, "tiering_epoch": tiering, "stats": stats}


def beat_message(request: HeartbeatRequest, renewed: Iterable[Message] = (), failed: Iterable[Message] = ()) -> Message:
    """`renewed` and `failed`: entries besides the request's own. A job that leaves reports what it works on as failed:
    Fluss has no other way to give a table back, and hands it out again at once."""
    working = [beat_entry(t.table_id, t.epoch) for t in request.tiering]
    given_back = [beat_entry(t.table_id, t.epoch) for t in request.failed if t.given_back]
    return {
        "tiering": [*renewed, *([] if request.leaving else working)],
        "finished": [beat_entry(t.table_id, t.epoch, _stats(t)) for t in request.finished],
        "failed": [*failed, *given_back, *(working if request.leaving else [])],
        "request_table": 1 if request.room > 0 else None,
        "force_finished": [int(t.table_id) for t in request.finished if t.force_finished],
    }


def _stats(finished: TableFinished) -> Message | None:
    result = finished.result
    if result is None or (result.lake_bytes is None and result.lake_rows is None):
        return None
    return {"file_size": result.lake_bytes, "record_count": result.lake_rows}


def read_verdicts(request: HeartbeatRequest, answer: Message) -> tuple[TableVerdict, ...]:
    """A verdict for each table in work that Fluss refused to renew."""
    works = {t.table_id: t for t in request.tiering}
    verdicts = []
    for entry in answer.get("tiering", []):
        table_id, error = TableId(str(entry.get("table_id", 0))), entry.get("error")
        if error is not None and table_id in works:
            verdicts.append(_verdict(works[table_id], error))
    return tuple(verdicts)


def _verdict(work: TableInWork, error: Message) -> TableVerdict:
    is_gone = error.get("code", Code.UNKNOWN) == Code.TABLE_NOT_FOUND
    return TableVerdict(
        table_id=work.table_id,
        verdict=Verdict.DROPPED if is_gone else Verdict.FENCED,
        reason="dropped, or its lake was switched off" if is_gone else _reason(error),
        round_id=work.round_id,
        kind=work.kind,
    )


def read_lease(answer: Message) -> LeaseVerdict:
    """Reads the verdict of a heartbeat that renewed one table."""
    entries = answer.get("tiering", [])
    error = entries[0].get("error") if entries else None
    return LeaseVerdict(held=True) if error is None else LeaseVerdict(held=False, reason=_reason(error))


def _reason(error: Message) -> str:
    code, text = error.get("code", Code.UNKNOWN), (error.get("message") or "no message").splitlines()[0]
    return f"{_REASONS.get(code, 'Fluss refused')} (error {code}: {text[:200]})"


_MAX_DOUBLINGS = 30
"""More of them than any ceiling needs, and few enough that the number stays one: a table may fail for months."""


@dataclass
class HeldBack:
    """Failures that are reported later. Fluss hands a failed table out again at once and forever; until its pause is
    over the table is renewed as if a round were running."""

    first_s: float = 2.0
    ceiling_s: float = 60.0
    _counts: dict[TableId, int] = field(default_factory=dict)
    _held: dict[tuple[TableId, Epoch], float] = field(default_factory=dict)

    @property
    def keys(self) -> list[tuple[TableId, Epoch]]:
        """Tables that Fluss still counts as this job's."""
        return list(self._held)

    def note(self, request: HeartbeatRequest, now: float) -> None:
        for finished in request.finished:
            self._counts.pop(finished.table_id, None)
        for failed in request.failed:
            key = (failed.table_id, failed.epoch)
            if not failed.given_back and key not in self._held:  # told twice where the answer to the first was lost
                count = self._counts[failed.table_id] = self._counts.get(failed.table_id, 0) + 1
                self._held[key] = now + min(self.ceiling_s, self.first_s * 2 ** min(count - 1, _MAX_DOUBLINGS))

    def renewed(self, now: float) -> list[Message]:
        return [beat_entry(*key) for key, until in self._held.items() if until > now]

    def due(self, now: float, *, all_of_them: bool = False) -> list[tuple[TableId, Epoch]]:
        return [key for key, until in self._held.items() if all_of_them or until <= now]

    def refused(self, answer: Message) -> None:
        """Tables that Fluss no longer counts as this job's, after a restart of its coordinator: a later report about
        them would hit the job that has them then, under the same epoch."""
        gone = {TableId(str(e.get("table_id", 0))) for e in answer.get("tiering", []) if "error" in e}
        self.told([key for key in self._held if key[0] in gone])

    def told(self, keys: Iterable[tuple[TableId, Epoch]]) -> None:
        for key in keys:
            self._held.pop(key, None)
