# SPDX-License-Identifier: Apache-2.0
"""Orphan removal on the memory lake: who may lose files, when, and what a zombie then finds."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from lakeward.errors import CommitConflict, FaultInjected
from lakeward.lake.memory.plugin import MemoryLakeStorage
from lakeward.lake.memory.table import MemoryLake
from lakeward.lake.orphans import OrphanOptions, OrphanRemoval, is_stopped
from lakeward.model import (
    TIER,
    Bucket,
    Column,
    Intent,
    IntentState,
    LakeBase,
    OffsetMap,
    Schema,
    TableDescriptor,
    TableInfo,
    TablePath,
    WorkKind,
    new_round_id,
    new_table_id,
    parse_type,
)
from lakeward.model.side import COMPACT
from lakeward_testing import Faults, ManualClock
from lakeward_testing.intents import MemoryIntents
from lakeward_testing.lakes import LakeRound, lake_rows
from lakeward_testing.lakes.removal import intent_of
from lakeward_testing.scripted_log import ScriptedLog
from tests.kit.memoryforeign import MemoryForeignEngine

B0 = Bucket("", 0)
GRACE_S, MAX_AGE_S = 600, 7_200


class World:
    """A lake, a log, intents, and a lease that a test gives and takes."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.lake = MemoryLakeStorage(MemoryLake(self.clock))
        schema = Schema(columns=(Column(name="id", type=parse_type("BIGINT NOT NULL")),))
        table = TableInfo(
            path=TablePath("db", "t"),
            table_id=new_table_id(),
            descriptor=TableDescriptor(schema=schema, primary_key=("id",)),
        )
        self.lake.catalog().create(table)
        self.log = ScriptedLog(table)
        self.intents = MemoryIntents()
        self.upkeep = self.lake.open_maintenance(table)
        self.is_leased = False
        self.adopted: list[LakeBase] = []

    @contextmanager
    def hold(self) -> Iterator[bool]:
        yield not self.is_leased

    def plan(self) -> LakeRound:
        made = LakeRound.plan(self.lake, self.log)
        self.intents.record(self.intent(made))
        return made

    def intent(self, made: LakeRound, kind: WorkKind = TIER) -> Intent:
        return intent_of(made, self.clock.now_ms(), kind)

    def write_and_stop(self, *ids: int) -> LakeRound:
        """A round that writes its file and is not heard of again, until its files are old enough."""
        self.log.upsert(B0, *({"id": i} for i in ids))
        made = self.plan().write(B0)
        self.clock.advance(GRACE_S + 1)
        return made

    def removal(self) -> OrphanRemoval:
        options = OrphanOptions(grace_ms=GRACE_S * 1000, max_age_ms=MAX_AGE_S * 1000)
        return OrphanRemoval(
            self.lake, self.log.table, clock=self.clock, options=options, hold=self.hold, adopt=self.adopted.append
        )

    def files_of(self, made: LakeRound) -> list[str]:
        return [f.path for f in self.upkeep.list_files(made.committer.prefix(made.round_id))]

    def check(self) -> None:
        """Nothing that a snapshot references is missing, and the lake shows what the log says."""
        stored = {f.path for f in self.upkeep.list_files()}
        assert self.upkeep.references() <= stored
        base = self.lake.open_reader(self.log.table).load_base()
        assert lake_rows(self.lake, self.log.table) == self.log.expected(base.offsets)


@pytest.fixture
def world() -> World:
    return World()


Remove = Callable[[World], object]
MODES = pytest.mark.parametrize(
    "remove", [lambda w: w.removal().by_intents(w.intents), lambda w: w.removal().sweep()], ids=["by intents", "sweep"]
)


def test_files_of_a_round_that_another_overtook_go_without_a_fence(world: World) -> None:
    dead = world.write_and_stop(1)
    world.plan().run()
    report = world.removal().by_intents(world.intents)
    assert (report.files, report.fenced, report.stopped) == (1, False, None)
    assert report.bytes > 0
    assert world.files_of(dead) == []
    assert world.adopted == []
    world.check()


def test_when_nobody_commits_a_fence_comes_first(world: World) -> None:
    world.log.upsert(B0, {"id": 0})
    world.plan().run()
    dead = world.write_and_stop(1)
    report = world.removal().by_intents(world.intents)
    assert (report.files, report.fenced) == (1, True)
    assert [b.token for b in world.adopted] == [dead.base.token]
    assert world.lake.open_reader(world.log.table).load_base().fence == 1
    assert world.files_of(dead) == []
    world.plan().run()
    world.check()


@MODES
def test_a_zombie_that_wakes_after_removal_is_refused(world: World, remove: Remove) -> None:
    """Paused right before its request leaves; its files are gone when it wakes."""
    zombie = world.write_and_stop(1)
    request = zombie.prepare()
    ended: list[BaseException] = []

    def wake() -> None:
        try:
            zombie.commit(request)
        except CommitConflict as error:
            ended.append(error)

    with Faults() as faults:
        pause = faults.arm("lake.before-commit", "pause", when=lambda facts: facts["round_id"] == zombie.round_id)
        thread = threading.Thread(target=wake)
        thread.start()
        pause.wait_reached()
        remove(world)
        assert world.files_of(zombie) == []
        pause.release()
        thread.join(120)
    (refused,) = ended
    assert isinstance(refused, CommitConflict)
    assert refused.lost
    with pytest.raises(CommitConflict):
        zombie.commit()
    world.plan().run()
    world.check()


@MODES
def test_a_round_that_commits_after_the_listing_keeps_its_files(world: World, remove: Remove) -> None:
    slow = world.write_and_stop(1)
    with Faults() as faults:
        pause = faults.arm("orphans.listed", "pause")
        thread = threading.Thread(target=remove, args=(world,))
        thread.start()
        pause.wait_reached()
        slow.commit()
        pause.release()
        thread.join(120)
    assert world.files_of(slow)
    world.check()


@MODES
def test_while_a_round_holds_the_table_nothing_is_fenced(world: World, remove: Remove) -> None:
    running = world.write_and_stop(1)
    world.is_leased = True
    report = remove(world)
    assert getattr(report, "stopped", None) is not None
    assert getattr(report, "waiting", 0) == 1
    assert world.files_of(running)
    running.commit()
    world.check()


@MODES
def test_young_files_are_left_alone(world: World, remove: Remove) -> None:
    world.log.upsert(B0, {"id": 1})
    young = world.plan().write(B0)
    remove(world)
    assert world.files_of(young)
    assert world.lake.open_reader(world.log.table).load_base().fence == 0
    world.clock.advance(GRACE_S + 1)
    remove(world)
    assert world.files_of(young) == []


@MODES
def test_a_rolled_back_lake_stops_the_removal(world: World, remove: Remove) -> None:
    world.log.upsert(B0, {"id": 1})
    first = world.plan().run()
    world.log.upsert(B0, {"id": 2})
    world.plan().run()
    dead = world.write_and_stop(3)
    MemoryForeignEngine(world.lake.lake, world.log.table.path).roll_back(first.snapshot_id)
    report = remove(world)
    assert "moved main" in str(getattr(report, "stopped", None))
    assert world.files_of(dead)
    assert world.adopted == []


@MODES
def test_a_clean_table_gets_no_fence(world: World, remove: Remove) -> None:
    world.log.upsert(B0, {"id": 1})
    world.plan().run()
    world.clock.advance(GRACE_S + 1)
    remove(world)
    assert len(world.lake.open_reader(world.log.table).snapshots()) == 1


@MODES
@pytest.mark.parametrize(
    "point",
    [
        "orphans.listed",
        "orphans.before-fence",
        "lake.before-commit",
        "lake.after-commit",
        "orphans.fenced",
        "orphans.before-delete",
        "lake.before-delete",
        "orphans.deleted",
    ],
)
def test_a_crash_at_any_step_is_made_good_by_the_next_pass(world: World, remove: Remove, point: str) -> None:
    world.log.upsert(B0, {"id": 0})
    world.plan().run()
    dead = [world.write_and_stop(1), world.write_and_stop(2)]
    with Faults() as faults:
        fault = faults.arm(point)
        try:
            remove(world)
        except FaultInjected:
            assert point not in ("lake.before-commit", "lake.after-commit"), "a lost answer to the fence is dealt with"
        assert fault.acted == 1
    world.check()
    remove(world)
    assert [world.files_of(d) for d in dead] == [[], []]
    world.plan().run()
    world.check()


def test_an_intent_is_kept_until_its_writer_is_surely_over(world: World) -> None:
    dead = world.write_and_stop(1)
    world.plan().run()
    world.removal().by_intents(world.intents)
    assert dead.round_id in {i.round_id for i in world.intents.open_intents(world.log.table.table_id)}
    late = world.lake.open_writer(dead.task(B0, 0, 1, attempt=3))
    late.write(world.log.batch(B0, 0, 1).select(["id", "__offset", "__timestamp"]))
    world.clock.advance(MAX_AGE_S)
    report = world.removal().by_intents(world.intents)
    assert (report.files, world.files_of(dead)) == (1, [])
    assert world.intents.open_intents(world.log.table.table_id) == []
    world.check()


def test_a_young_file_beside_old_ones_is_left_and_its_intent_kept(world: World) -> None:
    dead = world.write_and_stop(1)
    world.plan().run()
    world.clock.advance(MAX_AGE_S)
    (old,) = world.files_of(dead)
    late = world.lake.open_writer(dead.task(B0, 0, 1, attempt=3))
    late.write(world.log.batch(B0, 0, 1).select(["id", "__offset", "__timestamp"]))
    report = world.removal().by_intents(world.intents)
    (young,) = world.files_of(dead)
    assert young != old
    assert (report.files, report.forgotten) == (1, 1)
    assert [i.round_id for i in world.intents.open_intents(world.log.table.table_id)] == [dead.round_id]
    world.clock.advance(GRACE_S)
    assert world.removal().by_intents(world.intents).forgotten == 1
    assert world.files_of(dead) == []


def test_a_compaction_is_stopped_by_a_fence_alone(world: World) -> None:
    """A round in between does not stop a compaction, so it does not free its files either."""
    world.log.upsert(B0, {"id": 1})
    planned = LakeRound.plan(world.lake, world.log).write(B0)
    world.intents.record(world.intent(planned, COMPACT))
    world.clock.advance(GRACE_S + 1)
    world.plan().run()
    world.is_leased = True
    assert world.removal().by_intents(world.intents).files == 0
    world.is_leased = False
    report = world.removal().by_intents(world.intents)
    assert (report.files, report.fenced) == (1, True)
    world.check()


def test_a_kind_of_work_that_is_not_known_here_is_stopped_by_a_fence_alone(world: World) -> None:
    """Its files are kept for longer than need be, where it cannot be told whether a round in between stops it."""
    world.log.upsert(B0, {"id": 1})
    intent = world.intent(LakeRound.plan(world.lake, world.log), WorkKind("polish"))
    world.plan().run()
    base = world.lake.open_reader(world.log.table).load_base()
    assert not is_stopped(intent, base)
    assert is_stopped(intent, replace(base, fence=base.fence + 1))


def test_what_a_compaction_that_landed_left_behind_needs_no_fence(world: World) -> None:
    world.log.upsert(B0, {"id": 1})
    intent, base = (
        world.intent(LakeRound.plan(world.lake, world.log), COMPACT),
        world.lake.open_reader(world.log.table).load_base(),
    )
    assert not is_stopped(intent, base)
    assert is_stopped(intent, replace(base, fence=base.fence + 1))
    assert is_stopped(replace(intent, state=IntentState.COMMITTED), base)


def test_an_intent_written_late_by_a_zombie_is_served_too(world: World) -> None:
    world.log.upsert(B0, {"id": 1})
    zombie = LakeRound.plan(world.lake, world.log).write(B0)
    world.plan().run()
    world.clock.advance(GRACE_S + 1)
    world.intents.record(world.intent(zombie))
    assert world.removal().by_intents(world.intents).files == 1
    world.check()


def test_a_sweep_finds_what_intents_do_not(world: World) -> None:
    """Leftovers of attempts and sub-splits that a committed round did not use, and rounds whose intent was lost."""
    world.log.upsert(B0, {"id": 1}, {"id": 2})
    made = LakeRound.plan(world.lake, world.log)
    made.write(B0, 2, attempt=0)
    made.results.clear()
    made.stops.clear()
    made.write(B0, 2, attempt=1)
    made.commit()
    world.clock.advance(GRACE_S + 1)
    report = world.removal().sweep()
    assert (report.files, report.fenced) == (1, True)
    assert len(world.files_of(made)) == 1
    world.check()


def test_two_removals_at_once_do_no_harm(world: World) -> None:
    dead = world.write_and_stop(1)
    with Faults() as faults:
        pause = faults.arm("orphans.before-delete", "pause")
        thread = threading.Thread(target=lambda: world.removal().by_intents(world.intents))
        thread.start()
        pause.wait_reached()
        world.removal().sweep()
        world.plan().run()
        pause.release()
        thread.join(120)
    assert world.files_of(dead) == []
    world.check()


def test_offsets_survive_a_fence(world: World) -> None:
    world.log.upsert(B0, {"id": 1})
    world.plan().run()
    world.write_and_stop(2)
    world.removal().sweep()
    base = world.lake.open_reader(world.log.table).load_base()
    assert (base.offsets, base.fence) == (OffsetMap({B0: 1}), 1)
    assert base.token not in (None, new_round_id())


def test_what_a_job_says_of_its_prefix_counts_for_nothing(world: World) -> None:
    """An intent with a prefix that every file has: only files of its own round may go, and there are none."""
    other = world.write_and_stop(1)
    world.intents.forget(other.round_id)
    lie = replace(world.intent(other), round_id=new_round_id(), prefix="", token="gone")
    world.intents.record(lie)
    world.clock.advance(GRACE_S + 1)
    report = world.removal().by_intents(world.intents)
    assert report.files == 0
    assert world.files_of(other) != []
