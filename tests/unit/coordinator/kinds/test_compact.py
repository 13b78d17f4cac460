# SPDX-License-Identifier: Apache-2.0
"""When a compaction is handed out, what stops it, and when the next one comes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lakeward.coordinator.kinds.compact import LOOK_FILES, LOOK_S
from lakeward.model import TIER, TablePath
from lakeward.model.side import COMPACT
from lakeward.protocol.heartbeat import HandedOut, Verdict
from tests.kit.world import PATH, CoordinatorWorld, ScriptedJob

BOTH = (TIER, COMPACT)
MB = 1 << 20


@pytest.fixture
def world(tmp_path: Path) -> Iterator[CoordinatorWorld]:
    opened = CoordinatorWorld(tmp_path)
    opened.create()
    tier(opened, 20)
    yield opened
    opened.close()


def tier(world: CoordinatorWorld, files: int, **figures: Any) -> None:
    """A round after which the lake has so many files."""
    world.hot.append(PATH, 10)
    world.clock.advance(200)
    job = world.job(name="rounds")
    (table,) = job.take()
    side = world.coordinator.board.find(PATH)
    start, round_id = sum(side.committed.values()), f"r{sum(side.committed.values())}"
    job.commit(table, start, start + 10, round_id, lake_files=files, **figures)
    job.finish(table, round_id)
    job.beat(leaving=True)
    world.clock.advance(LOOK_S)


def take(job: ScriptedJob, room: int = 1) -> list[HandedOut]:
    return [h for h in job.take(room=room) if h.kind == COMPACT]


def finish(job: ScriptedJob, handed: HandedOut, *, left: int, **facts: int | bool) -> None:
    """The lake has `left` files now."""
    more = bool(facts.pop("force_finished", False))
    job.commit(handed, 0, 0, f"c{handed.epoch}", work=COMPACT, lake_files=left)
    job.finish(handed, f"c{handed.epoch}", force=more, **facts)
    job.world.clock.advance(LOOK_S)


def test_a_side_with_new_files_is_handed_out_once_until_there_are_more(world: CoordinatorWorld) -> None:
    job = world.job(kinds=BOTH)
    (handed,) = take(job)
    finish(job, handed, left=3, files_replaced=18, files=1)
    assert take(job) == []
    tier(world, 3 + LOOK_FILES - 1)
    assert take(job) == []
    tier(world, 3 + LOOK_FILES)
    assert len(take(job)) == 1


def test_delete_files_count_as_well(world: CoordinatorWorld) -> None:
    job = world.job(kinds=BOTH)
    finish(job, *take(job), left=3, files_replaced=18, files=1)
    tier(world, 4, lake_delete_files=LOOK_FILES)
    assert len(take(job)) == 1


def test_rounds_of_upserts_are_counted_by_their_data_files(world: CoordinatorWorld) -> None:
    """Each brings a delete file as well, which leaves nothing to merge any sooner."""
    job = world.job(kinds=BOTH)
    finish(job, *take(job), left=3, files_replaced=18, files=1)
    for number in range(1, LOOK_FILES):
        tier(world, 3 + number, lake_delete_files=number)
        assert take(job) == []
    tier(world, 3 + LOOK_FILES, lake_delete_files=LOOK_FILES)
    assert len(take(job)) == 1


def test_what_did_not_fit_goes_on_at_once(world: CoordinatorWorld) -> None:
    job = world.job(kinds=BOTH)
    finish(job, *take(job), left=12, files_replaced=9, files=1, debt_files=15, debt_rows=4, force_finished=True)
    assert {w.kind: w.debt_files for w in world.coordinator.views.table(PATH).work} == {TIER: None, COMPACT: 7}
    assert world.coordinator.views.table(PATH).debt_rows == 4
    assert len(take(job)) == 1


def test_what_compactions_did_is_counted(world: CoordinatorWorld) -> None:
    job, board = world.job(kinds=BOTH), world.coordinator.views
    ((_, before),) = board.side_figures().items()
    assert before["debtFiles"] == -1
    figures = {"bytes_read": 900, "bytes_written": 600, "groups_left_out": 1, "debt_files": 15}
    (handed,) = take(job)
    finish(job, handed, left=12, files_replaced=9, files=1, **figures)
    done = {kind: figures for (_, kind), figures in board.work_figures().items()}[COMPACT]
    assert (done["bytesRewritten"], done["bytesOut"], done["filesReplaced"], done["groupsDropped"]) == (900, 600, 9, 1)
    ((_, after),) = board.side_figures().items()
    assert after["debtFiles"] == 7
    assert after["writeAmplification"] == 600 / max(
        1, board.work_figures()[next(iter(board.side_figures())), TIER]["bytesOut"]
    )


def test_a_side_is_looked_at_again_an_hour_after_its_last_rows_and_then_left(world: CoordinatorWorld) -> None:
    job = world.job(kinds=BOTH)
    finish(job, *take(job), left=3)
    world.clock.advance(3_500)
    assert take(job) == []
    world.clock.advance(200)
    finish(job, *take(job), left=3)
    world.clock.advance(2 * 3_600)
    assert take(job) == []


@pytest.mark.parametrize("quiet_s", [60, 3 * 3_600])
def test_it_is_looked_at_when_nothing_came_for_as_long_as_the_setting_says(tmp_path: Path, quiet_s: int) -> None:
    world = CoordinatorWorld(tmp_path, quiet_after_s=quiet_s)
    world.create()
    tier(world, 20)
    job = world.job(kinds=BOTH)
    finish(job, *take(job), left=3)
    world.clock.advance(quiet_s - 2 * LOOK_S)
    assert take(job) == []
    world.clock.advance(2 * LOOK_S)
    finish(job, *take(job), left=3)
    world.clock.advance(2 * quiet_s)
    assert take(job) == []
    world.close()


@pytest.mark.parametrize("switch", ["auto_maintenance", "auto_compaction"])
def test_a_table_can_be_left_out(tmp_path: Path, switch: str) -> None:
    world = CoordinatorWorld(tmp_path)
    properties: Any = {f"table__datalake__{switch}": "false"}
    world.create(**properties)
    tier(world, 20)
    assert take(world.job(kinds=BOTH)) == []
    world.close()


def test_a_pool_gives_it_a_share_of_its_slots(tmp_path: Path) -> None:
    world = CoordinatorWorld(tmp_path, compaction_slots=0.5)
    for name in ("t", "u", "v"):
        world.create(name)
    tier_all(world, ("t", "u", "v"))
    assert len(take(world.job(kinds=BOTH), room=4)) == 2
    world.close()


def test_a_job_without_the_plugin_of_a_lake_gets_none(tmp_path: Path) -> None:
    """Neither those that are due, nor those that somebody asked for."""
    world = CoordinatorWorld(tmp_path, compaction_slots=1.0)
    world.create("t")
    tier_all(world, ("t",))
    job = world.job(kinds=BOTH)
    for _ in range(2):
        assert job.beat(room=4, formats=("delta", "iceberg")).tables == ()
        world.coordinator.operations.maintain_now(TablePath("db", "t"))
    (handed,) = job.beat(room=4, formats=("delta", "memory")).tables
    assert handed.kind == COMPACT
    world.close()


def test_where_more_are_in_work_than_the_share_allows_no_other_is_handed_out(tmp_path: Path) -> None:
    """A job that left took its slots along."""
    world = CoordinatorWorld(tmp_path, compaction_slots=0.5)
    names = ("t", "u", "v", "w")
    for name in names:
        world.create(name)
    tier_all(world, names)
    stays, leaves = world.job(name="stays", slots=3, kinds=BOTH), world.job(name="leaves", slots=4, kinds=BOTH)
    leaves.beat()
    handed = take(stays, room=2)
    assert len(handed) == 2
    leaves.beat(leaving=True)
    for name in {*names} - {h.path.table for h in handed}:
        world.coordinator.operations.maintain_now(TablePath("db", name))
    assert take(stays) == []
    world.close()


def test_a_job_that_takes_no_rounds_gets_compactions_for_all_of_its_slots(tmp_path: Path) -> None:
    """Its slots are not the rounds': neither spared for them, nor counted as theirs."""
    world = CoordinatorWorld(tmp_path, compaction_slots=0.5)
    for name in ("t", "u", "v"):
        world.create(name)
    tier_all(world, ("t", "u", "v"))
    tidy, both = world.job(name="tidy", slots=2, kinds=(COMPACT,)), world.job(name="both", slots=2, kinds=BOTH)
    handed = take(tidy, room=2)
    assert len(handed) == 2
    (shared,) = take(both, room=2)  # half of its own slots
    for name in ("t", "u", "v"):
        world.hot.append(TablePath("db", name), 5)
    world.clock.advance(90)
    for job, tables in ((tidy, handed), (both, [shared])):
        for table in tables:
            job.work(table, f"c-{table.path.table}")
    world.clock.advance(89.8)
    world.coordinator.schedule.tick()
    assert [h.kind for h in both.take(room=2)] == [TIER]
    verdicts = [v for h in handed for v in tidy.work(h, f"c-{h.path.table}").verdicts]
    assert {v.verdict for v in verdicts} == {Verdict.OK}
    world.close()


def ask_three(world: CoordinatorWorld) -> None:
    """Tables whose compaction somebody asked for."""
    names = ("t", "u", "v")
    for name in names:
        world.create(name)
    tier_all(world, names)
    for name in names:
        world.coordinator.operations.maintain_now(TablePath("db", name))


def test_what_was_asked_for_stays_within_the_share_of_the_slots(tmp_path: Path) -> None:
    world = CoordinatorWorld(tmp_path, compaction_slots=0.5)
    ask_three(world)
    assert len(take(world.job(kinds=BOTH), room=4)) == 2
    world.close()


def test_what_was_asked_for_leaves_the_slot_that_a_silent_jobs_round_will_need(tmp_path: Path) -> None:
    """Its lease ran out, and the sweep that gives the round to somebody else has not come yet."""
    world = CoordinatorWorld(tmp_path, compaction_slots=1.0, sweep_s=15.0)
    ask_three(world)
    world.hot.append(PATH, 10)
    world.clock.advance(200)
    world.coordinator.schedule.tick()
    (round_,) = world.job(name="silent", slots=1).take()
    assert round_.kind == TIER
    world.clock.advance(world.options.lease_s - 1)
    world.coordinator.schedule.tick()  # a sweep, one second too early
    world.clock.advance(2)
    both = world.job(name="both", slots=2, kinds=BOTH)
    assert len(take(both, room=2)) == 1
    world.close()


def tier_all(world: CoordinatorWorld, names: tuple[str, ...]) -> None:
    for name in names:
        world.hot.append(TablePath("db", name), 10)
    world.clock.advance(200)
    job = world.job(name="rounds")
    for table in job.take(room=4):
        job.commit(table, 0, 10, f"r-{table.path.table}", lake_files=20)
        job.finish(table, f"r-{table.path.table}")
    world.clock.advance(LOOK_S)


def test_so_many_bytes_an_hour_and_no_more(tmp_path: Path) -> None:
    world = CoordinatorWorld(tmp_path, compaction_bytes_per_hour=10 * MB)
    world.create()
    tier(world, 20)
    job = world.job(kinds=BOTH)
    finish(job, *take(job), left=12, files_replaced=9, files=1, bytes_written=10 * MB, force_finished=True)
    assert take(job) == []
    world.clock.advance(3_600)
    assert len(take(job)) == 1
    world.close()


def test_it_is_told_to_stop_when_a_round_needs_its_slot(world: CoordinatorWorld) -> None:
    job = world.job(slots=1, kinds=BOTH)
    (handed,) = take(job)
    (verdict,) = job.work(handed, "c1").verdicts
    assert verdict.verdict is Verdict.OK
    world.hot.append(PATH, 5)
    world.clock.advance(90)
    job.work(handed, "c1")
    world.clock.advance(89.8)
    world.coordinator.schedule.tick()
    (verdict,) = job.work(handed, "c1").verdicts
    assert (verdict.verdict, verdict.reason) == (Verdict.FORCE_FINISH, "a round needs the slot")


@pytest.mark.parametrize("pressing", ["asked for", "urgent"])
def test_one_that_presses_is_not_stopped_before_a_group_is_done(tmp_path: Path, pressing: str) -> None:
    """Where rounds leave no pause it would be broken off each time, with nothing done."""
    world = CoordinatorWorld(tmp_path, urgent_files=10 if pressing == "urgent" else 1_000)
    world.create()
    tier(world, 20)
    if pressing == "asked for":
        world.coordinator.operations.maintain_now(PATH)
    job = world.job(slots=1, kinds=BOTH)
    (handed,) = take(job)
    world.hot.append(PATH, 5)
    world.clock.advance(90)
    job.work(handed, "c1")
    world.clock.advance(89.8)
    world.coordinator.schedule.tick()
    (verdict,) = job.work(handed, "c1", splits_total=2).verdicts
    assert verdict.verdict is Verdict.OK
    (verdict,) = job.work(handed, "c1", splits_done=1, splits_total=2).verdicts
    assert (verdict.verdict, verdict.reason) == (Verdict.FORCE_FINISH, "a round needs the slot")
    world.close()


def test_what_is_asked_for_waits_for_no_failure_before(world: CoordinatorWorld) -> None:
    job = world.job(kinds=BOTH)
    for _ in range(5):
        world.clock.advance(300)
        (handed,) = take(job)
        job.fail(handed)
    world.clock.advance(LOOK_S)
    assert take(job) == []
    world.coordinator.operations.maintain_now(PATH)
    assert len(take(job)) == 1


def test_what_was_asked_for_outlives_a_restart(world: CoordinatorWorld) -> None:
    job = world.job(kinds=BOTH)
    finish(job, *take(job), left=3, files_replaced=18, files=1)
    world.coordinator.operations.maintain_now(PATH)
    world.restart()
    finish(job, *take(job), left=3)
    world.restart()
    world.clock.advance(LOOK_S)
    assert take(job) == []


def test_with_a_free_slot_beside_it_it_goes_on(world: CoordinatorWorld) -> None:
    job = world.job(slots=2, kinds=BOTH)
    (handed,) = take(job)
    world.hot.append(PATH, 5)
    world.clock.advance(90)
    job.work(handed, "c1")
    world.clock.advance(89.8)
    world.coordinator.schedule.tick()
    (verdict,) = job.work(handed, "c1").verdicts
    assert verdict.verdict is Verdict.OK


def test_far_too_many_files_take_a_slot_that_a_deadline_falls_into(tmp_path: Path) -> None:
    world = CoordinatorWorld(tmp_path, urgent_files=100)
    world.create()
    tier(world, 100)
    world.hot.append(PATH, 5)
    world.clock.advance(177)
    assert take(world.job(slots=1, kinds=BOTH)) == []
    world.close()
    (tmp_path / "crowded").mkdir()
    crowded = CoordinatorWorld(tmp_path / "crowded", urgent_files=100)
    crowded.create()
    tier(crowded, 101)
    crowded.hot.append(PATH, 5)
    crowded.clock.advance(177)
    assert len(take(crowded.job(slots=1, kinds=BOTH))) == 1
    crowded.close()


def test_what_it_learnt_outlives_a_restart(world: CoordinatorWorld) -> None:
    job = world.job(kinds=BOTH)
    finish(job, *take(job), left=3, files_replaced=18, files=1, debt_files=18)
    world.restart()
    world.clock.advance(LOOK_S)
    assert take(job) == []
    assert world.coordinator.board.find(PATH).work(COMPACT).debt_files == 1
