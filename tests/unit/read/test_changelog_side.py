# SPDX-License-Identifier: Apache-2.0
"""A table's changelog in a lake: every change once and in order, as a side like others, in each format."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lakeward.errors import InvalidTable
from lakeward.lake.memory.plugin import MemoryLakeStorage
from lakeward.model import DEFAULT_SIDE, Bucket, Column, Content, SideName, StringType, SystemClock, TablePath
from lakeward.protocol.heartbeat import TableFinished
from lakeward.protocol.tables import AlterTable
from lakeward.spi import LakeStorage
from lakeward.verify.table import verify_table
from lakeward_testing.clock import ManualClock
from tests.kit.inprocess import InProcessLakeward
from tests.property.union_program import delta_lake, iceberg_lake, memory_lake, paimon_lake

PATH = "db.t"
CHANGES = SideName("default", Content.CHANGELOG)
LAKES = [memory_lake, iceberg_lake, delta_lake, paimon_lake]
ON: dict[str, Any] = {"table.datalake.changelog": "default"}
OFF = {"table.datalake.changelog": "none"}


@pytest.fixture
def world(tmp_path: Path) -> Iterator[InProcessLakeward]:
    made = open_world(tmp_path, memory_lake)
    yield made
    made.close()


def open_world(folder: Path, make: Callable[[Path], LakeStorage]) -> InProcessLakeward:
    return InProcessLakeward(folder, make(folder), ManualClock(SystemClock().now_ms()))


def create(world: InProcessLakeward, **properties: str) -> None:
    world.create(PATH, "id bigint not null, v string", primary_key="id", **ON | properties)


def alter(world: InProcessLakeward, properties: dict[str, str]) -> tuple[str, ...]:
    return world.federation.alter(TablePath.parse(PATH), AlterTable(properties=dict(properties))).warnings


def changes(world: InProcessLakeward) -> list[tuple[Any, ...]]:
    rows = world.read(PATH, lake=str(CHANGES), system_columns=True).to_table().sort_by("__offset").to_pylist()
    return [(r["__offset"], r["__change_type"], r["id"], r["v"]) for r in rows]


@pytest.mark.parametrize("make", LAKES, ids=lambda m: m.__name__)
def test_every_change_is_there_once_in_every_format(tmp_path: Path, make: Callable[[Path], LakeStorage]) -> None:
    world = open_world(tmp_path, make)
    create(world)
    world.upsert(PATH, [{"id": 1, "v": "a"}, {"id": 2, "v": "b"}])
    world.delete(PATH, [{"id": 9}])  # nothing changes, and an offset is taken all the same
    world.upsert(PATH, [{"id": 1, "v": "c"}])
    assert all(isinstance(e, TableFinished) for e in world.tier(PATH, CHANGES))
    world.add_column(PATH, "z int")
    world.delete(PATH, [{"id": 2}])
    world.tier(PATH, CHANGES)
    assert changes(world) == [
        (0, "insert", 1, "a"),
        (1, "insert", 2, "b"),
        (3, "update_before", 1, "a"),
        (4, "update_after", 1, "c"),
        (5, "delete", 2, "b"),
    ]
    certificate = verify_table(
        world.plugin, TablePath.parse(PATH), deep=True, side=CHANGES, open_storage=lambda _plan: world.lake
    )
    assert certificate.holds, certificate.all_findings
    assert sum(b.compared for b in certificate.buckets) == 5
    world.close()


def test_a_log_tables_changes_are_inserts_and_compaction_keeps_them(tmp_path: Path) -> None:
    world = open_world(tmp_path, iceberg_lake)
    world.create(PATH, "v string", **ON)
    for n in range(9):
        world.append(PATH, [{"v": str(n)}])
        world.tier(PATH, CHANGES)
    before = world.read(PATH, lake=str(CHANGES), system_columns=True).to_table().sort_by("__offset")
    end = world.compact(PATH, CHANGES)
    assert isinstance(end, TableFinished)
    assert end.result is not None
    assert end.result.files_replaced > 1
    assert world.read(PATH, lake=str(CHANGES), system_columns=True).to_table().sort_by("__offset") == before
    assert set(before.column("__change_type").to_pylist()) == {"insert"}
    world.close()


def test_state_and_changelog_have_rounds_ledger_and_options_of_their_own(world: InProcessLakeward) -> None:
    create(world, **{"table.datalake.changelog.freshness": "1 h"})
    world.upsert(PATH, [{"id": 1, "v": "a"}])
    world.tier(PATH)
    coordinator, path = world.coordinator, TablePath.parse(PATH)
    assert coordinator.sides(path) == [DEFAULT_SIDE, CHANGES]
    assert not coordinator.ledger(path, CHANGES)
    assert coordinator.board.find(path, CHANGES).options.freshness_ms == 3_600_000
    coordinator.read_lake(path)
    held = coordinator.retention.lake_offset(coordinator.board.find(path).table_id, Bucket("", 0))
    assert held is None, "no segment goes before the changelog has it"
    world.tier(PATH, CHANGES)
    coordinator.read_lake(path)
    assert coordinator.retention.lake_offset(coordinator.board.find(path).table_id, Bucket("", 0)) == 1
    world.restart()
    assert [len(e.range) for e in world.coordinator.ledger(path, CHANGES)] == [1]
    assert world.read(PATH).to_table().to_pylist() == [{"id": 1, "v": "a"}]


def test_switched_off_and_on_it_goes_on_where_it_was(world: InProcessLakeward) -> None:
    create(world)
    world.upsert(PATH, [{"id": 1, "v": "a"}])
    world.tier(PATH, CHANGES)
    alter(world, OFF)
    assert world.coordinator.sides(TablePath.parse(PATH)) == [DEFAULT_SIDE]
    world.delete(PATH, [{"id": 1}])
    alter(world, ON)
    world.tier(PATH, CHANGES)
    assert [c[:2] for c in changes(world)] == [(0, "insert"), (1, "delete")]


@pytest.mark.parametrize(
    ("properties", "words"),
    [
        ({"table.datalake.changelog": "nowhere"}, "changelog 'nowhere': no such lake is configured"),
        ({"table.datalake.changelog": "none", "table.datalake.changelog.freshness": "1 h"}, "has no changelog"),
        ({"table.datalake.changelog.enabled": "true"}, "said of a table, not of one side"),
    ],
)
def test_what_makes_no_changelog_is_refused_in_words(
    world: InProcessLakeward, properties: dict[str, str], words: str
) -> None:
    with pytest.raises(InvalidTable, match=words):
        create(world, **properties)


def test_a_lake_that_cannot_append_and_names_of_changelogs_are_refused(world: InProcessLakeward) -> None:
    assert isinstance(world.lake, MemoryLakeStorage)
    world.lake.capabilities = replace(world.lake.capabilities, appends=False)
    with pytest.raises(InvalidTable, match="memory has no tables to which rows are only added"):
        create(world)
    with pytest.raises(InvalidTable, match="are those of changelogs"):
        world.create("db.t__changelog", "id bigint not null", primary_key="id")
    with pytest.raises(InvalidTable, match="system column's"):
        world.create("db.x", [Column(name="__change_type", type=StringType(), column_id=-1)])
