# SPDX-License-Identifier: Apache-2.0
"""Snapshots of a cut have its name in lakes that have such names, through what other engines do to the lake."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import lance
import pytest

from lakeward.errors import SnapshotGone
from lakeward.lake.iceberg.plugin import IcebergLakeStorage
from lakeward.lake.lance.storage import LanceLakeStorage
from lakeward.lake.paimon.storage import PaimonLakeStorage
from lakeward.model import SnapshotId
from lakeward.spi import LakeStorage
from lakeward_testing.faults import Faults
from lakeward_testing.icebergforeign import IcebergForeignEngine
from lakeward_testing.lanceforeign import LanceForeignEngine
from lakeward_testing.paimonforeign import PaimonForeignEngine
from tests.kit.inprocess import InProcessLakeward
from tests.kit.world import PATH
from tests.property.union_program import iceberg_lake, lance_lake, paimon_lake

TAG = "lakeward-cut-c"
NAME = str(PATH)


@pytest.fixture(params=[iceberg_lake, paimon_lake, lance_lake], ids=lambda make: make.__name__)
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[InProcessLakeward]:
    made = make_world(tmp_path, request.param)
    yield made
    made.close()


def make_world(folder: Path, make: Callable[[Path], LakeStorage]) -> InProcessLakeward:
    """A table with a cut that no lake has yet."""
    world = InProcessLakeward(folder, make(folder))
    world.create(NAME, "id bigint not null", primary_key="id")
    world.upsert(NAME, [{"id": 0}])
    world.tier(NAME)
    world.delete(NAME, [{"id": 0}])
    world.upsert(NAME, [{"id": 1}, {"id": 2}])
    world.coordinator.cuts.create("c", (PATH,))
    world.tier(NAME)
    return world


def tags(lake: LakeStorage) -> set[str]:
    """As each format's own library lists them."""
    if isinstance(lake, IcebergLakeStorage):
        return set(lake.connection.load(PATH).metadata.refs)
    if isinstance(lake, PaimonLakeStorage):
        return set(lake.connection.load(PATH).list_tags())
    assert isinstance(lake, LanceLakeStorage)
    return set(lance.dataset(lake.table(PATH).root).tags.list())


def expire_as_others(lake: LakeStorage) -> None:
    if isinstance(lake, IcebergLakeStorage):
        IcebergForeignEngine(lake.connection.catalog, PATH).expire()
    elif isinstance(lake, PaimonLakeStorage):
        PaimonForeignEngine(lake.connection, PATH).expire()
    else:
        assert isinstance(lake, LanceLakeStorage)
        LanceForeignEngine(lake.table(PATH)).clean_up()


def shown(world: InProcessLakeward, cut: str | None = None) -> list[int]:
    return sorted(world.read(NAME, cut=cut).to_table()["id"].to_pylist())


def test_others_expiry_leaves_the_cut_until_it_is_dropped(world: InProcessLakeward) -> None:
    world.coordinator.cuts.settle()
    assert TAG in tags(world.lake)
    for number in (1, 3):
        world.delete(NAME, [{"id": number}])
        world.upsert(NAME, [{"id": 10 * number}])
        world.tier(NAME)
    before = len(world.lake.open_reader(world.store.load_table(PATH)).snapshots())
    expire_as_others(world.lake)
    assert len(world.lake.open_reader(world.store.load_table(PATH)).snapshots()) < before
    assert shown(world, "c") == [1, 2]
    assert shown(world) == [2, 10, 30]
    for _ in range(2):
        world.restart()
        assert shown(world, "c") == [1, 2]
    world.coordinator.cuts.drop("c")
    assert TAG not in tags(world.lake)


def test_a_cut_that_is_dropped_while_it_is_tagged_leaves_no_tag(world: InProcessLakeward) -> None:
    cuts = world.coordinator.cuts

    def drop(_facts: dict[str, Any]) -> bool:
        cuts.drop("c")
        return False

    with Faults() as faults:
        faults.arm("cut.tagged", when=drop)
        cuts.settle()
    assert "cut.tagged" in faults.seen
    assert cuts.listed() == []
    assert TAG not in tags(world.lake)


def test_a_snapshot_whose_number_was_used_again_is_not_shown_for_the_cut(tmp_path: Path) -> None:
    """Paimon counts on from the snapshot that others rolled back to."""
    world = make_world(tmp_path, paimon_lake)
    world.coordinator.cuts.settle()
    assert shown(world, "c") == [1, 2]
    assert isinstance(world.lake, PaimonLakeStorage)
    foreign = PaimonForeignEngine(world.lake.connection, PATH)
    foreign.roll_back(SnapshotId("1"))
    foreign.touch()
    with pytest.raises(SnapshotGone, match="rolled back"):
        shown(world, "c")
    world.close()
