# SPDX-License-Identifier: Apache-2.0
"""Leases, restarts, failures: who holds a table, for how long, and what ends it."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest

from lakeward.coordinator.schedule.planner import backoff_ms
from lakeward.model import InstanceId, JobName, RoundId, TablePath, TableState
from lakeward.protocol.heartbeat import (
    WAITING_PER_SLOT,
    HandedOut,
    LeaseCheck,
    Progress,
    TableFailed,
    TableInWork,
    Verdict,
    busy_slots,
)
from tests.kit.world import PATH, CoordinatorWorld, ScriptedJob

S = TableState


def start_round(world: CoordinatorWorld, job: ScriptedJob) -> HandedOut:
    world.hot.append(PATH, 10)
    world.clock.advance(200)
    (table,) = job.take()
    return table


def check(world: CoordinatorWorld, table: HandedOut, round_id: str = "r", instance: str = "i1") -> bool:
    asked = LeaseCheck(
        job=JobName("job"),
        instance=InstanceId(instance),
        table_id=table.table_id,
        epoch=table.epoch,
        round_id=RoundId(round_id),
    )
    return world.coordinator.check_lease(asked).held


def test_a_silent_job_loses_its_table_after_the_lease_without_a_failure(world: CoordinatorWorld) -> None:
    world.create()
    table = start_round(world, world.job())
    world.clock.advance(119)
    world.coordinator.schedule.tick()
    assert check(world, table), "a check is a sign of life"
    world.clock.advance(121)
    world.coordinator.schedule.tick()
    record = world.coordinator.board.find(PATH)
    assert (record.state, record.tier.epoch, record.tier.failures) == (S.PENDING, table.epoch + 1, 0)
    (verdict,) = world.job().work(table).verdicts
    assert verdict.verdict is Verdict.FENCED
    assert "silent for 120 s" in verdict.reason


def test_a_round_that_waits_for_a_lake_leaves_its_slot_to_others(world: CoordinatorWorld) -> None:
    for number in range(WAITING_PER_SLOT + 2):
        world.create(f"t{number}")
        world.hot.append(TablePath("db", f"t{number}"), 3)
    world.clock.advance(200)
    job, stuck = world.job(slots=1), list[TableInWork]()
    for _ in range(WAITING_PER_SLOT + 1):
        (table,) = job.beat(tiering=tuple(stuck), room=1).tables
        works = TableInWork(table_id=table.table_id, epoch=table.epoch)
        assert job.beat(tiering=(*stuck, works), room=1).tables == (), "it has the slot"
        stuck.append(replace(works, progress=Progress(trouble="no answer")))
    assert job.beat(tiering=tuple(stuck), room=1).tables == (), "not more than that wait beside the slots"


@pytest.mark.parametrize("seed", range(8))
def test_a_job_is_not_handed_a_side_whose_old_round_it_still_has(world: CoordinatorWorld, seed: int) -> None:
    """A zombie that wakes up reports a round without a lease. While that round waits for a lake it takes no slot, so
    that the job has room; its table is another job's, or waits until the old round is over."""
    chance = random.Random(seed)
    world.create()
    job, other, works = world.job("zombie", slots=1), world.job("heir", slots=1), dict[RoundId, TableInWork]()
    for number in range(60):
        world.hot.append(PATH, 1)
        world.clock.advance(chance.choice((0.2, 30, 121)))
        world.coordinator.schedule.tick()
        who = chance.choice((job, job, other))
        if who is other:
            for table in other.beat(room=1).tables:
                other.beat(failed=(TableFailed(table_id=table.table_id, epoch=table.epoch, given_back=True, error={}),))
            continue
        room = max(0, 1 - busy_slots([w.progress for w in works.values()], slots=1))
        answer = job.beat(tiering=tuple(works.values()), room=room)
        for table in answer.tables:
            assert not works, f"step {number}: handed out beside {list(works)}"
            progress = Progress(trouble=chance.choice(("", "no answer")))
            works[RoundId(f"r{number}")] = TableInWork(
                table_id=table.table_id, epoch=table.epoch, round_id=RoundId(f"r{number}"), progress=progress
            )
        if chance.random() < 0.3:
            works.clear()


def test_leases_do_not_notice_the_wall_clock(world: CoordinatorWorld) -> None:
    world.create()
    table = start_round(world, world.job())
    world.clock.jump(86_400)
    world.coordinator.schedule.tick()
    assert check(world, table)


def test_a_restart_keeps_leases_with_a_full_period_of_grace(world: CoordinatorWorld) -> None:
    world.create()
    table = start_round(world, world.job())
    world.clock.advance(110)
    world.restart()
    world.clock.advance(110)
    world.coordinator.schedule.tick()
    assert check(world, table)
    assert [v.verdict for v in world.job().finish(table).verdicts] == [Verdict.OK]


def test_overdue_tables_are_queued_at_once_after_a_restart(world: CoordinatorWorld) -> None:
    world.create()
    world.hot.append(PATH)
    world.clock.advance(600)
    world.restart()
    assert len(world.job().take()) == 1


def test_a_lost_file_takes_epochs_and_ledger_from_the_lake(world: CoordinatorWorld) -> None:
    info = world.create().table
    table = start_round(world, world.job())
    world.commit_to_lake(info, 10, epoch=41)
    world.restart(lose_file=True)
    side = world.coordinator.board.find(PATH)
    assert (dict(side.committed.to_json()["offsets"]), side.tier.epoch) == ({"": [[0, 10]]}, 41)
    (entry,) = world.coordinator.ledger(PATH)
    assert (str(entry.kind), str(entry.range)) == ("adopted", "[0, 10)")
    world.hot.append(PATH)
    world.clock.advance(200)
    (again,) = world.job(instance="i2").take()
    assert again.epoch == 42 > table.epoch


def test_no_table_is_queued_before_its_lake_was_read(world: CoordinatorWorld) -> None:
    world.create()
    world.hot.append(PATH)
    world.clock.advance(600)
    world.restart(lose_file=True, read_lakes=False)
    assert world.job().take() == []
    world.coordinator.lakes.read_unseen()
    world.clock.advance(1)
    assert len(world.job().take()) == 1


def test_a_clean_leave_gives_back_at_once(world: CoordinatorWorld) -> None:
    world.create()
    job = world.job()
    table = start_round(world, job)
    job.beat(leaving=True)
    (again,) = world.job("other").take()
    assert again.epoch == table.epoch + 1
    assert not world.coordinator.views.status().jobs[0].live


def test_planning_counts_against_no_limit(world: CoordinatorWorld) -> None:
    """Thousands of KV snapshots may take longer than the round may write."""
    world.create(table__datalake__freshness="60 s")
    job = world.job()
    table = start_round(world, job)
    for _ in range(3):
        world.clock.advance(100)
        assert [v.verdict for v in job.work(table, phase="plan").verdicts] == [Verdict.OK]
    for expected in (Verdict.OK, Verdict.OK, Verdict.FORCE_FINISH):
        assert [v.verdict for v in job.work(table, phase="write").verdicts] == [expected]
        world.clock.advance(16)


def test_a_round_over_its_limit_is_told_to_finish_and_goes_straight_back(world: CoordinatorWorld) -> None:
    world.create(table__datalake__freshness="60 s")
    job = world.job()
    table = start_round(world, job)
    assert [v.verdict for v in job.work(table, phase="write").verdicts] == [Verdict.OK]
    world.clock.advance(29)
    assert [v.verdict for v in job.work(table, phase="write").verdicts] == [Verdict.OK]
    world.clock.advance(2)
    assert [v.verdict for v in job.work(table, phase="write").verdicts] == [Verdict.FORCE_FINISH]
    job.finish(table, force=True)
    record = world.coordinator.board.find(PATH)
    assert (record.state, record.tier.epoch) == (S.PENDING, table.epoch + 1)


def test_a_lease_goes_on_with_a_new_round_and_never_back_to_the_old_one(world: CoordinatorWorld) -> None:
    world.create()
    table = start_round(world, world.job())
    assert check(world, table, "r1")
    assert check(world, table, "r2")
    assert not check(world, table, "r1")


def test_failures_back_off_and_end_in_quarantine_until_resumed(world: CoordinatorWorld) -> None:
    world.set_options(quarantine_after=3)
    world.create()
    job = world.job()
    world.hot.append(PATH)
    world.clock.advance(200)
    waits = []
    for _ in range(3):
        tries = 0
        while not (tables := job.take()):
            world.clock.advance(0.1)
            tries += 1
        waits.append(tries)
        job.fail(tables[0])
    assert waits[0] <= 1
    assert 5 <= waits[1] < waits[2]
    status = world.coordinator.views.table(PATH)
    assert (status.state, status.failures) == (S.QUARANTINED, 3)
    assert status.reason == "3 rounds failed in a row, the last one: lake-unavailable happened"
    world.coordinator.operations.resume(PATH)
    world.clock.advance(1)
    assert len(job.take()) == 1


def test_a_lost_race_is_no_failure(world: CoordinatorWorld) -> None:
    world.create()
    job = world.job()
    table = start_round(world, job)
    job.fail(table, given_back=True)
    record = world.coordinator.board.find(PATH)
    assert (record.state, record.tier.failures, record.tier.failures_in_a_row) == (S.PENDING, 0, 0)


def test_back_off_doubles_up_to_its_limit_and_repeats_with_its_seed() -> None:
    waits = [backoff_ms(n, first_s=1, limit_s=300, jitter=0.2, seed="t") for n in range(1, 40)]
    assert waits == [backoff_ms(n, first_s=1, limit_s=300, jitter=0.2, seed="t") for n in range(1, 40)]
    assert all(0.8 * min(300, 2**n) * 1_000 <= w <= 1.2 * min(300, 2**n) * 1_000 for n, w in enumerate(waits))


def test_a_job_gets_no_more_tables_than_it_has_slots_and_only_of_its_pool(world: CoordinatorWorld) -> None:
    for n in range(5):
        world.create(f"t{n}", table__datalake__pool="fast" if n == 4 else "default")
    for table in world.hot.load_tables():
        world.hot.append(table.path)
    world.clock.advance(600)
    job = world.job(slots=3)
    assert len(job.take(10)) == 3
    assert job.take(10) == []
    (other,) = world.job("fast", pool="fast").take(10)
    assert str(other.path) == "db.t4"


def test_a_job_without_the_plugin_of_a_lake_never_gets_its_tables(world: CoordinatorWorld) -> None:
    world.create()
    world.hot.append(PATH)
    world.clock.advance(600)
    without = world.job("without")
    assert without.beat(room=4, formats=("iceberg", "delta")).tables == ()
    assert not world.coordinator.views.table(PATH).served
    (warning,) = world.coordinator.views.warnings_of(PATH)
    assert "no live job with a plugin for memory serves pool 'default'" in warning
    assert without.beat(room=4, formats=("iceberg", "delta")).tables == ()
    (handed,) = world.job("with").beat(room=4, formats=("iceberg", "memory")).tables
    assert handed.path == PATH
    assert world.coordinator.views.table(PATH).served


def test_a_job_of_an_older_version_does_not_say_and_gets_all(world: CoordinatorWorld) -> None:
    world.create()
    world.hot.append(PATH)
    world.clock.advance(600)
    assert len(world.job().take(4)) == 1


def test_a_printed_command_has_the_name_of_a_pool_in_quotes(world: CoordinatorWorld) -> None:
    """It is pasted into a shell; who may make tables chooses the name."""
    (warning,) = world.create(table__datalake__pool="x; rm -rf $HOME").warnings
    assert "`lakeward tier --pool 'x; rm -rf $HOME'`" in warning


def test_expected_jobs_and_unserved_pools_are_named(world: CoordinatorWorld) -> None:
    world.set_options(jobs_expected=("job", "night"))
    answer = world.create(table__datalake__pool="night")
    assert "no live job serves pool 'night'" in answer.warnings[0]
    world.job().beat()
    status = world.coordinator.views.status()
    assert (status.jobs_missing, status.pools_unserved) == (("night",), ("night",))
    assert [(j.name, j.live, j.expected) for j in status.jobs] == [("job", True, True), ("night", False, True)]


def test_a_wall_clock_set_back_stops_neither_rows_nor_retries(world: CoordinatorWorld) -> None:
    world.create(table__datalake__freshness="20 s")
    world.hot.append(PATH)
    world.coordinator.schedule.tick()
    world.clock.jump(-3_600)
    job = world.job()
    world.clock.advance(19)
    (table,) = job.take()
    assert world.coordinator.views.table(PATH).lag_ms == 19_000
    job.fail(table)
    world.clock.jump(-3_600)
    world.clock.advance(2)
    assert len(job.take()) == 1


def test_an_asked_for_table_is_handed_out_with_the_first_beat(world: CoordinatorWorld) -> None:
    world.create()
    world.hot.append(PATH)
    world.coordinator.ask_now(PATH)
    world.coordinator.schedule.tick()
    assert len(world.job(slots=1).take(1)) == 1


def test_missed_heartbeats_are_counted_long_before_the_lease_ends(tmp_path: Path) -> None:
    world = CoordinatorWorld(tmp_path)
    world.job().beat()
    world.clock.advance(3.5 * world.coordinator.board.options.beat_s)
    (job,) = world.coordinator.views.jobs()
    assert (job.live, job.beats_missed) == (True, 3)
    world.job().beat(leaving=True)
    world.clock.advance(600)
    (job,) = world.coordinator.views.jobs()
    assert (job.live, job.beats_missed) == (False, 0)
