# SPDX-License-Identifier: Apache-2.0
"""The tick beside heartbeats: who plans, and when a job is told to ask again."""

from __future__ import annotations

from lakeward.coordinator.schedule.schedule import QUEUED_AT_ONCE, REPLANNED_TABLES
from lakeward.model import TableState
from tests.kit.world import CoordinatorWorld

MANY = REPLANNED_TABLES + 1


def test_with_many_tables_and_a_ticking_thread_no_heartbeat_plans(world: CoordinatorWorld) -> None:
    fill(world, MANY)
    world.coordinator.schedule.has_thread = True
    job = world.job(slots=4)
    first = job.beat(room=4)
    assert first.tables == ()
    assert first.next_beat_ms == 500, "there is a tick before that"
    world.coordinator.schedule.tick()
    assert len(job.take(4)) == 4


def test_a_job_with_room_asks_again_soon_while_tables_are_queued(world: CoordinatorWorld) -> None:
    fill(world, MANY)
    job = world.job(slots=4)
    assert job.beat(room=1).next_beat_ms == 5_000, "it is full"
    assert job.beat(room=3).next_beat_ms == 5_000
    world.coordinator.schedule.has_thread = True
    late = world.job("late", slots=4).beat(room=4)
    assert (late.tables, late.next_beat_ms) == ((), 500)


def test_an_idle_job_is_told_when_the_next_table_falls_due(world: CoordinatorWorld) -> None:
    world.create("one", table__datalake__freshness="20 s")
    world.hot.append(world.coordinator.views.status().tables[0].path)
    job = world.job()
    job.beat(room=4)
    world.coordinator.schedule.tick()
    told = job.beat(room=4).next_beat_ms
    assert 100 <= told <= 5_000
    world.clock.advance(60)
    assert len(job.take(4)) == 1


def test_many_tables_that_fall_due_at_once_are_all_queued(world: CoordinatorWorld) -> None:
    fill(world, 2 * QUEUED_AT_ONCE + 1)
    world.coordinator.schedule.tick()
    assert {t.state for t in world.coordinator.views.status().tables} == {TableState.PENDING}


def fill(world: CoordinatorWorld, count: int) -> None:
    """So many tables, each with a row that is overdue."""
    for n in range(count):
        world.create(f"t{n}")
    for table in world.coordinator.views.status().tables:
        world.hot.append(table.path)
    world.clock.advance(600)
