# SPDX-License-Identifier: Apache-2.0
"""The lake of a database's new tables."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from lakeward.errors import InvalidRequest, InvalidTable, LakeNotFound
from lakeward.model import DEFAULT_SIDE, SideName, TablePath
from lakeward.protocol.tables import DatabaseStatus
from tests.kit.world import CoordinatorWorld

FINANCE = SideName("finance")


@pytest.fixture
def world(tmp_path: Path) -> Iterator[CoordinatorWorld]:
    made = CoordinatorWorld(tmp_path, named=("finance",))
    yield made
    made.close()


def sides(world: CoordinatorWorld, table: str) -> list[SideName]:
    return world.coordinator.sides(TablePath("db", table))


def test_new_tables_go_to_the_lake_of_their_database(world: CoordinatorWorld) -> None:
    databases = world.coordinator.databases
    world.create("before")
    assert databases.alter("db", "finance") == DatabaseStatus(name="db", lake="finance", tables=1)
    databases.alter("empty", "finance")
    world.create("after")
    world.create("named", table__datalake__lakes="default")
    world.create("formatted", table__datalake__format="memory")
    world.restart()
    world.create("later")
    shown = {name: sides(world, name) for name in ("before", "after", "named", "formatted", "later")}
    assert shown == {
        "before": [DEFAULT_SIDE],
        "after": [FINANCE],
        "named": [DEFAULT_SIDE],
        "formatted": [DEFAULT_SIDE],
        "later": [FINANCE],
    }
    databases = world.coordinator.databases
    assert databases.listed() == [
        DatabaseStatus(name="db", lake="finance", tables=5),
        DatabaseStatus(name="empty", lake="finance"),
    ]
    databases.alter("db", None)
    world.create("last")
    assert sides(world, "last") == [DEFAULT_SIDE]


def test_words_for_a_lake_or_a_database_that_cannot_be(world: CoordinatorWorld) -> None:
    with pytest.raises(LakeNotFound, match="this server has default, finance"):
        world.coordinator.databases.alter("db", "nope")
    with pytest.raises(InvalidRequest, match="a name has letters"):
        world.coordinator.databases.alter("../db", "finance")
    assert world.coordinator.databases.listed() == []


def test_a_table_of_a_format_gets_the_lake_of_that_format_or_is_refused(tmp_path: Path) -> None:
    """It had no lake at all, without a word."""
    world = CoordinatorWorld(tmp_path, named=("finance", "cold"))
    lakes = world.coordinator.board.options.lakes
    assert isinstance(lakes, dict)
    del lakes[DEFAULT_SIDE.lake]
    lakes["cold"] = replace(lakes["cold"], format="delta")
    world.create("first", table__datalake__format="memory")
    world.create("empty", table__datalake__lakes="")
    assert (sides(world, "first"), sides(world, "empty")) == ([FINANCE], [FINANCE])
    lakes["cold"] = replace(lakes["cold"], format="memory")
    world.create("again", table__datalake__format="memory")
    assert sides(world, "again") == [FINANCE], "tables that name none go there"
    with pytest.raises(InvalidTable, match=r"name its lake in table\.datalake\.lakes; this server has finance"):
        world.create("other", table__datalake__format="paimon")
    world.close()
