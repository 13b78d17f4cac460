# SPDX-License-Identifier: Apache-2.0
"""The ways out for a table from before names that differ in case alone were refused: it goes on as it was, Spark reads
it once it minds case, and its rows move to a table with other names.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lakeward.client.columns import parse_columns
from lakeward.errors import InvalidRequest, InvalidTable
from lakeward.model import Schema, TableDescriptor, TableInfo, TablePath, new_table_id
from lakeward.read.arrow import request_of
from lakeward.read.spark.batch import read_frame
from lakeward.read.sql import parse_query, used_columns
from lakeward.verify import verify_table
from tests.kit.iceberg.folder import folder_lake
from tests.kit.inprocess import InProcessLakeward

pytestmark = [
    pytest.mark.spark,
    # Py4J leaves sockets to the garbage collector.
    pytest.mark.filterwarnings("ignore:.*socket.socket.*:pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore:.*unclosed <socket.*:ResourceWarning"),
]

MINDS_CASE = "spark.sql.caseSensitive"
PATH = "db.t"
ROWS = [(1, "small", "BIG", None), (2, "small", "BIG", None), (3, "tail", "TAIL", "new")]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[InProcessLakeward]:
    with folder_lake(tmp_path) as lake:
        world = InProcessLakeward(tmp_path / "server", lake)
        yield world
        world.close()


@pytest.fixture
def any_case(spark: Any) -> Iterator[Any]:
    yield spark
    spark.conf.unset(MINDS_CASE)


def create_as_before(world: InProcessLakeward, columns: str) -> TableInfo:
    """In lake, hot store and coordinator, without the check that is there now."""
    descriptor = TableDescriptor(schema=Schema(columns=parse_columns(columns)), primary_key=("id",))
    table = TableInfo(path=TablePath.parse(PATH), table_id=new_table_id(), descriptor=descriptor, created_at_ms=1)
    world.lake.catalog().create(table, adopt=False)
    world.store.create_table(table)
    world.coordinator.registry.register(table, new=True)
    return table


def shown(spark: Any, world: InProcessLakeward, path: str) -> list[tuple[Any, ...]]:
    frame, opened = read_frame(spark, world.plugin, request_of(path), world.open_lake)
    with opened.lease:
        return sorted(tuple(row) for row in frame.collect())


def test_a_table_with_names_that_differ_in_case_has_ways_out(world: InProcessLakeward, any_case: Any) -> None:
    create_as_before(world, "id bigint not null, v string, V string")
    world.upsert(PATH, [{"id": i, "v": "small", "V": "BIG"} for i in (1, 2)])
    world.tier(PATH)
    with pytest.raises(InvalidTable, match=r"'ID'.*in case alone"):
        world.add_column(PATH, "ID string")
    world.add_column(PATH, "w string")
    world.upsert(PATH, [{"id": 3, "v": "tail", "V": "TAIL", "w": "new"}])
    with pytest.raises(InvalidRequest, match=f"`lakeward read {PATH} --columns V`"):
        used_columns(parse_query(f"SELECT v FROM {PATH}"), PATH, ("id", "v", "V", "w"))
    assert sorted(world.read(PATH, columns=["V"]).to_table()["V"].to_pylist()) == ["BIG", "BIG", "TAIL"]
    with pytest.raises(Exception, match="COLUMN_ALREADY_EXISTS"):
        shown(any_case, world, PATH)
    any_case.conf.set(MINDS_CASE, "true")
    assert shown(any_case, world, PATH) == ROWS
    world.tier(PATH)
    assert shown(any_case, world, PATH) == ROWS
    certificate = verify_table(
        world.plugin, TablePath.parse(PATH), deep=True, clock=world.clock, open_storage=lambda _plan: world.lake
    )
    assert (certificate.holds, certificate.rows) == (True, 3)
    any_case.conf.set(MINDS_CASE, "false")
    world.create("db.moved", "id bigint not null, v string, v_big string, w string", primary_key="id")
    world.upsert("db.moved", world.read(PATH).to_table().rename_columns(["id", "v", "v_big", "w"]))
    assert shown(any_case, world, "db.moved") == ROWS
