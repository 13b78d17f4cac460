# SPDX-License-Identifier: Apache-2.0
"""The coordinator's background work: the scheduling tick, reading lakes, snapshot expiry, orphan removal, pruning."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from lakeward.coordinator.expiry import Expiry
from lakeward.coordinator.lake.commits import Commits
from lakeward.coordinator.lake.lakes import Lakes
from lakeward.coordinator.schedule.schedule import Schedule
from lakeward.coordinator.show.status import StatusDesk
from lakeward.coordinator.state.board import Board
from lakeward.coordinator.state.intents import BoardIntents
from lakeward.coordinator.state.record import LakeSide
from lakeward.errors import LakewardError
from lakeward.lake.orphans import OrphanOptions, OrphanRemoval, OrphanReport
from lakeward.model import BackgroundThread, LakeBase, SideId, TableState

log = logging.getLogger(__name__)


class Upkeep:
    """`run` does one round of upkeep and is safe to repeat; `start` does it in threads. Lakes are asked without the
    lock.
    """

    def __init__(
        self,
        board: Board,
        schedule: Schedule,
        lakes: Lakes,
        expiry: Expiry,
        status: StatusDesk,
        commits: Commits,
        cut_steps: Sequence[Callable[[], None]],
    ) -> None:
        self._board, self._schedule, self._lakes, self._expiry = board, schedule, lakes, expiry
        self._status, self._commits, self._cut_steps = status, commits, cut_steps
        self._swept_at: dict[SideId, float] = {}
        self._stop = threading.Event()
        self.threads: list[BackgroundThread] = []

    # ---- threads ----
    def start(self) -> None:
        options = self._board.options
        self._schedule.has_thread = True
        self._spawn("lakeward-tick", self._schedule.tick, options.tick_s)
        self._spawn("lakeward-lakes", self.read_lakes, min(1.0, options.upkeep_s))
        self._spawn("lakeward-upkeep", self.run, options.upkeep_s)
        self._spawn("lakeward-orphans", self.remove_orphans, options.orphan_s)

    def _spawn(self, name: str, work: Callable[[], None], every_s: float) -> None:
        thread = BackgroundThread(name, work, every_s)
        self.threads.append(thread)
        thread.start()

    def stop(self) -> None:
        self._stop.set()
        for thread in self.threads:
            thread.stopping.set()
        for thread in self.threads:
            thread.stop(limit_s=30)
        self.threads.clear()

    # ---- one round ----
    def read_lakes(self) -> None:
        """Tables whose lake was not read since start, then those whose offsets retention or a cut waits for."""
        for side in [*self._lakes.unseen(), *self._lakes.unconfirmed()]:
            if self._stop.is_set():
                return
            self._lakes.read(side)
        for step in self._cut_steps:
            step()

    def run(self) -> None:
        self._expiry.leases.sweep()
        self._lakes.look()
        self._each(self.expire, also=self._expiry.is_pending)
        self.prune()

    def remove_orphans(self) -> None:
        self._each(self.remove_orphans_of)

    def _each(self, work: Callable[[LakeSide], int], also: Callable[[LakeSide], bool] = lambda _: False) -> None:
        with self._board.lock:
            seen = [s for s in self._board.sides() if s.options.enabled and s.lake_seen]
            sides = [s for s in seen if s.options.maintained or also(s)]
        for side in sides:
            if self._stop.is_set():
                return
            self._try(side, work)

    def _try(self, side: LakeSide, work: Callable[[LakeSide], int]) -> None:
        """Trouble with one table's lake is noted and keeps no other from its upkeep."""
        try:
            work(side)
        except LakewardError as error:
            log.warning("upkeep of %s: %s", side.label, error)

    def expire(self, side: LakeSide) -> int:
        return self._expiry.run(side)

    def remove_orphans_of(self, side: LakeSide) -> int:
        """By intents each time; once in a long while by listing everything, in case intents were lost. Returns the
        bytes freed.
        """
        storage = self._board.lake_of(side)
        if storage is None:
            return 0
        options = self._board.options
        removal = OrphanRemoval(
            storage,
            side.lake_table,
            clock=self._board.clock,
            options=OrphanOptions(
                grace_ms=int(1_000 * options.orphan_grace_s), max_age_ms=int(1_000 * options.round_max_age_s)
            ),
            hold=lambda: self.hold(side),
            adopt=lambda base: self._adopt(side, base),
        )
        report = removal.by_intents(BoardIntents(self._board, side.name))
        self._count(side, report)
        now = self._board.clock.monotonic()
        swept = self._swept_at.setdefault(side.id, now)
        if now - swept < options.sweep_all_s:
            return report.bytes
        self._swept_at[side.id] = now
        swept_report = removal.sweep()
        self._count(side, swept_report)
        return report.bytes + swept_report.bytes

    @contextmanager
    def hold(self, side: LakeSide) -> Iterator[bool]:
        """Reserves the side; while it lasts no job gets it. False if work on it is running already."""
        with self._board.lock:
            is_idle = not any(side.leases())
            side.held += is_idle
        try:
            yield is_idle
        finally:
            with self._board.lock:
                side.held -= is_idle

    def _adopt(self, side: LakeSide, base: LakeBase) -> None:
        with self._board.change():
            self._commits.adopt_base(side, base)

    def _count(self, side: LakeSide, report: OrphanReport) -> None:
        with self._board.lock:
            self._status.counters["orphanBytesReclaimed"] += report.bytes
            self._status.counters["orphanFilesRemoved"] += report.files
        if report.fenced:
            self._lakes.read(side)

    def prune(self) -> None:
        board, now_ms = self._board, self._board.clock.now_ms()
        with board.lock, board.store.transaction():
            board.store.ledger.merge(now_ms - int(1_000 * board.options.ledger_kept_s))
            board.store.rounds.prune(board.options.rounds_kept)
            board.store.forget_sides(TableState.DROPPED, now_ms - int(1_000 * board.options.ledger_kept_s))
            now = board.clock.monotonic()
            for job in [j for j in board.jobs.values() if now - j.seen > board.options.jobs_kept_s]:
                board.store.forget_job(job.name)
                del board.jobs[job.name]
