# SPDX-License-Identifier: Apache-2.0
"""Cuts on a schedule: a new one every so often, named after its moment, and the oldest dropped."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace

from lakeward.coordinator.cuts import Cuts
from lakeward.coordinator.state.board import Board
from lakeward.errors import CutScheduleNotFound, InvalidRequest, LakewardError
from lakeward.model import Cut, CutSchedule, CutState, check_schedule
from lakeward.protocol.tables import CutScheduleStatus

log = logging.getLogger(__name__)

RETRY_MS = 60_000
"""How long after a cut could not be made it is tried again."""


class CutSchedules:
    """In memory and in the store. Times that passed while the server was down are not made up for: one cut is made."""

    def __init__(self, board: Board, cuts: Cuts) -> None:
        self._board, self._cuts = board, cuts
        self._schedules: dict[str, CutSchedule] = {}
        self._trouble: dict[str, tuple[int, str]] = {}

    def load(self) -> None:
        with self._board.lock:
            self._schedules = {s.name: s for s in self._board.store.cuts.load_schedules()}

    # ---- for people ----
    def add(self, schedule: CutSchedule) -> CutScheduleStatus:
        """The first cut is made by the next `run`. Raises `InvalidRequest`, also where no cut could be made now."""
        check_schedule(schedule)
        with self._board.lock:
            if schedule.name in self._schedules:
                reason = f"there is one of that name; `lakeward cut unschedule {schedule.name}` ends it"
                raise InvalidRequest(what=f"cut schedule {schedule.name}", reason=reason)
            self._cuts.check(schedule.name, schedule.tables)
            self._save(schedule)
            return self._status(schedule)

    def listed(self) -> list[CutScheduleStatus]:
        with self._board.lock:
            return [self._status(schedule) for _, schedule in sorted(self._schedules.items())]

    def find(self, name: str) -> CutSchedule:
        with self._board.lock:
            if name not in self._schedules:
                raise CutScheduleNotFound(schedule=name[:80])
            return self._schedules[name]

    def remove(self, name: str) -> None:
        """Its cuts stay until somebody drops them."""
        with self._board.lock, self._board.store.transaction():
            self.find(name)
            self._board.store.cuts.forget_schedule(name)
            del self._schedules[name]
            self._trouble.pop(name, None)

    # ---- upkeep ----
    def run(self) -> None:
        """Makes what is due, and drops what is too much. Trouble with one is noted, and keeps no other."""
        with self._board.lock:
            schedules = list(self._schedules.values())
        for schedule in schedules:
            try:
                self._make(schedule)
                for name in plan_drops(self._cuts.of_schedule(schedule.name), schedule.keep):
                    self._cuts.drop(name)
                self._trouble.pop(schedule.name, None)
            except LakewardError as error:
                log.warning("cut schedule %s: %s", schedule.name, error)
                self._trouble[schedule.name] = self._board.clock.now_ms(), str(error)

    def _make(self, schedule: CutSchedule) -> None:
        now_ms, tried_at_ms = self._board.clock.now_ms(), self._trouble.get(schedule.name, (-RETRY_MS, ""))[0]
        made = self._cuts.of_schedule(schedule.name)
        is_waiting = any(cut.state is CutState.OPEN for cut in made)
        if is_waiting or now_ms < max(schedule.due_at_ms, tried_at_ms + RETRY_MS):
            return
        self._cuts.create(schedule.cut_name(now_ms), schedule.tables, schedule.name)
        with self._board.lock:
            if self._schedules.get(schedule.name) == schedule:
                self._save(replace(schedule, made_at_ms=now_ms))

    def _save(self, schedule: CutSchedule) -> None:
        with self._board.store.transaction():
            self._board.store.cuts.save_schedule(schedule)
        self._schedules[schedule.name] = schedule

    def _status(self, schedule: CutSchedule) -> CutScheduleStatus:
        return CutScheduleStatus(
            schedule=schedule,
            cuts=tuple(cut.name for cut in self._cuts.of_schedule(schedule.name)),
            next_at_ms=max(schedule.due_at_ms, self._board.clock.now_ms()),
            trouble=self._trouble.get(schedule.name, (0, ""))[1],
        )


def plan_drops(cuts: Sequence[Cut], keep: int) -> list[str]:
    """Cuts of a schedule to drop, oldest first: all but the newest readable ones, and older lost ones. Pure."""
    ready = [cut for cut in cuts if cut.state is CutState.READY]
    first = ready[-keep:][0] if ready else None
    older = [] if first is None else cuts[: cuts.index(first)]
    return [cut.name for cut in older if cut.state is not CutState.OPEN]
