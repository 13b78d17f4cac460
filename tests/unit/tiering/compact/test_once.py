# SPDX-License-Identifier: Apache-2.0
"""A compaction that a person runs: nobody handed it out, and rounds go on beside it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lakeward.errors import TableNotFound
from lakeward.lake.memory.plugin import MemoryLakeStorage
from lakeward.lake.memory.table import MemoryLake
from lakeward.model import TablePath, set_injector
from lakeward.protocol.heartbeat import TableFinished
from lakeward.tiering.compact.once import compact_once
from lakeward_testing.clock import ManualClock
from tests.kit.inprocess import InProcessLakeward

PATH = TablePath.parse("shop.t")


def test_a_compaction_under_the_fence_alone_lands_on_what_a_round_did_meanwhile(tmp_path: Path) -> None:
    world = InProcessLakeward(tmp_path, MemoryLakeStorage(MemoryLake()), ManualClock())
    world.create("shop.t", "id bigint not null, name string", primary_key="id", buckets=1)
    for number in range(8):
        world.upsert("shop.t", [{"id": n, "name": f"{number}"} for n in range(4 * number, 4 * number + 4)])
        world.tier("shop.t")

    def meet(point: str, _facts: dict[str, Any]) -> None:
        if point == "compact.written":
            set_injector(None)
            world.delete("shop.t", [{"id": 7}])
            world.tier("shop.t")

    before = set_injector(meet)
    try:
        end = compact_once(world.plugin, PATH, world.world.options, world.clock, world.world.plugins)
        reader = world.lake.open_reader(world.store.load_table(PATH))
        head = reader.load_snapshot()
        assert isinstance(end, TableFinished), end
        assert end.result is not None
        assert head is not None
        assert (head.operation, head.snapshot_id) == ("replace", end.result.snapshot_id)
        assert len(reader.files(head.snapshot_id)) == 1
        assert sorted(world.read("shop.t").to_table().column("id").to_pylist()) == [*range(7), *range(8, 32)]
    finally:
        set_injector(before)
        world.close()


def test_a_table_that_is_not_there_is_refused(tmp_path: Path) -> None:
    world = InProcessLakeward(tmp_path, MemoryLakeStorage(MemoryLake()), ManualClock())
    try:
        with pytest.raises(TableNotFound, match=r"shop\.t"):
            compact_once(world.plugin, PATH, world.world.options, world.clock, world.world.plugins)
    finally:
        world.close()
