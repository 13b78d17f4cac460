# SPDX-License-Identifier: Apache-2.0
"""`lakeward explain`'s plan: the same as the round's, and without a trace."""

from __future__ import annotations

from lakeward.model import LogSplit
from lakeward.tiering.round.explain import explain
from tests.kit.memoryforeign import MemoryForeignEngine
from tests.unit.tiering.world import World, make_table


def test_the_plan_is_shown_and_nothing_is_taken() -> None:
    world = World(make_table("id BIGINT NOT NULL", "name STRING", key=("id",)))
    world.store.upsert([{"id": 1, "name": "a"}, {"id": 2, "name": "b"}])
    shown = explain(world.shared.hot, world.table.path, plugins=world.shared.plugins)
    assert "  snapshot 0 to be taken at 2" in shown.lines()
    assert world.store.snapshots == {}
    assert world.coordinator.rounds == []
    world.run()
    world.store.upsert([{"id": 1, "name": "c"}])
    lines = explain(world.shared.hot, world.table.path, plugins=world.shared.plugins).lines()
    assert "  log 0 [2, 4)" in lines
    world.run()
    assert (
        explain(world.shared.hot, world.table.path, plugins=world.shared.plugins)
        .lines()[-1]
        .startswith("no new offsets")
    )


def test_cuts_fall_where_the_rounds_do() -> None:
    """A -U and its +U stay together, as in the round."""
    world = World(make_table("id BIGINT NOT NULL", "name STRING", key=("id",)))
    world.store.upsert([{"id": 1, "name": "a"}, {"id": 2, "name": "b"}])
    world.run()
    world.store.upsert([{"id": 1, "name": "c"}, {"id": 2, "name": "d"}])
    shown = explain(world.shared.hot, world.table.path, plugins=world.shared.plugins, target_bytes=10)
    assert [str(split.range) for split in shown.plan.splits if isinstance(split, LogSplit)] == ["[2, 4)", "[4, 6)"]


def test_a_resync_is_planned_as_the_round_plans_it() -> None:
    """A lake that others took back: the log is read again from where the lake now stands."""
    world = World()
    for n in range(3):
        world.store.append([{"id": n, "name": "a"}, {"id": n + 10, "name": "b"}])
        world.run()
    MemoryForeignEngine(world.memory, world.table.path).roll_back(world.reader.snapshots()[0].snapshot_id)
    world.coordinator.resync = True
    shown = explain(world.shared.hot, world.table.path, plugins=world.shared.plugins)
    assert shown.lines()[1:] == [
        "a resync: the lake is taken as it is, what it lacks comes from the log as far as that goes",
        "  log 0 [2, 6)",
        "1 split, 4 log records, about 40 bytes",
    ]
    assert world.coordinator.generation == 0, "nothing is told"
    world.run(resync=True, generation=1)
    assert [str(r.range) for r in world.coordinator.rounds[-1].ranges] == ["[2, 6)"]


def test_a_resync_shows_the_rows_that_nobody_has() -> None:
    world = World()
    world.store.append([{"id": n, "name": "a"} for n in range(5)])
    world.run()
    world.store.append([{"id": n, "name": "b"} for n in range(10)])
    world.store.cut_log(10)
    world.coordinator.resync = True
    shown = explain(world.shared.hot, world.table.path, plugins=world.shared.plugins).lines()
    assert "gap 0 [5, 10): these rows were gone before the lake had them" in shown
    assert "  log 0 [10, 15)" in shown
