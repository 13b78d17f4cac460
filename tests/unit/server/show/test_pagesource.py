# SPDX-License-Identifier: Apache-2.0
"""The files of a side's lake table, as its page shows them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lakeward.errors import TableBusy
from lakeward.model import DEFAULT_SIDE, Content, SideName, TablePath
from lakeward.server.feed.pagesource import ServerSource
from lakeward_testing.clock import ManualClock
from tests.kit.inprocess import InProcessLakeward
from tests.property.union_program import memory_lake

PATH = TablePath("db", "t")
CHANGES = SideName("default", Content.CHANGELOG)


def test_files_are_those_of_the_side_that_is_asked_for(tmp_path: Path) -> None:
    world = InProcessLakeward(tmp_path, memory_lake(tmp_path), clock := ManualClock())
    changelog: dict[str, Any] = {"table.datalake.changelog": "default"}
    world.create(str(PATH), "id bigint not null, v string", primary_key="id", **changelog)
    source = ServerSource(world.coordinator, world.store, clock)
    world.upsert(str(PATH), [{"id": 1, "v": "a"}, {"id": 2, "v": "b"}])
    for side in (DEFAULT_SIDE, CHANGES):
        world.tier(str(PATH), side)
    world.delete(str(PATH), [{"id": 2}])
    for side in (DEFAULT_SIDE, CHANGES):
        world.tier(str(PATH), side)
    shown = [source.lake_files(PATH, side) for side in (None, DEFAULT_SIDE, CHANGES)]
    assert [(s["table"], s["files"]) for s in shown] == [("db.t", 1), ("db.t", 1), ("db.t", 2)]
    world.close()


def test_a_table_whose_lake_is_off_says_so(tmp_path: Path) -> None:
    world = InProcessLakeward(tmp_path, memory_lake(tmp_path), clock := ManualClock())
    switch: dict[str, Any] = {"table.datalake.enabled": "false"}
    world.create(str(PATH), "id bigint not null, v string", primary_key="id", **switch)
    with pytest.raises(TableBusy, match="the lake is switched off for it"):
        ServerSource(world.coordinator, world.store, clock).lake_files(PATH, None)
    world.close()
