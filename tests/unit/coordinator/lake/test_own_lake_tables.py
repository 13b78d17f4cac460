# SPDX-License-Identifier: Apache-2.0
"""Lake tables that go with their table, are in the way of a new one, or are written again: in every format."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyiceberg.types import LongType

from lakeward.errors import (
    InvalidAlter,
    InvalidRequest,
    LakeForeign,
    LakeMismatch,
    LakeNotEmpty,
    TableNotFound,
)
from lakeward.lake.iceberg.plugin import IcebergLakeStorage
from lakeward.model import TablePath
from lakeward.protocol.heartbeat import TableFailed
from lakeward.spi import LakeStorage, load_lake
from lakeward.verify import verify_table
from tests.kit.inprocess import InProcessLakeward

NAME, PATH = "db.t", TablePath("db", "t")
FORMATS = ("memory", "iceberg", "paimon", "delta", "lance", "hudi")
COLUMNS = "id BIGINT NOT NULL, v STRING"
OTHER = "id BIGINT NOT NULL, amount DOUBLE, at TIMESTAMP"


def open_lake(name: str, folder: Path) -> LakeStorage:
    warehouse = folder / "warehouse"
    warehouse.mkdir()
    database = {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db"} if name == "iceberg" else {}
    return load_lake(name, {"name": str(folder)} if name == "memory" else {"warehouse": warehouse.as_uri(), **database})


@pytest.fixture(params=FORMATS)
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[InProcessLakeward]:
    lake = open_lake(request.param, tmp_path)
    made = InProcessLakeward(tmp_path / "server", lake)
    yield made
    made.close()


def fill(world: InProcessLakeward, count: int = 3, start: int = 0) -> None:
    world.upsert(NAME, [{"id": i, "v": f"v{i}"} for i in range(start, start + count)])
    world.tier(NAME)


def lake_ids(world: InProcessLakeward) -> list[int]:
    return sorted(world.read(NAME, mode="lake").to_table().column("id").to_pylist())


def certify(world: InProcessLakeward) -> None:
    certificate = verify_table(world.plugin, PATH, deep=True, open_storage=lambda plan: world.storage(plan.side.lake))
    assert certificate.holds, (certificate.all_findings, certificate.beyond)


def test_a_lake_table_goes_with_its_table(world: InProcessLakeward) -> None:
    world.create(NAME, COLUMNS, primary_key="id")
    fill(world)
    assert world.federation.drop(PATH, with_lake=True) == ("default",)
    assert not world.lake.catalog().exists(PATH)
    world.create(NAME, OTHER)
    world.append(NAME, [{"id": 7}])
    world.tier(NAME)
    assert lake_ids(world) == [7]
    certify(world)


def test_a_lake_table_that_stayed_is_named_with_the_command_that_removes_it(world: InProcessLakeward) -> None:
    world.create(NAME, COLUMNS, primary_key="id")
    fill(world)
    world.federation.drop(PATH)
    command = f"`lakeward table drop {NAME} --with-lake`"
    with pytest.raises(LakeNotEmpty, match=command):
        world.create(NAME, COLUMNS, primary_key="id")
    with pytest.raises(LakeMismatch, match=command):
        world.create(NAME, OTHER)
    assert world.federation.drop(PATH, with_lake=True) == ("default",)
    world.create(NAME, OTHER)
    with pytest.raises(TableNotFound):
        world.federation.drop(TablePath("db", "none"), with_lake=True)


def test_an_empty_lake_table_of_ours_is_replaced(world: InProcessLakeward) -> None:
    """Its table was dropped before its first round."""
    world.create(NAME, COLUMNS, primary_key="id")
    world.federation.drop(PATH)
    world.create(NAME, OTHER)
    world.append(NAME, [{"id": 7}])
    world.tier(NAME)
    assert lake_ids(world) == [7]


def test_a_lake_table_is_written_again_while_its_table_lives(world: InProcessLakeward) -> None:
    world.create(NAME, COLUMNS, primary_key="id")
    fill(world)
    world.upsert(NAME, [{"id": 1, "v": "new"}])
    world.federation.rebuild_lake(PATH)
    world.tier(NAME)
    assert lake_ids(world) == [0, 1, 2]
    fill(world, start=10)
    assert lake_ids(world) == [0, 1, 2, 10, 11, 12]
    certify(world)


def test_rows_that_the_lake_alone_has_are_counted_before_it_is_written_again(world: InProcessLakeward) -> None:
    """Offsets below a gap of a restored folder: the log never had the rows."""
    world.create(NAME, COLUMNS)
    world.append(NAME, [{"id": i, "v": "x"} for i in range(5)])
    world.tier(NAME)
    table = world.store.load_table(PATH)
    world.store.guard_offsets(
        table, world.coordinator.board.find(PATH).committed.raised(dict.fromkeys(world.store.bounds(table), 9))
    )
    with pytest.raises(InvalidRequest, match=f"up to 4 rows .* `lakeward table rebuild-lake {NAME} --discard-older`"):
        world.federation.rebuild_lake(PATH)
    assert lake_ids(world) == list(range(5))
    world.federation.rebuild_lake(PATH, discard_older=True)
    world.tier(NAME)
    assert lake_ids(world) == list(range(5))


def test_a_lake_table_of_another_table_is_never_removed(world: InProcessLakeward) -> None:
    world.create(NAME, COLUMNS)
    world.append(NAME, [{"id": 1}])
    world.tier(NAME)
    other = InProcessLakeward(world.folder / "other", world.lake)
    other.federation.drop(PATH, with_lake=True)
    other.create(NAME, COLUMNS)
    other.append(NAME, [{"id": 2}])
    other.tier(NAME)
    for refused in (lambda: world.federation.drop(PATH, with_lake=True), lambda: world.federation.rebuild_lake(PATH)):
        with pytest.raises(LakeForeign):
            refused()
    assert lake_ids(other) == [2]
    other.close()


def test_a_type_that_does_not_go_back_leads_to_a_lake_table_that_is_written_again(tmp_path: Path) -> None:
    lake = open_lake("iceberg", tmp_path)
    assert isinstance(lake, IcebergLakeStorage)
    world = InProcessLakeward(tmp_path / "server", lake)
    world.create(NAME, "id BIGINT NOT NULL, n INT", primary_key="id")
    world.upsert(NAME, [{"id": 1, "n": 1}])
    world.tier(NAME)
    with lake.connection.load(PATH).update_schema() as update:
        update.update_column("n", LongType())
    world.upsert(NAME, [{"id": 2, "n": 2}])
    failed = world.tier(NAME)[-1]
    assert isinstance(failed, TableFailed)
    assert f"`lakeward table reconcile-schema {NAME}`" in failed.error["message"]
    with pytest.raises(InvalidAlter, match=f"`lakeward table rebuild-lake {NAME}`"):
        world.federation.reconcile_schema(PATH)
    world.federation.rebuild_lake(PATH)
    world.tier(NAME)
    assert lake_ids(world) == [1, 2]
    certify(world)
    world.close()
