# SPDX-License-Identifier: Apache-2.0
"""`lakeward explain`'s plan: the same as the round's, and without a trace."""

from __future__ import annotations

from lakeward.model.split import LogSplit
from lakeward.tiering.round.explain import explain
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
