# SPDX-License-Identifier: Apache-2.0
"""Order in which tables that Fluss handed out together are started: the one with the least time left comes first. Pure
except for its memory.

Fluss hands tables out in the order in which they became due, whatever their freshness. The time left of a table's
freshness is counted from the end of its last round here, less the duration of that round."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from lakeward.model import TableId
from lakeward.protocol.heartbeat import HandedOut, HeartbeatRequest


@dataclass
class Slack:
    """Times are monotonic seconds. A table that this job has not finished yet counts as due now."""

    _began: dict[TableId, float] = field(default_factory=dict)
    _ended: dict[TableId, float] = field(default_factory=dict)
    _took: dict[TableId, float] = field(default_factory=dict)

    def note(self, request: HeartbeatRequest, now: float) -> None:
        """Ends may be told twice: the first counts."""
        for end in request.finished:
            began = self._began.pop(end.table_id, None)
            if began is not None:
                self._ended[end.table_id], self._took[end.table_id] = now, now - began
        for failed in request.failed:
            self._began.pop(failed.table_id, None)

    def order(self, handed: Iterable[HandedOut], now: float) -> Sequence[HandedOut]:
        """Most urgent first; equals stay in Fluss's order. They count as begun."""
        by_slack = sorted(handed, key=lambda h: self.of(h, now))
        self._began.update({h.table_id: now for h in by_slack})
        return by_slack

    def of(self, handed: HandedOut, now: float) -> float:
        """Seconds until the table's rows are older than its freshness allows, less the time that a round takes."""
        ended = self._ended.get(handed.table_id)
        left = 0.0 if ended is None else handed.freshness_ms / 1000 - (now - ended)
        return left - self._took.get(handed.table_id, 0.0)
