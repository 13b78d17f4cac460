# SPDX-License-Identifier: Apache-2.0
"""Rounds: the kind of work that has deadlines, and that a side's state follows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from lakeward.coordinator.schedule.kind import Kind
from lakeward.coordinator.state.jobs import JobRecord
from lakeward.coordinator.state.record import LakeSide
from lakeward.coordinator.state.work import Lease, Work
from lakeward.model import TIER, SideName, TableState
from lakeward.protocol.heartbeat import HandedOut, TableFinished

_S = TableState


def may_share(side: LakeSide) -> bool:
    """A side whose last round failed, or that is written from scratch, reads alone, so that it delays no other."""
    return side.tier.failures_in_a_row == 0 and side.resync is None


class TierKind(Kind):
    name = TIER

    def is_due(self, side: LakeSide) -> bool:
        return side.state is _S.PENDING and not side.held

    def choose(self, job: JobRecord, room: int) -> list[LakeSide]:
        """As the schedule has planned it, and what slots are left for sides that then read the log with one of
        those."""
        chosen: list[LakeSide] = []
        for side in self._schedule.take_ready(job.pool):
            if self.is_due(side) and job.may_take(side.id, self.name, side.options.format):
                chosen.append(side)
                if len(chosen) == room:
                    break
        if job.reads_together and len(chosen) < room:
            chosen += self._joining(job, chosen, room - len(chosen))
        return chosen

    def _joining(self, job: JobRecord, chosen: Sequence[LakeSide], room: int) -> list[LakeSide]:
        """Sides that are not due yet, of tables that a side is chosen of."""
        leads = {side.table_id: side for side in reversed(chosen) if may_share(side)}.values()
        waiting = {lead: [s for s in lead.table.sides.values() if self._may_join(s, lead, job)] for lead in leads}
        late = {lead: [s for s in others if s not in chosen] for lead, others in waiting.items()}
        joining = self._schedule.find_joins({lead: others for lead, others in late.items() if others}, chosen)
        for side in joining[:room]:
            if side.state is _S.SCHEDULED:
                self._board.enter(side, _S.PENDING)
        return joining[:room]

    def _may_join(self, side: LakeSide, lead: LakeSide, job: JobRecord) -> bool:
        is_waiting = side.state in (_S.PENDING, _S.SCHEDULED) and side.waiting.oldest_at_ms is not None
        fits = side.options.pool == lead.options.pool and job.may_take(side.id, self.name, side.options.format)
        return is_waiting and fits and self.is_free(side) and may_share(side)

    def begin(self, side: LakeSide, work: Work) -> int:
        """The epoch is new since the side was queued."""
        now = self._board.clock.monotonic()
        waited = 0 if side.pending_since is None else int(1_000 * (now - side.pending_since))
        self._board.enter(side, _S.TIERING)
        return waited

    def handed_out(self, side: LakeSide, work: Work, lease: Lease) -> HandedOut:
        resync = side.resync is not None
        return replace(
            super().handed_out(side, work, lease),
            deadline_at_ms=self._schedule.deadline_ms(side),
            resync=resync,
            table=side.info,
            to_compare=None if side.to_compare is None else tuple(sorted(side.to_compare)),
            generation=side.generation + resync,
        )

    def together(self, granted: Sequence[tuple[LakeSide, HandedOut]]) -> list[HandedOut]:
        sharing = [side for side, _ in granted if may_share(side)]

        def others(side: LakeSide) -> tuple[SideName, ...]:
            return tuple(s.name for s in sharing if s.table is side.table and s is not side)

        return [replace(h, reads_with=others(s)) if s in sharing else h for s, h in granted]

    def finished(self, side: LakeSide, work: Work, finished: TableFinished) -> None:
        board, result = self._board, finished.result
        side.last_tiered_at_ms = board.clock.now_ms()
        if result is not None:
            side.lake.rows = result.lake_rows if result.lake_rows is not None else side.lake.rows
            side.lake.bytes = result.lake_bytes if result.lake_bytes is not None else side.lake.bytes
        board.enter(side, _S.TIERED)
        board.enter(side, _S.PENDING if finished.force_finished else _S.SCHEDULED)
        board.look(side)
        if side.asked is not None and (side.covers(side.asked) or side.waiting.oldest_at_ms is None):
            side.asked = None

    def failed(self, side: LakeSide, work: Work, reason: str) -> None:
        self._board.enter(side, _S.FAILED, reason)
        if work.failures_in_a_row >= self._board.options.quarantine_after:
            words = f"{work.failures_in_a_row} rounds failed in a row, the last one: {reason}"
            self._board.enter(side, _S.QUARANTINED, words)
        else:
            self._wait_out(side, work)

    def give_back(self, side: LakeSide, work: Work, reason: str) -> None:
        self._board.enter(side, _S.PENDING, reason)
