# SPDX-License-Identifier: Apache-2.0
"""Two kinds of work on one side: each with its lease, its epochs and its failures."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lakeward.coordinator.kinds import KINDS
from lakeward.coordinator.schedule.kind import Kind
from lakeward.coordinator.state.record import LakeSide
from lakeward.model import DEFAULT_SIDE, TIER, InstanceId, JobName, RoundId, TableState
from lakeward.model.side import COMPACT
from lakeward.protocol.heartbeat import HandedOut, LeaseCheck, Verdict
from tests.kit.world import PATH, CoordinatorWorld, ScriptedJob

BOTH = (TIER, COMPACT)


class Tidying(Kind):
    """Due where the lake has something; takes a minute at most."""

    name = COMPACT

    def is_due(self, side: LakeSide) -> bool:
        return bool(side.committed)

    def limit_ms(self, side: LakeSide) -> int:
        return 60_000


@pytest.fixture
def world(tmp_path: Path) -> Iterator[CoordinatorWorld]:
    opened = CoordinatorWorld(tmp_path, kinds=(*KINDS, Tidying))
    opened.create()
    opened.hot.append(PATH, 10)
    opened.clock.advance(200)
    first = opened.job()
    (table,) = first.take()
    first.commit(table, 0, 10, "r1")
    first.finish(table, "r1")
    yield opened
    opened.close()


def take(job: ScriptedJob, *kinds: str) -> list[HandedOut]:
    handed = job.take(room=4)
    assert [h.kind for h in handed] == list(kinds)
    return handed


def start_both(world: CoordinatorWorld, job: ScriptedJob) -> tuple[HandedOut, HandedOut]:
    world.hot.append(PATH, 5)
    world.clock.advance(200)
    rounds, compaction = take(job, TIER, COMPACT)
    return rounds, compaction


def holds(world: CoordinatorWorld, table: HandedOut, round_id: str) -> bool:
    check = LeaseCheck(
        job=JobName("job"),
        instance=InstanceId("i1"),
        table_id=table.table_id,
        kind=table.kind,
        epoch=table.epoch,
        round_id=RoundId(round_id),
    )
    return world.coordinator.check_lease(check).held


def test_a_job_that_does_not_know_a_kind_is_not_handed_it(world: CoordinatorWorld) -> None:
    take(world.job())
    take(world.job(instance="i2", kinds=BOTH), COMPACT)


def test_both_kinds_run_at_once_on_one_side_and_none_twice(world: CoordinatorWorld) -> None:
    job = world.job(kinds=BOTH)
    rounds, compaction = start_both(world, job)
    assert (rounds.table_id, rounds.side) == (compaction.table_id, DEFAULT_SIDE) == (compaction.table_id, rounds.side)
    world.clock.advance(1)
    take(world.job(name="other", kinds=BOTH))
    assert holds(world, rounds, "r2")
    assert holds(world, compaction, "c1")
    assert {(w.kind, w.round_id) for w in world.coordinator.views.table(PATH).work} == {(TIER, "r2"), (COMPACT, "c1")}


def test_the_end_of_one_leaves_the_other_its_lease(world: CoordinatorWorld) -> None:
    job = world.job(kinds=BOTH)
    rounds, compaction = start_both(world, job)
    (verdict,) = job.finish(compaction, "c1").verdicts
    assert (verdict.verdict, verdict.kind, verdict.side) == (Verdict.OK, COMPACT, DEFAULT_SIDE)
    assert holds(world, rounds, "r2")
    assert not holds(world, compaction, "c1")
    assert [(r.kind, r.outcome) for r in world.coordinator.views.rounds(PATH)] == [(COMPACT, "done"), (TIER, "done")]
    assert [r.kind for r in world.coordinator.views.rounds(PATH, kind=COMPACT)] == [COMPACT]


def test_its_failures_are_its_own_and_wait_longer_each_time(world: CoordinatorWorld) -> None:
    job, waits = world.job(kinds=BOTH), list[float]()
    for _ in range(3):
        (compaction,) = take(job, COMPACT)
        job.fail(compaction)
        waited = 0.0
        while not (handed := job.take(room=1)):
            world.clock.advance(0.5)
            waited += 0.5
        job.fail(handed[0], given_back=True)
        waits.append(waited)
    assert waits == sorted(set(waits))
    status = world.coordinator.views.table(PATH)
    assert (status.state, status.failures, status.failures_in_a_row) == (TableState.SCHEDULED, 0, 0)
    assert {w.kind: w.failures for w in status.work} == {TIER: 0, COMPACT: 3}


def test_a_silent_job_loses_both_and_a_restart_keeps_both(world: CoordinatorWorld) -> None:
    job = world.job(kinds=BOTH)
    rounds, compaction = start_both(world, job)
    world.restart()
    assert holds(world, rounds, "r2")
    assert holds(world, compaction, "c1")
    world.clock.advance(121)
    world.coordinator.schedule.tick()
    verdicts = [*job.work(rounds, "r2").verdicts, *job.work(compaction, "c1").verdicts]
    assert [(v.kind, v.verdict) for v in verdicts] == [(TIER, Verdict.FENCED), (COMPACT, Verdict.FENCED)]
    again = {h.kind: h.epoch for h in world.job(instance="i2", kinds=BOTH).take(room=4)}
    assert again[TIER] > rounds.epoch
    assert again[COMPACT] > compaction.epoch


def test_a_pause_ends_both(world: CoordinatorWorld) -> None:
    job = world.job(kinds=BOTH)
    pair = start_both(world, job)
    world.coordinator.operations.pause(PATH)
    assert [job.work(table).verdicts[0].verdict for table in pair] == [Verdict.PAUSED] * 2
    take(job)


def test_what_it_reports_moves_neither_offsets_nor_token(world: CoordinatorWorld) -> None:
    job = world.job(kinds=BOTH)
    (compaction,) = take(job, COMPACT)
    before, ledger = world.coordinator.committed(PATH), world.coordinator.ledger(PATH)
    assert job.commit(compaction, 0, 10, "c1", work=COMPACT, lake_files=1).first
    assert not job.commit(compaction, 0, 10, "c1", work=COMPACT, lake_files=1).first
    assert (world.coordinator.committed(PATH), world.coordinator.ledger(PATH)) == (before, ledger)
    assert world.coordinator.knows_round(compaction.table_id, RoundId("c1"))
    assert world.coordinator.views.table(PATH).lake_files == 1


def test_it_does_not_start_where_a_deadline_falls_inside_it(world: CoordinatorWorld) -> None:
    """One slot, and rows that must be in the lake before the compaction would end."""
    job = world.job(slots=1, kinds=BOTH)
    world.hot.append(PATH, 5)
    world.clock.advance(130)
    take(job)
    world.clock.advance(49.8)
    take(job, TIER)


def test_its_slots_are_not_given_to_rounds(world: CoordinatorWorld) -> None:
    job = world.job(slots=1, kinds=BOTH)
    (compaction,) = take(job, COMPACT)
    world.hot.append(PATH, 5)
    world.clock.advance(59)
    take(job)
    world.clock.advance(130)
    job.finish(compaction, "c1")
    take(job, TIER)


def test_orphan_removal_leaves_a_side_alone_that_is_worked_on(world: CoordinatorWorld) -> None:
    job, side = world.job(kinds=BOTH), world.coordinator.board.find(PATH)
    (compaction,) = take(job, COMPACT)
    with world.coordinator.upkeep.hold(side) as is_idle:
        assert not is_idle
    job.finish(compaction, "c1")
    with world.coordinator.upkeep.hold(side) as is_idle:
        assert is_idle
        take(job)
