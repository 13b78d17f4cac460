# SPDX-License-Identifier: Apache-2.0
"""The coordinator: the only writer of tiering state. A front for its parts; each call is short and never waits for a
lake while it holds the lock."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from dataclasses import replace

from lakeward.coordinator.cuts import Cuts
from lakeward.coordinator.cutschedules import CutSchedules
from lakeward.coordinator.databases import Databases
from lakeward.coordinator.desk import Desk
from lakeward.coordinator.expiry import Expiry
from lakeward.coordinator.kinds import KINDS
from lakeward.coordinator.lake.commits import Commits
from lakeward.coordinator.lake.lakes import Lakes
from lakeward.coordinator.lake.retention import BoardRetention
from lakeward.coordinator.operations import Asked, Operations
from lakeward.coordinator.options import CoordinatorOptions
from lakeward.coordinator.schedule.admission import Forecast
from lakeward.coordinator.schedule.kind import Kind
from lakeward.coordinator.schedule.schedule import Schedule
from lakeward.coordinator.show.readplan import ReadPlans
from lakeward.coordinator.show.status import StatusDesk
from lakeward.coordinator.state.board import Board
from lakeward.coordinator.state.intents import BoardIntents
from lakeward.coordinator.state.jobs import load_jobs
from lakeward.coordinator.state.readleases import ReadLeases
from lakeward.coordinator.state.registry import Registry
from lakeward.coordinator.state.statestore import StateStore
from lakeward.coordinator.upkeep import Upkeep
from lakeward.errors import TableNotFound
from lakeward.model import (
    DEFAULT_SIDE,
    Clock,
    Intent,
    LeaseId,
    LedgerEntry,
    RoundId,
    SideId,
    SideName,
    SnapshotId,
    TableId,
    TablePath,
)
from lakeward.protocol.heartbeat import (
    CommitAnswer,
    CommitReport,
    Committed,
    HandedOut,
    HeartbeatAnswer,
    HeartbeatRequest,
    LeaseCheck,
    LeaseVerdict,
)
from lakeward.protocol.operate import TierNowAnswer
from lakeward.protocol.readplan import ReadPlan
from lakeward.protocol.tables import CutStatus
from lakeward.spi import CoordinatorClient, HotAdmin, LakeStorage

ROUNDS_CHECKED = 1_000
"""Rounds that are read once at start, as many as pages show, so that records that are skipped are logged then."""


class Coordinator(CoordinatorClient):
    """`open()` before the first call; `start()` besides runs the ticks in threads until `close()`."""

    def __init__(
        self,
        store: StateStore,
        hot: HotAdmin,
        lakes: Callable[[str], LakeStorage],
        clock: Clock,
        options: CoordinatorOptions | None = None,
        kinds: Sequence[type[Kind]] = KINDS,
    ) -> None:
        self.board = Board(store, hot, lakes, clock, options or CoordinatorOptions())
        self.schedule = Schedule(self.board, kinds)
        self.desk = Desk(self.board, self.schedule)
        self.commits = Commits(self.board)
        self.intents = BoardIntents(self.board)
        self.leases = ReadLeases(self.board)
        self.plans = ReadPlans(self.board, self.leases)
        self.lakes = Lakes(self.board, self.commits)
        self.registry = Registry(self.board)
        self.retention = BoardRetention(self.board, self.leases)
        self.operations = Operations(self.board, self.schedule.kinds.values())
        self.databases = Databases(self.board)
        self.cuts = Cuts(self.board, self.operations)
        self.cut_schedules = CutSchedules(self.board, self.cuts)
        self.leases.keeps = self.cuts.keeps
        self.views = StatusDesk(self.board, self.schedule, self.lakes)
        self.forecast = Forecast(self.board, self.schedule)
        self.expiry = Expiry(self.board, self.leases, self.views)
        self.upkeep = Upkeep(
            self.board,
            self.schedule,
            self.lakes,
            self.expiry,
            self.views,
            self.commits,
            (self.cuts.settle, self.cut_schedules.run),
        )

    def open(self) -> None:
        """Loads the state, meets it with the hot store's tables, and checks the lakes. Raises `InvalidConfig`."""
        board = self.board
        with board.lock:
            board.jobs = load_jobs(board.store.load_jobs(), board.clock.monotonic(), board.store.left_out)
            self.leases.load()
            board.store.rounds.load(limit=ROUNDS_CHECKED)
            stored = int(board.store.meta("coordinator_epoch") or 0)
            # Seconds since 1970 as a floor: it grows also when the file was lost.
            board.coordinator_epoch = max(stored + 1, board.clock.now_ms() // 1_000)
            board.store.set_meta("coordinator_epoch", str(board.coordinator_epoch))
            self._id = board.store.meta("coordinator_id") or uuid.uuid4().hex
            board.store.set_meta("coordinator_id", self._id)
        self.registry.load()
        self.databases.load()
        self.cuts.load()
        self.cut_schedules.load()
        board.hot.set_retention(self.retention)
        self.lakes.check()
        if board.options.restored:
            self.lakes.pause_restored()

    def start(self) -> None:
        """Runs scheduling, lake reading and upkeep in threads until `close`."""
        self.upkeep.start()

    def close(self) -> None:
        """Safe to repeat."""
        self.upkeep.stop()
        with self.board.lock:
            self.board.store.close()

    @property
    def epoch(self) -> int:
        return self.board.coordinator_epoch

    @property
    def coordinator_id(self) -> str:
        return self._id

    # ---- jobs ----
    def heartbeat(self, request: HeartbeatRequest) -> HeartbeatAnswer:
        answer = self.desk.heartbeat(request)
        return replace(answer, tables=tuple(map(self._with_committed, answer.tables)))

    def _with_committed(self, handed: HandedOut) -> HandedOut:
        """With what the job would ask for next. A table that was dropped this moment is for the round to find."""
        try:
            return replace(handed, committed=self.commits.committed(handed.path, handed.side))
        except TableNotFound:
            return handed

    def check_lease(self, check: LeaseCheck) -> LeaseVerdict:
        return self.expiry.grant(check, self.desk.check_lease(check))

    def committed(self, path: TablePath, side: SideName | None = None) -> Committed:
        return self.commits.committed(path, side)

    def commit(self, report: CommitReport) -> CommitAnswer:
        answer = self.commits.commit(report)
        return answer if report.finished is None else self.desk.finish(report, report.finished, answer)

    def knows_round(self, table_id: TableId, round_id: RoundId, side: SideName = DEFAULT_SIDE) -> bool:
        return self.commits.knows_round(SideId(table_id, side), round_id)

    def record_intent(self, intent: Intent) -> None:
        self.intents.record(intent)

    def abandon_intent(self, round_id: RoundId, *, unused: bool = False) -> None:
        self.intents.forget(round_id) if unused else self.intents.abandon(round_id)

    # ---- readers ----
    def read_plan(
        self, path: TablePath, *, lease_s: float = 60.0, at_least: str | None = None, side: SideName | None = None
    ) -> ReadPlan:
        return self.plans.plan(path, side, lease_s=lease_s, at_least=at_least)

    def renew_read(self, lease_id: LeaseId, lease_s: float, snapshot_id: SnapshotId | None = None) -> None:
        self.leases.renew(lease_id, lease_s, snapshot_id)

    def release_read(self, lease_id: LeaseId) -> None:
        self.leases.release(lease_id)

    def load_cut(self, name: str) -> CutStatus:
        return self.cuts.load_cut(name)

    # ---- tables, called by federation ----

    # ---- ticks ----

    def sides(self, path: TablePath, side: SideName | None = None) -> list[SideName]:
        """Sides of a table, in order; or the named one. Raises `TableNotFound`, `SideNotFound`."""
        with self.board.lock:
            return list(self.board.find_table(path).sides) if side is None else [self.board.find(path, side).name]

    def read_lake(self, path: TablePath, side: SideName | None = None) -> bool:
        """Reads the lake of the named side, or of all that are on; false if a lake did not answer."""
        with self.board.lock:
            sides = self.board.find_table(path).enabled if side is None else [self.board.find(path, side)]
        answers = [self.lakes.read(s) for s in sides]
        return all(answers)

    def refresh_figures(self, path: TablePath) -> None:
        """Somebody else committed to its lake table: rows, files and bytes are looked up. May block on the lake; a
        failure leaves the figures as they are."""
        try:
            record = self.board.find_table(path)
        except TableNotFound:
            return
        for side in list(record.sides.values()):
            self.lakes.refresh_figures(side)

    # ---- for people --------------------------------------------------------------------------------------------------

    def ledger(self, path: TablePath, side: SideName | None = None) -> Sequence[LedgerEntry]:
        return self.views.ledger_page(path, None, None, side).entries

    # ---- for operators -----------------------------------------------------------------------------------------------

    def ask_now(self, path: TablePath, side: SideName | None = None) -> Asked:
        """Asks for a round of the named side, or of the first."""
        return self.operations.ask_now(path, [side])[0]

    def ask_all_now(self, path: TablePath, side: SideName | None = None) -> list[Asked]:
        """Asks for a round of every side, or of the named one."""
        return self.operations.ask_now(path, self.sides(path, side))

    def check_asked(self, asked: Asked, limit_s: float | None = None) -> TierNowAnswer | None:
        """None before the lake has it; `TimedOut` at the limit."""
        done = self.operations.check_asked(asked)
        if done is None:
            self.operations.check_limit(asked, self.operations.limit(limit_s))
        return done
