# SPDX-License-Identifier: Apache-2.0
"""The coordinator as a state machine: jobs that beat, stall, die, come back, run twice under one name, lie and finish
twice, while the clock jumps, the coordinator restarts (also with its file lost) and tables come, change and go.

After every step invariants 4, 5 and 9 of design.md are checked, against the lake itself and against what was seen
before."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import event, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from lakeward.coordinator.kinds import KINDS
from lakeward.coordinator.schedule.kind import Kind
from lakeward.coordinator.state.board import STANDS
from lakeward.coordinator.state.record import LakeSide
from lakeward.errors import (
    CommitConflict,
    IllegalTransition,
    InvalidRequest,
    LakeError,
    LakeNotEmpty,
    LedgerGap,
    Superseded,
    TableAlreadyExists,
    TableBusy,
    TableNotFound,
)
from lakeward.model import (
    TIER,
    InstanceId,
    JobName,
    LakeBase,
    LedgerKind,
    OffsetMap,
    OffsetRange,
    RoundId,
    SideId,
    TableId,
    TableInfo,
    TablePath,
    TableState,
    WorkKind,
    new_round_id,
)
from lakeward.model.side import COMPACT
from lakeward.protocol.heartbeat import (
    CommitReport,
    CommittedRange,
    HandedOut,
    HeartbeatRequest,
    LeaseCheck,
    TableFailed,
    TableFinished,
    TableInWork,
    Verdict,
)
from lakeward.protocol.tables import AlterTable
from lakeward.spi import CommitProperties, Precondition
from tests.kit.ids import repeatable_ids
from tests.kit.world import B0, CoordinatorWorld

NAMES = ("a", "b", "c")
SLOTS = 2
ENABLED = "table.datalake.enabled"


Key = tuple[TableId, WorkKind]


class Tidying(Kind):
    """A second kind, for sides that have something in the lake."""

    name = COMPACT

    def is_due(self, side: LakeSide) -> bool:
        return bool(side.committed)

    def limit_ms(self, side: LakeSide) -> int:
        return 1_000


@dataclass
class Round:
    """A piece of work of either kind. A compaction adds no offsets and needs no lake here: what counts is its lease."""

    table: HandedOut
    info: TableInfo
    round_id: RoundId | None = None
    base: LakeBase | None = None
    stop: int = 0
    landed: bool = False
    forgotten: bool = False
    """Handed out before the coordinator's file was lost: nobody but the job knows its epoch until it lands."""


@dataclass
class Instance:
    """One process of a job. It works on what it was handed until it learns otherwise, which a stalled one
    never does.
    """

    name: JobName
    instance: InstanceId
    kinds: tuple[WorkKind, ...] = (TIER, COMPACT)
    rounds: dict[Key, Round] = field(default_factory=dict)
    over: list[Round] = field(default_factory=list)


class CoordinatorMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.ids = contextlib.ExitStack()
        self.ids.enter_context(repeatable_ids())
        self.folder = Path(tempfile.mkdtemp(prefix="coordinator-"))
        self.world = CoordinatorWorld(
            self.folder, sync=False, kinds=(*KINDS, Tidying), lease_s=30.0, sweep_s=5.0, quarantine_after=3
        )
        self.instances: list[Instance] = []
        self.epochs: dict[Key, int] = {}
        self.offsets: dict[TableId, tuple[int, int]] = {}
        self.lake_ends: dict[TableId, int] = {}
        self.surprised: set[TableId] = set()
        """Tables whose newest snapshot is of a forgotten round. Its epoch may be handed out again; what keeps the two
        rounds apart then are instance, round id and the lake's own precondition."""

        self.made = 0

    def teardown(self) -> None:
        self.world.close()
        self.ids.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    # ---- tables ----
    @initialize()
    def begin(self) -> None:
        for name in NAMES[:2]:
            self.world.create(name, table__datalake__freshness="20 s")
        self._new_instance("job-1")

    @rule(
        name=st.sampled_from(NAMES),
        what=st.sampled_from(["create", "adopt", "alter", "on", "off", "drop", "pause", "resume"]),
    )
    def change_table(self, name: str, what: str) -> None:
        world, path = self.world, TablePath("db", name)
        with contextlib.suppress(TableNotFound, IllegalTransition, TableBusy, LakeError):
            if what in ("create", "adopt"):
                self._create(name, what == "adopt")
            elif what == "drop":
                world.federation.drop(path)
            elif what == "pause":
                world.coordinator.operations.pause(path)
            elif what == "resume":
                world.coordinator.operations.resume(path)
            else:
                changes = {
                    "alter": {"table.datalake.freshness": "30 s"},
                    "on": {ENABLED: "true"},
                    "off": {ENABLED: "false"},
                }
                world.federation.alter(path, AlterTable(properties=changes[what]))

    def _create(self, name: str, adopt: bool) -> None:
        try:
            self.world.create(name, adopt=adopt, table__datalake__freshness="20 s")
        except LakeNotEmpty:
            assert not adopt, "a lake table with snapshots is refused unless it is adopted"
        except TableAlreadyExists:
            pass

    # ---- time and the coordinator ----
    @rule(seconds=st.sampled_from([0.5, 3, 11, 25, 40]), jump=st.sampled_from([0, 0, -3_600, -5, 60, 86_400]))
    def pass_time(self, seconds: float, jump: int) -> None:
        self.world.clock.advance(seconds)
        self.world.clock.jump(jump)
        self.world.coordinator.schedule.tick()

    @rule(lose_file=st.booleans(), late=st.booleans())
    def restart(self, lose_file: bool, late: bool) -> None:
        """`late`: jobs talk to the new coordinator before it has read a single lake, rounds that were fenced long ago
        among them.
        """
        self.world.restart(lose_file=lose_file, read_lakes=False)
        for job, work in self._rounds() if late else ():
            if not work.landed:
                self._plan(job, work)
        self.world.coordinator.lakes.read_unseen()
        if lose_file:
            for _, work in self._rounds():
                work.forgotten = True
            # What is left is the lake: epochs and offsets begin there again.
            for table_id, kind in list(self.epochs):
                self.epochs[table_id, kind] = self._lake_epoch(table_id) if kind == TIER else 0
            self.offsets.clear()

    @rule()
    def upkeep(self) -> None:
        self.world.clock.advance(61)
        self.world.coordinator.upkeep.read_lakes()
        self.world.coordinator.upkeep.run()

    # ---- jobs ----
    @rule(data=st.data(), name=st.sampled_from(["job-1", "job-2"]), dies=st.booleans(), old=st.booleans())
    def change_jobs(self, data: st.DataObject, name: str, dies: bool, old: bool) -> None:
        """One dies without a word, or one starts: under a new name, or under one that is taken; it may be of a version
        that knows rounds only."""
        if dies and len(self.instances) > 1:
            self.instances.remove(data.draw(st.sampled_from(self.instances)))
        else:
            self._new_instance(name, (TIER,) if old else (TIER, COMPACT))

    def _new_instance(self, name: str, kinds: tuple[WorkKind, ...] = (TIER, COMPACT)) -> Instance:
        self.made += 1
        made = Instance(JobName(name), InstanceId(f"i{self.made}"), kinds)
        self.instances.append(made)
        return made

    @precondition(lambda self: bool(self.instances))
    @rule(data=st.data(), room=st.integers(0, SLOTS))
    def beat(self, data: st.DataObject, room: int) -> None:
        self._beat(data.draw(st.sampled_from(self.instances)), room)

    def _beat(self, job: Instance, room: int) -> None:
        working = tuple(
            TableInWork(table_id=r.table.table_id, kind=r.table.kind, epoch=r.table.epoch, round_id=r.round_id)
            for r in job.rounds.values()
        )
        answer = self._send(job, tiering=working, room=room)
        if answer is None:
            return
        for verdict in answer.verdicts:
            if verdict.verdict not in (Verdict.OK, Verdict.FORCE_FINISH):
                job.over.append(job.rounds.pop((verdict.table_id, verdict.kind)))
        for table in answer.tables:
            self._handed(job, table)

    def _handed(self, job: Instance, table: HandedOut) -> None:
        key = (table.table_id, table.kind)
        assert table.kind in job.kinds, "a job is handed what it knows"
        assert key not in job.rounds or job.rounds[key].forgotten, "two of one kind on one side never"
        assert table.epoch > self.epochs.get(key, 0), "an epoch is handed out once"
        if table.kind == TIER:
            above = table.epoch > self._lake_epoch(table.table_id)
            assert above or table.table_id in self.surprised, "and lies above the lake's"
        event(f"{table.kind} was handed out")
        self.epochs[key] = table.epoch
        work = job.rounds[key] = Round(table=table, info=self.world.hot.load_table(table.path))
        if table.kind == COMPACT:
            work.round_id = new_round_id()
            assert self._holds(job, work), "what was handed out is held"

    def _send(self, job: Instance, **more: Any) -> Any:
        try:
            return self.world.coordinator.heartbeat(
                HeartbeatRequest(job=job.name, instance=job.instance, slots=SLOTS, kinds=job.kinds, **more)
            )
        except Superseded:
            # An honest one exits; its rounds live on as a zombie's.
            job.over += job.rounds.values()
            job.rounds.clear()
            return None

    @precondition(lambda self: bool(self.instances))
    @rule(data=st.data(), rows=st.integers(1, 9), steps=st.integers(1, 5), check=st.booleans())
    def work(self, data: st.DataObject, rows: int, steps: int, check: bool) -> None:
        """A round from its rows to its end, or up to where the job stalls."""
        job = data.draw(st.sampled_from(self.instances))
        for table in self.world.hot.load_tables():
            self.world.hot.append(table.path, rows)
        self.world.clock.advance(19)
        self._beat(job, SLOTS)
        for work in list(job.rounds.values()):
            if steps > 1:
                self._plan(job, work)
            if steps > 2:
                self._commit_to_lake(job, work, check)
            if steps > 3 and work.landed:
                event("a round landed")
                self._report(job, work)
            if steps > 4:
                self._finish(job, work, False, 1)

    @rule(
        data=st.data(),
        what=st.sampled_from(["plan", "commit", "commit unchecked", "report", "finish", "fail"]),
        times=st.integers(1, 2),
    )
    def step(self, data: st.DataObject, what: str, times: int) -> None:
        """One step of any round, also of one that was fenced long ago."""
        pairs = self._rounds()
        if not pairs:
            return
        job, work = data.draw(st.sampled_from(pairs))
        if what == "plan" and not work.landed:
            self._plan(job, work)
        elif what.startswith("commit"):
            self._commit_to_lake(job, work, what == "commit")
        elif what == "report" and work.landed:
            self._report(job, work)
        elif what == "finish":
            self._finish(job, work, data.draw(st.booleans()), times)
        elif what == "fail":
            self._fail(job, work, data.draw(st.booleans()), times)

    def _plan(self, job: Instance, work: Round) -> None:
        if work.table.kind == COMPACT:
            work.round_id = new_round_id()
            return
        try:
            base = self.world.lake.open_reader(work.info).load_base()
            bounds = self.world.hot.bounds(work.info)
            known = self.world.coordinator.committed(work.info.path)
        except (LakeError, TableNotFound):
            return
        if known.table_id != work.info.table_id or B0 not in bounds:
            return
        if base.token is not None and base.offsets != known.offsets:
            self._commit(job, work, RoundId(base.token), base.offsets, (), LedgerKind.ADOPTED)
        work.base, work.stop, work.round_id = base, bounds[B0].end, new_round_id()

    def _commit_to_lake(self, job: Instance, work: Round, check: bool) -> None:
        """Without the check: a zombie, or a job that does not care. The lake must not."""
        if work.table.kind == COMPACT:
            work.landed = work.round_id is not None and (not check or self._holds(job, work))
            return
        if work.base is None or work.round_id is None or work.landed or work.stop <= work.base.offsets.get(B0, 0):
            return
        if check and not self._holds(job, work):
            return
        properties = CommitProperties(
            round_id=work.round_id, epoch=work.table.epoch, job=job.name, offsets={B0: work.stop}
        )
        start = work.base.offsets.get(B0)
        committer = self.world.lake.open_committer(work.info)
        try:
            committable = committer.prepare([], {}, work.base, properties)
            committer.commit(
                committable, Precondition(table_id=work.info.table_id, token=work.base.token, starts={B0: start})
            )
        except (CommitConflict, LakeError):
            return
        assert (start or 0) == self.lake_ends.get(work.info.table_id, 0), (
            "the lake holds each offset once, without a gap"
        )
        self.lake_ends[work.info.table_id] = work.stop
        work.landed = True
        self.surprised.discard(work.info.table_id)
        if work.forgotten:
            self.surprised.add(work.info.table_id)

    def _holds(self, job: Instance, work: Round) -> bool:
        assert work.round_id is not None
        check = LeaseCheck(
            job=job.name,
            instance=job.instance,
            table_id=work.table.table_id,
            kind=work.table.kind,
            epoch=work.table.epoch,
            round_id=work.round_id,
        )
        return self.world.coordinator.check_lease(check).held

    def _report(self, job: Instance, work: Round) -> None:
        assert work.round_id is not None
        if work.table.kind == COMPACT:
            side = self._side(work)
            before = None if side is None else (side.committed, side.token, side.generation, side.tier.epoch)
            self._commit(job, work, work.round_id, OffsetMap({B0: 10**6}), (), LedgerKind.ROUND)
            after = None if side is None else (side.committed, side.token, side.generation, side.tier.epoch)
            assert before == after, "a compaction moves no offset"
            return
        assert work.base is not None
        start = work.base.offsets.get(B0, 0)
        ranges = (CommittedRange(bucket=B0, range=OffsetRange(start, work.stop), rows=work.stop - start),)
        self._commit(job, work, work.round_id, OffsetMap({B0: work.stop}), ranges, LedgerKind.ROUND)

    def _commit(
        self,
        job: Instance,
        work: Round,
        round_id: RoundId,
        offsets: OffsetMap,
        ranges: tuple[CommittedRange, ...],
        kind: LedgerKind,
    ) -> None:
        report = CommitReport(
            table_id=work.table.table_id,
            round_id=round_id,
            snapshot_id=None,
            epoch=work.table.epoch,
            job=job.name,
            instance=job.instance,
            offsets=offsets,
            ranges=ranges,
            kind=kind,
            work=work.table.kind,
        )
        try:
            before = self.world.coordinator.commit(report)
        except (LedgerGap, TableNotFound, InvalidRequest, LakeError):
            return
        again = self.world.coordinator.commit(report)
        assert not again.first, "a round is recorded once"
        assert again.offsets == before.offsets

    def _finish(self, job: Instance, work: Round, force: bool, times: int) -> None:
        done = TableFinished(
            table_id=work.table.table_id,
            kind=work.table.kind,
            epoch=work.table.epoch,
            round_id=work.round_id,
            force_finished=force,
        )
        for _ in range(times):
            self._send_end(job, work, finished=(done,))
        self._end(job, work)

    def _fail(self, job: Instance, work: Round, given_back: bool, times: int) -> None:
        failed = TableFailed(
            table_id=work.table.table_id,
            kind=work.table.kind,
            epoch=work.table.epoch,
            round_id=work.round_id,
            error={"code": "lake-unavailable", "message": "down"},
            given_back=given_back,
        )
        for _ in range(times):
            self._send_end(job, work, failed=(failed,))
        self._end(job, work)

    def _send_end(self, job: Instance, work: Round, **ended: Any) -> None:
        """However work of one kind ends, leases of the other stand."""
        side = self._side(work)
        others = [] if side is None else [w for w, _ in side.leases() if w.kind != work.table.kind]
        if self._send(job, **ended) is not None:
            assert (
                side is None
                or [w for w, _ in side.leases() if w.kind != work.table.kind] == others
                or (side.state in STANDS)
            ), "the end of one kind of work leaves the other alone"

    def _end(self, job: Instance, work: Round) -> None:
        key = (work.table.table_id, work.table.kind)
        if job.rounds.get(key) is work:
            job.over.append(job.rounds.pop(key))

    @precondition(lambda self: bool(self.instances))
    @rule(
        data=st.data(),
        name=st.sampled_from(NAMES),
        epoch=st.integers(0, 9),
        rows=st.integers(0, 9),
        beyond=st.sampled_from([0, 0, 5]),
    )
    def lie(self, data: st.DataObject, name: str, epoch: int, rows: int, beyond: int) -> None:
        """Reports for a table it never had, offsets that the lake never saw: rows that the log has, or that
        nobody has.
        """
        job = data.draw(st.sampled_from(self.instances))
        try:
            info = self.world.hot.load_table(TablePath("db", name))
        except TableNotFound:
            return
        self.world.hot.append(info.path, rows)
        known = self.world.coordinator.committed(info.path).offsets.get(B0, 0)
        stop = max(known, self.world.hot.bounds(info)[B0].end + beyond)
        handed = HandedOut(table_id=info.table_id, path=info.path, epoch=epoch, freshness_ms=1)  # type: ignore[arg-type]
        work = Round(table=handed, info=info)
        ranges = (CommittedRange(bucket=B0, range=OffsetRange(known, stop)),)
        self._send(job, finished=(TableFinished(table_id=info.table_id, epoch=handed.epoch),))
        self._commit(job, work, new_round_id(), OffsetMap({B0: stop}), ranges, LedgerKind.ROUND)

    # ---- what always holds ----
    @invariant()
    def one_holder_per_side_and_kind(self) -> None:
        holders: dict[Key, set[InstanceId]] = {}
        for job in self.instances:
            for work in (*job.rounds.values(), *job.over):
                side = self._side(work)
                for held, lease in side.leases() if side is not None else ():
                    if held.kind == work.table.kind and (lease.job, lease.instance) == (job.name, job.instance):
                        holders.setdefault((work.table.table_id, held.kind), set()).add(job.instance)
        assert all(len(h) == 1 for h in holders.values())
        sides = self.world.coordinator.board.sides()
        for name in {j.name for j in self.instances}:
            held_by_job = self.world.coordinator.board.leased(name)
            assert len(held_by_job) <= SLOTS, "a job holds no more than it has slots"
        if any(len(s.leases()) > 1 for s in sides):
            event("a round and a compaction of one side at once")

    @invariant()
    def epochs_and_offsets_never_go_back(self) -> None:
        for side in self.world.coordinator.board.sides():
            for work in side.works.values():
                assert work.epoch >= self.epochs.get((side.table_id, work.kind), 0) or not side.lake_seen
            generation, offset = self.offsets.get(side.table_id, (0, 0))
            now = side.committed.get(B0, 0)
            assert side.generation > generation or now >= offset
            self.offsets[side.table_id] = (side.generation, now)

    @invariant()
    def the_ledger_is_without_gap_or_overlap(self) -> None:
        board = self.world.coordinator.board
        for side in board.sides():
            end = 0
            for _, entry in board.store.ledger.load(side.id):
                if entry.generation == side.generation and entry.kind is not LedgerKind.GAP:
                    assert entry.range.start == end, f"{entry} does not begin at {end}"
                    end = entry.range.stop
            assert end == side.committed.get(B0, 0)

    @invariant()
    def retention_believes_the_lake_alone(self) -> None:
        for table_id in self.world.coordinator.board.tables:
            offset = self.world.coordinator.retention.lake_offset(table_id, B0)
            assert offset is None or offset <= self.lake_ends.get(table_id, 0)

    @invariant()
    def rounds_are_leased_in_tiering_and_nothing_where_work_stands(self) -> None:
        for side in self.world.coordinator.board.sides():
            assert (side.tier.lease is not None) == (side.state is TableState.TIERING)
            assert side.state not in STANDS or not any(side.leases())
            assert side.state is not TableState.DISABLED or not side.options.enabled

    # ---- help ----
    def _side(self, work: Round) -> LakeSide | None:
        return self.world.coordinator.board.side(SideId(work.table.table_id))

    def _rounds(self) -> list[tuple[Instance, Round]]:
        """Every round that somebody may still go on with."""
        return [(j, r) for j in self.instances for r in (*j.rounds.values(), *j.over)]

    def _lake_epoch(self, table_id: TableId) -> int:
        for info in self.world.hot.load_tables():
            if info.table_id == table_id:
                try:
                    return int(self.world.lake.open_reader(info).load_base().epoch)
                except LakeError:
                    return 0
        return 0


def test_invariants_hold_on_every_path() -> None:
    run_state_machine_as_test(CoordinatorMachine, settings=settings(max_examples=100, stateful_step_count=25))


@pytest.mark.soak
def test_invariants_hold_on_long_paths() -> None:
    run_state_machine_as_test(CoordinatorMachine, settings=settings(max_examples=2_000, stateful_step_count=60))
