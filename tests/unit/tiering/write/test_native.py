# SPDX-License-Identifier: Apache-2.0
"""A format that merges by key gets the changes as they are: rounds, KV snapshots, resync."""

from __future__ import annotations

import pytest

from lakeward.protocol.heartbeat import TableFailed, TableFinished
from tests.kit.memoryforeign import MemoryForeignEngine
from tests.unit.tiering.world import World, make_table

PK = ("id BIGINT NOT NULL", "name STRING")


def rows(start: int, stop: int, name: str = "n") -> list[dict[str, object]]:
    return [{"id": i, "name": f"{name}{i}"} for i in range(start, stop)]


@pytest.fixture
def world() -> World:
    return World(make_table(*PK, key=("id",)), lake={"deletes": "native"})


def test_rounds_of_changes_bring_the_lake_to_the_state_of_the_hot_store(world: World) -> None:
    world.store.upsert(rows(0, 10))
    assert isinstance(world.run(), TableFinished)
    assert world.lake_rows() == world.store.rows()
    world.store.upsert(rows(3, 6, "u"))
    world.store.upsert(rows(4, 5, "w"))
    world.store.delete([{"id": 9}, {"id": 4}])
    assert isinstance(world.run(), TableFinished)
    assert world.lake_rows() == world.store.rows()


def test_a_resync_takes_a_lake_that_was_rolled_back_to_the_state_of_the_kv(world: World) -> None:
    world.store.upsert(rows(0, 10))
    world.run()
    first = world.reader.snapshots()[0].snapshot_id
    world.store.upsert(rows(3, 6, "u"))
    world.store.delete([{"id": 9}])
    world.run()
    MemoryForeignEngine(world.memory, world.table.path).roll_back(first)
    assert isinstance(world.run(), TableFailed)
    assert isinstance(world.run(resync=True, generation=1), TableFinished)
    assert world.lake_rows() == world.store.rows()
