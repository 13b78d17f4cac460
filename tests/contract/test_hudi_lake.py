# SPDX-License-Identifier: Apache-2.0
"""The Hudi lake keeps the lake contract, in a folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from lakeward.lake.hudi.ground import MARK
from lakeward.lake.hudi.meta.table import HudiTable
from lakeward.lake.hudi.plugin import HudiLakeStorage
from lakeward.model import SnapshotId, TableInfo
from lakeward.spi import LakeStorage, load_lake
from lakeward_testing.hudiforeign import HudiForeignEngine
from lakeward_testing.lakes import LakeContract
from lakeward_testing.lakes.ddl import EVERY_TYPE
from lakeward_testing.scripted_log import Row


class TestHudiLake(LakeContract):
    every_type = {name: kind for name, kind in EVERY_TYPE.items() if name != "a_time"}
    """Hudi on Spark has no type for a time of day: such columns are refused."""

    gaps = {
        "test_delete_files_are_referenced_too": "a deleted key is a block of a log file: there are no delete files",
    }

    refuses_keys = True

    @pytest.fixture
    def lake(self, tmp_path: Path) -> LakeStorage:
        return load_lake("hudi", {"warehouse": str(tmp_path / "warehouse")})

    def foreign_commit(self, lake: LakeStorage, table: TableInfo) -> None:
        foreign(lake, table).touch()

    def foreign_rewrite(self, lake: LakeStorage, table: TableInfo) -> None:
        foreign(lake, table).compact()

    def foreign_insert(self, lake: LakeStorage, table: TableInfo, rows: Sequence[Row]) -> None:
        foreign(lake, table).insert([dict(r) for r in rows])

    def foreign_expire(self, lake: LakeStorage, table: TableInfo) -> None:
        foreign(lake, table).archive()

    def roll_back(self, lake: LakeStorage, table: TableInfo, snapshot_id: SnapshotId) -> None:
        foreign(lake, table).restore(snapshot_id)

    def break_tag(self, lake: LakeStorage, table: TableInfo) -> None:
        hudi_table = table_of(lake, table)
        hudi_table.files.put(f"{hudi_table.own_folder}/{MARK}", b"")


def foreign(lake: LakeStorage, table: TableInfo) -> HudiForeignEngine:
    return HudiForeignEngine(table_of(lake, table))


def table_of(lake: LakeStorage, table: TableInfo) -> HudiTable:
    assert isinstance(lake, HudiLakeStorage)
    return lake.table(table.path)
