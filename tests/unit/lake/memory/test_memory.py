# SPDX-License-Identifier: Apache-2.0
"""The memory lake beyond the contract: shared lakes, other writers' offsets, broken summaries, foreign deletes."""

from __future__ import annotations

import json
from dataclasses import replace

import pyarrow.compute as pc
import pytest

from lakeward.errors import LakeForeign, LakeMismatch, LakeRolledBack, LakeTampered, ReplacedRowMissing, UnknownOption
from lakeward.lake.memory.plugin import MemoryLakeStorage, forget_lake, load
from lakeward.lake.memory.table import MemoryLake
from lakeward.model import (
    Bucket,
    Column,
    OffsetMap,
    Schema,
    TableDescriptor,
    TableInfo,
    TablePath,
    new_table_id,
    parse_type,
)
from lakeward.spi import OFFSETS_KEY, load_lake
from lakeward_testing.lakes import LakeRound, lake_rows
from lakeward_testing.scripted_log import ScriptedLog
from tests.kit.memoryforeign import MemoryForeignEngine

B0 = Bucket("", 0)


@pytest.fixture
def lake() -> MemoryLakeStorage:
    return MemoryLakeStorage(MemoryLake())


def table_info(**options: object) -> TableInfo:
    schema = Schema(columns=(Column(name="id", type=parse_type("BIGINT NOT NULL")),))
    descriptor = replace(TableDescriptor(schema=schema, primary_key=("id",)), **options)  # type: ignore[arg-type]
    return TableInfo(path=TablePath("db", "t"), table_id=new_table_id(), descriptor=descriptor)


@pytest.fixture
def log(lake: MemoryLakeStorage) -> ScriptedLog:
    table = table_info()
    lake.catalog().create(table)
    return ScriptedLog(table)


def add(lake: MemoryLakeStorage, log: ScriptedLog, *ids: int) -> str:
    log.upsert(B0, *({"id": i} for i in ids))
    return LakeRound.plan(lake, log).run().snapshot_id


def test_one_name_is_one_lake() -> None:
    table = table_info()
    load_lake("memory", {"name": "shared"}).catalog().create(table)
    assert load({"name": "shared"}).catalog().exists(table.path)
    assert not load({"name": "other"}).catalog().exists(table.path)
    for name in ("shared", "other"):
        forget_lake(name)
    with pytest.raises(UnknownOption):
        load({"nmae": "x"})


def test_another_layout_is_a_mismatch(lake: MemoryLakeStorage, log: ScriptedLog) -> None:
    with pytest.raises(LakeMismatch, match="layout"):
        lake.catalog().create(table_info(bucket_count=3))


def test_offsets_of_another_tiering_job_count_and_its_snapshot_is_the_token(
    lake: MemoryLakeStorage, log: ScriptedLog
) -> None:
    """A Flink job's snapshot has offsets and no round id."""
    add(lake, log, 1)
    memory = lake.lake.table(log.table.path)
    theirs = lake.lake.commit(
        memory,
        memory.refs,
        operation="append",
        summary={OFFSETS_KEY: json.dumps(OffsetMap({B0: 5}).to_json())},
        move_tag=False,
    )
    assert theirs is not None
    base = lake.open_reader(log.table).load_base()
    assert (base.offsets, base.token) == (OffsetMap({B0: 5}), theirs.id)


def test_a_cut_chain_with_other_rows_is_a_rollback(lake: MemoryLakeStorage, log: ScriptedLog) -> None:
    first = add(lake, log, 1)
    add(lake, log, 2)
    foreign = MemoryForeignEngine(lake.lake, log.table.path)
    foreign.roll_back(lake.lake.table(log.table.path).snapshot(int(first)).id)
    foreign.touch()
    foreign.touch()
    foreign.expire()
    with pytest.raises(LakeRolledBack):
        lake.open_reader(log.table).load_base()


def test_unreadable_offsets_are_named(lake: MemoryLakeStorage, log: ScriptedLog) -> None:
    add(lake, log, 1)
    memory = lake.lake.table(log.table.path)
    head = memory.snapshots[memory.head or 0]
    memory.snapshots[head.number] = replace(head, summary={**head.summary, OFFSETS_KEY: "{"})
    with pytest.raises(LakeTampered, match=OFFSETS_KEY):
        lake.open_reader(log.table).load_base()


def test_a_row_that_others_deleted_may_be_replaced(lake: MemoryLakeStorage, log: ScriptedLog) -> None:
    """Deleted and then rewritten away: the replaced offset is nowhere, and a foreign delete explains it."""
    add(lake, log, 1, 2, 3)
    foreign = MemoryForeignEngine(lake.lake, log.table.path)
    foreign.delete(pc.field("id") <= 2)
    log.delete(B0, {"id": 1})
    LakeRound.plan(lake, log).run()
    assert [r["id"] for _, _, r in lake_rows(lake, log.table)] == [3]
    foreign.compact()
    log.delete(B0, {"id": 2})
    LakeRound.plan(lake, log).run()
    assert [r["id"] for _, _, r in lake_rows(lake, log.table)] == [3]


def test_a_row_that_is_gone_without_a_reason_fails_the_round(lake: MemoryLakeStorage, log: ScriptedLog) -> None:
    add(lake, log, 1)
    memory = lake.lake.table(log.table.path)
    head = memory.snapshots[memory.head or 0]
    lake.lake.commit(memory, memory.refs, operation="replace", summary={}, drop=frozenset(head.data), move_tag=False)
    log.delete(B0, {"id": 1})
    with pytest.raises(ReplacedRowMissing):
        LakeRound.plan(lake, log).run()


def test_adoption_by_another_table_id_is_refused(lake: MemoryLakeStorage, log: ScriptedLog) -> None:
    add(lake, log, 1)
    with pytest.raises(LakeForeign):
        lake.catalog().create(table_info(), adopt=True)
    assert not lake.catalog().create(log.table)
