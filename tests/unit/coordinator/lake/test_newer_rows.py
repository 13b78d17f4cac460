# SPDX-License-Identifier: Apache-2.0
"""A restored folder whose lake went on: a resync loads what is newer there into the hot store, in every format."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path

import pytest

from lakeward.errors import BucketStopped, InvalidRequest
from lakeward.model import ColumnChanges, TablePath, parse_type
from lakeward.protocol.operate import ResyncChoice
from lakeward.protocol.tables import AlterTable
from lakeward.verify import verify_table
from lakeward_testing.faults import Faults
from tests.kit.inprocess import InProcessLakeward
from tests.unit.coordinator.lake.test_own_lake_tables import FORMATS, open_lake

NAME, PATH = "db.t", TablePath("db", "t")
COLUMNS = "id BIGINT NOT NULL, v STRING, at TIMESTAMP"
Restore = Callable[..., InProcessLakeward]


def rows(*ids: int, v: str = "old") -> list[dict[str, object]]:
    return [{"id": i, "v": f"{v} {i}", "at": datetime(2026, 1, 2, 3, 4, 5)} for i in ids]


@pytest.fixture(params=FORMATS)
def restore(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Restore]:
    """`restore(before, after, ...)`: what is done before the copy of the folder is made, and what only the lake has."""
    lake, opened = open_lake(request.param, tmp_path), list[InProcessLakeward]()

    def make(
        before: Callable[[InProcessLakeward], object], after: Callable[[InProcessLakeward], object], **table: str
    ) -> InProcessLakeward:
        world = InProcessLakeward(tmp_path / "server", lake)
        opened.append(world)
        world.create(NAME, COLUMNS, buckets=2, **table)
        before(world)
        world.restart()  # everything is on disk
        shutil.copytree(tmp_path / "server", tmp_path / "copy")
        world.coordinator.lakes.read_unseen()
        after(world)
        opened.remove(world)
        world.close()
        restored = InProcessLakeward(tmp_path / "copy", lake, restored=True)
        opened.append(restored)
        restored.coordinator.lakes.read_unseen()
        return restored

    yield make
    for world in opened:
        world.close()


def put(world: InProcessLakeward, *ids: int, v: str = "old") -> None:
    world.upsert(NAME, rows(*ids, v=v))
    world.tier(NAME)


def go_on(world: InProcessLakeward) -> None:
    """Ten rows, of which some are changed, some deleted, and some are new."""
    put(world, *range(3, 7), v="new")
    world.delete(NAME, [{"id": i} for i in (0, 9)])
    put(world, *range(20, 25), v="new")


EXPECTED = {**{i: f"old {i}" for i in (1, 2, 7, 8)}, **{i: f"new {i}" for i in (3, 4, 5, 6, *range(20, 25))}}


def shown(world: InProcessLakeward, mode: str = "union") -> dict[int, str]:
    found = world.read(NAME, mode=mode).to_table().to_pylist()
    assert len({r["id"] for r in found}) == len(found), "a key is there twice"
    return {r["id"]: r["v"] for r in found}


def check(world: InProcessLakeward, expected: dict[int, str]) -> None:
    assert shown(world) == shown(world, "lake") == expected
    certificate = verify_table(world.plugin, PATH, deep=True, open_storage=lambda plan: world.storage(plan.side.lake))
    assert not certificate.all_findings, certificate.all_findings


def test_a_resync_loads_what_is_newer_in_the_lake(restore: Restore) -> None:
    world = restore(lambda w: put(w, *range(10)), go_on, primary_key="id")
    with pytest.raises(BucketStopped, match="resync"):
        world.upsert(NAME, rows(*range(50)))
    assert "lakeward table resync db.t" in world.coordinator.views.table(PATH).blocked
    world.coordinator.operations.resync(PATH, ResyncChoice.RESYNC)
    world.tier(NAME)
    check(world, EXPECTED)
    put(world, 2, 30, v="later")
    check(world, {**EXPECTED, 2: "later 2", 30: "later 30"})
    assert world.coordinator.views.table(PATH).blocked == ""


def test_rows_of_the_backup_that_the_lake_did_not_have_yet_are_there_once(restore: Restore) -> None:
    def half(world: InProcessLakeward) -> None:
        put(world, *range(6))
        world.upsert(NAME, rows(*range(6, 10)))

    world = restore(half, go_on, primary_key="id")
    world.coordinator.operations.resync(PATH, ResyncChoice.RESYNC)
    world.tier(NAME)
    check(world, EXPECTED)


def test_a_load_that_breaks_off_is_made_again(restore: Restore) -> None:
    world = restore(lambda w: put(w, *range(10)), go_on, primary_key="id")
    with Faults() as faults:
        faults.arm("kv.taken-over")
        with pytest.raises(Exception, match=r"kv\.taken-over"):
            world.coordinator.operations.resync(PATH, ResyncChoice.RESYNC)
    world.restart()
    world.coordinator.lakes.read_unseen()
    with pytest.raises(BucketStopped):
        world.upsert(NAME, rows(*range(50)))
    world.coordinator.operations.resync(PATH, ResyncChoice.RESYNC)
    world.tier(NAME)
    check(world, EXPECTED)


def test_a_partition_that_is_newer_than_the_backup_is_loaded(restore: Restore) -> None:
    def partition(world: InProcessLakeward, name: str, *ids: int) -> None:
        world.upsert(NAME, [{**r, "day": name} for r in rows(*ids)])
        world.tier(NAME)

    def create(world: InProcessLakeward) -> None:
        world.federation.drop(PATH)
        world.create(
            NAME,
            "day STRING NOT NULL, id BIGINT NOT NULL, v STRING, at TIMESTAMP",
            primary_key="day, id",
            partition_by="day",
        )
        partition(world, "mon", 1, 2)

    world = restore(create, lambda w: partition(w, "tue", 3, 4))
    world.coordinator.operations.resync(PATH, ResyncChoice.RESYNC)
    world.tier(NAME)
    check(world, {i: f"old {i}" for i in (1, 2, 3, 4)})
    partition(world, "tue", 4, 5)
    check(world, {i: f"old {i}" for i in (1, 2, 3, 4, 5)})


def test_what_is_newer_goes_only_where_that_is_said(restore: Restore) -> None:
    world = restore(lambda w: put(w, *range(10)), go_on, primary_key="id")
    world.coordinator.operations.resync(PATH, ResyncChoice.RESYNC, discard_newer=True)
    world.tier(NAME)
    check(world, {i: f"old {i}" for i in range(10)})


def test_columns_that_the_backup_does_not_know_are_not_lost_without_a_word(restore: Restore) -> None:
    def grow(world: InProcessLakeward) -> None:
        world.add_column(NAME, "note STRING")
        world.upsert(NAME, [{**r, "note": "kept"} for r in rows(3, 30)])
        world.tier(NAME)

    world = restore(lambda w: put(w, *range(10)), grow, primary_key="id")
    with pytest.raises(InvalidRequest, match=r"up to \d changes are newer .*note.*table resync db.t --discard-newer"):
        world.coordinator.operations.resync(PATH, ResyncChoice.RESYNC)
    world.add_column(NAME, "note STRING")
    world.coordinator.operations.resync(PATH, ResyncChoice.RESYNC)
    world.tier(NAME)
    found = {r["id"]: r["note"] for r in world.read(NAME).to_table().to_pylist()}
    assert found == {**dict.fromkeys(range(10)), 3: "kept", 30: "kept"}


@pytest.mark.parametrize("restore", ["paimon"], indirect=True)
def test_values_of_a_wider_type_than_the_backup_has_are_not_cut(restore: Restore) -> None:
    def widen(world: InProcessLakeward) -> None:
        world.federation.alter(PATH, AlterTable.of_columns(ColumnChanges(widen={"n": parse_type("BIGINT")})))
        world.upsert(NAME, [{**r, "n": 2**40} for r in rows(3)])
        world.tier(NAME)

    def number(world: InProcessLakeward) -> None:
        world.add_column(NAME, "n INT")
        put(world, 1, 3)

    world = restore(number, widen, primary_key="id")
    with pytest.raises(InvalidRequest, match=r"column n: lake BIGINT, wanted INT.*table resync db.t --discard-newer"):
        world.coordinator.operations.resync(PATH, ResyncChoice.RESYNC)


def test_a_log_table_keeps_what_only_the_lake_has(restore: Restore) -> None:
    def append(world: InProcessLakeward, *ids: int) -> None:
        world.append(NAME, rows(*ids))
        world.tier(NAME)

    world = restore(lambda w: append(w, 0, 1), lambda w: append(w, 2, 3))
    append(world, 4)
    world.coordinator.operations.resync(PATH, ResyncChoice.RESYNC)
    world.tier(NAME)
    append(world, 5)
    assert sorted(r["id"] for r in world.read(NAME).to_table().to_pylist()) == list(range(6))
    assert sorted(r["id"] for r in world.read(NAME, mode="lake").to_table().to_pylist()) == list(range(6))
