# SPDX-License-Identifier: Apache-2.0
"""A data folder that is an older copy, of a table in two lakes that stand differently."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from lakeward.errors import WritesPaused
from lakeward.model import DEFAULT_SIDE, SideName, TablePath, TableState
from lakeward.protocol.operate import ResyncChoice
from lakeward.spi import load_lake
from lakeward.verify import verify_table
from lakeward_testing.clock import ManualClock
from tests.kit.inprocess import InProcessLakeward

AHEAD = SideName("ahead")
NAME, PATH = "db.t", TablePath("db", "t")


def restored(folder: Path, primary_key: str) -> InProcessLakeward:
    """One lake has five rows that the copy has not; the other has nothing yet."""
    lake = load_lake("memory", {"name": str(folder)})
    named = {"ahead": load_lake("memory", {"name": f"{folder}/ahead"})}
    (folder / "data").mkdir()
    first = InProcessLakeward(folder / "data", lake, ManualClock(), named=named)
    lakes = {"table.datalake.lakes": "default, ahead"}
    first.create(NAME, "id bigint not null, v string", primary_key=primary_key, buckets=1, **lakes)
    put(first, range(5))
    first.restart()  # everything is on disk
    shutil.copytree(folder / "data", folder / "copy")
    put(first, range(5, 10))
    first.coordinator.lakes.read_unseen()
    first.tier(NAME, AHEAD)
    first.close()
    return InProcessLakeward(folder / "copy", lake, ManualClock(), named=named, restored=True)


def put(world: InProcessLakeward, ids: range) -> None:
    rows = [{"id": i, "v": "x"} for i in ids]
    world.upsert(NAME, rows) if world.store.load_table(PATH).is_pk else world.append(NAME, rows)


def check_lake(world: InProcessLakeward, side: SideName, *ids: int) -> None:
    rows = world.read(NAME, lake=str(side), mode="lake").to_table().to_pylist()
    assert sorted(r["id"] for r in rows) == list(ids)
    certificate = verify_table(world.plugin, PATH, side=side, open_storage=lambda plan: world.storage(plan.side.lake))
    assert certificate.holds, certificate.all_findings


def test_writes_wait_until_every_lake_has_said_where_it_stands(tmp_path: Path) -> None:
    world = restored(tmp_path, "")
    assert world.coordinator.read_lake(PATH, DEFAULT_SIDE)
    with pytest.raises(WritesPaused):
        put(world, range(20, 21))
    assert world.coordinator.read_lake(PATH, AHEAD)
    put(world, range(20, 21))
    world.close()


def test_what_one_lake_has_alone_is_a_gap_of_the_other(tmp_path: Path) -> None:
    world = restored(tmp_path, "")
    world.coordinator.lakes.read_unseen()
    put(world, range(20, 23))
    for side in (DEFAULT_SIDE, AHEAD):
        world.tier(NAME, side)
    check_lake(world, DEFAULT_SIDE, *range(5), *range(20, 23))
    check_lake(world, AHEAD, *range(10), *range(20, 23))
    assert world.coordinator.read_plan(PATH).side == AHEAD  # it has the rows that the other lacks
    world.close()


def test_a_side_of_a_keyed_table_is_resynced_by_itself(tmp_path: Path) -> None:
    world = restored(tmp_path, "id")
    world.coordinator.lakes.read_unseen()
    states = {side: world.coordinator.views.table(PATH, side).state for side in (DEFAULT_SIDE, AHEAD)}
    assert states == {DEFAULT_SIDE: TableState.SCHEDULED, AHEAD: TableState.PAUSED}
    world.coordinator.operations.resync(PATH, ResyncChoice.RESYNC, AHEAD)
    world.tier(NAME, AHEAD)
    put(world, range(20, 23))
    for side in (DEFAULT_SIDE, AHEAD):
        world.tier(NAME, side)
        check_lake(world, side, *range(10), *range(20, 23))
    world.close()
