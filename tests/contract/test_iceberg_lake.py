# SPDX-License-Identifier: Apache-2.0
"""The Iceberg lake keeps the lake contract: on a SQL catalog, on our REST catalog, on an S3 warehouse."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lakeward.lake.iceberg.plugin import IcebergLakeStorage
from lakeward.model.ids import SnapshotId
from lakeward.model.table import TableInfo
from lakeward.spi.lake import LakeStorage
from lakeward.spi.registry import load_lake
from lakeward.testing.iceberg.foreign import ForeignEngine
from lakeward.testing.lakes import LakeContract


class IcebergContract(LakeContract):
    def foreign_commit(self, lake: LakeStorage, table: TableInfo) -> None:
        foreign(lake, table).touch()

    def foreign_rewrite(self, lake: LakeStorage, table: TableInfo) -> None:
        foreign(lake, table).rewrite()

    def foreign_expire(self, lake: LakeStorage, table: TableInfo) -> None:
        foreign(lake, table).expire()

    def roll_back(self, lake: LakeStorage, table: TableInfo, snapshot_id: SnapshotId) -> None:
        foreign(lake, table).roll_back(snapshot_id)


class TestSqlCatalog(IcebergContract):
    @pytest.fixture
    def lake(self, tmp_path: Path) -> Iterator[LakeStorage]:
        lake = load_lake("iceberg", {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": f"file://{tmp_path}/warehouse"})
        yield lake
        close(lake)


def foreign(lake: LakeStorage, table: TableInfo) -> ForeignEngine:
    assert isinstance(lake, IcebergLakeStorage)
    return ForeignEngine(lake.connection.catalog, table.path)


def close(lake: LakeStorage) -> None:
    assert isinstance(lake, IcebergLakeStorage)
    lake.connection.close()
