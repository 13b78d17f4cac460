# SPDX-License-Identifier: Apache-2.0
"""The memory lake keeps the lake contract."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from lakeward.lake.memory.plugin import MemoryLakeStorage, forget_lake
from lakeward.model import SnapshotId, TableInfo
from lakeward.spi import LakeStorage, load_lake
from lakeward_testing.lakes import LakeContract
from lakeward_testing.scripted_log import Row
from tests.kit.memoryforeign import MemoryForeignEngine


class TestMemoryLake(LakeContract):
    gaps = dict.fromkeys(
        ("test_a_value_that_does_not_fit_is_named", "test_a_value_that_does_not_fit_may_be_written_again"),
        "it keeps Arrow as it is: there is no file that a value would not go into",
    )

    @pytest.fixture
    def lake(self, request: pytest.FixtureRequest) -> Iterator[LakeStorage]:
        yield load_lake("memory", {"name": request.node.nodeid})
        forget_lake(request.node.nodeid)

    def foreign_commit(self, lake: LakeStorage, table: TableInfo) -> None:
        foreign(lake, table).touch()

    def foreign_rewrite(self, lake: LakeStorage, table: TableInfo) -> None:
        foreign(lake, table).compact()

    def foreign_insert(self, lake: LakeStorage, table: TableInfo, rows: Sequence[Row]) -> None:
        engine = foreign(lake, table)
        schema = next(iter(engine.rows())).schema
        engine.insert(pa.Table.from_pylist([{**r, "__timestamp": 0, "__bucket": 0} for r in rows], schema=schema))

    def foreign_delete(self, lake: LakeStorage, table: TableInfo, id: int) -> bool:
        foreign(lake, table).delete(pc.field("id") == id)
        return True

    def foreign_expire(self, lake: LakeStorage, table: TableInfo) -> None:
        foreign(lake, table).expire()

    def roll_back(self, lake: LakeStorage, table: TableInfo, snapshot_id: SnapshotId) -> None:
        foreign(lake, table).roll_back(snapshot_id)


class TestMemoryLakeThatMergesByKey(TestMemoryLake):
    """It takes the changes as they are (`DeleteEncoding.NATIVE`)."""

    @pytest.fixture
    def lake(self, request: pytest.FixtureRequest) -> Iterator[LakeStorage]:
        yield load_lake("memory", {"name": request.node.nodeid, "deletes": "native"})
        forget_lake(request.node.nodeid)


def foreign(lake: LakeStorage, table: TableInfo) -> MemoryForeignEngine:
    assert isinstance(lake, MemoryLakeStorage)
    return MemoryForeignEngine(lake.lake, table.path)
