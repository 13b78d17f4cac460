# SPDX-License-Identifier: Apache-2.0
"""A kind of work as the coordinator sees it: what makes it due, and what its begin and end do to a side."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from lakeward.coordinator.schedule.planner import backoff_ms, spares_slot
from lakeward.coordinator.state.board import STANDS, Board
from lakeward.coordinator.state.jobs import JobRecord
from lakeward.coordinator.state.record import LakeSide
from lakeward.coordinator.state.work import Lease, Work
from lakeward.model import WorkKind
from lakeward.protocol.heartbeat import HandedOut, TableFinished

if TYPE_CHECKING:
    from lakeward.coordinator.schedule.schedule import Schedule


class Kind(ABC):
    """Every method is called under `Board.change()`, so none asks a lake; each touches what it changes.

    As it stands this is work that leaves the side's state alone: its failures are its own, and only wait longer."""

    name: ClassVar[WorkKind]
    is_upkeep: ClassVar[bool] = False
    """Does `lakeward maintain --now` ask for it, and does `doctor` look for a job that does it?"""

    if_undone: ClassVar[str] = ""
    """For upkeep: the consequence if no job does it."""

    def __init__(self, board: Board, schedule: Schedule) -> None:
        self._board, self._schedule = board, schedule

    # ---- what is due ----
    @abstractmethod
    def is_due(self, side: LakeSide) -> bool:
        """Is there work of this kind on a side that is free for it?"""

    def why_not(self, side: LakeSide) -> str | None:
        """For upkeep: the reason why this side can never have it; None: it can. Checked before an operator's request is
        recorded."""
        return None

    def choose(self, job: JobRecord, room: int) -> list[LakeSide]:
        """Sides that this job gets now, `room` at most, most wanted first: as many as the pool has slots to spare until
        they are done. A job that takes no rounds has nothing else to spare its slots for."""
        sides = (s for s in self._board.sides() if s.options.pool == job.pool)
        sides = (s for s in sides if job.may_take(s.id, self.name, s.options.format))
        due = sorted((s for s in sides if self.is_free(s) and self.is_due(s)), key=self.order)
        if not due or not job.takes_rounds:
            return due[:room]
        load, chosen, ends = self._schedule.load(job.pool), list[LakeSide](), list[float]()
        for side in due:
            if len(chosen) < room and spares_slot(load, self.expected_ms(side), ends):
                chosen.append(side)
                ends.append(load.now_ms + self.expected_ms(side))
        return chosen

    def is_free(self, side: LakeSide) -> bool:
        """Nobody works on it in this kind, nothing keeps it from being worked on, and no failure is waited out."""
        work = side.work(self.name)
        if side.state in STANDS or side.held or not side.lake_seen or work.lease is not None:
            return False
        return work.retry_at is None or work.retry_at <= self._board.clock.monotonic()

    def order(self, side: LakeSide) -> float:
        """The lowest is handed out first."""
        return -side.options.priority

    def expected_ms(self, side: LakeSide) -> float:
        """How long a slot is taken by it."""
        return side.work(self.name).estimate.typical_ms(self.limit_ms(side))

    # ---- the lease ----
    @property
    def lease_s(self) -> float:
        return self._board.options.lease_s

    def limit_ms(self, side: LakeSide) -> int:
        """Time limit after which the job must commit the rows that it has."""
        return side.options.round_limit_ms

    def why_enough(self, side: LakeSide, lease: Lease) -> str | None:
        """The reason why running work must commit the rows that it has; None: it continues."""
        now = self._board.clock.monotonic()
        limit, spent = self.limit_ms(side), 1_000 * (now - (now if lease.writing_at is None else lease.writing_at))
        return f"the round has taken longer than its limit of {limit} ms" if spent > limit else None

    def begin(self, side: LakeSide, work: Work) -> int:
        """Right before the lease is given: a new epoch. Returns for how many milliseconds the work has waited."""
        work.next_epoch()
        work.retry_at_ms = work.retry_at = None
        return 0

    def handed_out(self, side: LakeSide, work: Work, lease: Lease) -> HandedOut:
        return HandedOut(
            table_id=side.table_id,
            side=side.name,
            kind=self.name,
            path=side.info.path,
            epoch=work.epoch,
            freshness_ms=side.options.freshness_ms,
            limit_ms=self.limit_ms(side),
            waited_s=lease.waited_ms / 1_000,
            generation=side.generation,
        )

    def together(self, granted: Sequence[tuple[LakeSide, HandedOut]]) -> list[HandedOut]:
        """The hand-outs of one answer, to a job that can read the log once for several sides."""
        return [handed for _, handed in granted]

    # ---- the end ----
    def finished(self, side: LakeSide, work: Work, finished: TableFinished) -> None:
        self._board.end_lease(side, work)

    def failed(self, side: LakeSide, work: Work, reason: str) -> None:
        self._board.end_lease(side, work)
        self._wait_out(side, work)

    def give_back(self, side: LakeSide, work: Work, reason: str) -> None:
        """Ends the lease without counting a failure: the job left, was silent, or lost a race."""
        self._board.end_lease(side, work)

    def _wait_out(self, side: LakeSide, work: Work) -> None:
        options = self._board.options
        wait = backoff_ms(
            work.failures_in_a_row,
            first_s=options.backoff_s,
            limit_s=options.backoff_limit_s,
            jitter=options.backoff_jitter,
            seed=f"{options.seed}/{side.table_id}",
        )
        self._board.retry_after(side, work, wait)
