# SPDX-License-Identifier: Apache-2.0
"""The Delta lake keeps the lake contract: in a folder, and in an S3 bucket."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow.compute as pc
import pytest

from lakeward.lake.delta.plugin import DeltaLakeStorage
from lakeward.model import SnapshotId, TableInfo
from lakeward.spi import LakeStorage, load_lake
from lakeward_testing.deltaforeign import DeltaForeignEngine
from lakeward_testing.lakes import LakeContract
from lakeward_testing.lakes.ddl import EVERY_TYPE
from lakeward_testing.scripted_log import Row
from tests.kit.iceberg.s3 import S3Store, s3_store


class DeltaContract(LakeContract):
    every_type = {name: kind for name, kind in EVERY_TYPE.items() if name != "a_time"}
    """Delta has no type for a time of day: such columns are refused."""

    def foreign_commit(self, lake: LakeStorage, table: TableInfo) -> None:
        foreign(lake, table).touch()

    def foreign_rewrite(self, lake: LakeStorage, table: TableInfo) -> None:
        foreign(lake, table).optimize()

    def foreign_insert(self, lake: LakeStorage, table: TableInfo, rows: Sequence[Row]) -> None:
        foreign(lake, table).insert([dict(r) for r in rows])

    def foreign_delete(self, lake: LakeStorage, table: TableInfo, id: int) -> bool:
        foreign(lake, table).delete(pc.field("id") != id)
        return True

    def foreign_expire(self, lake: LakeStorage, table: TableInfo) -> None:
        foreign(lake, table).clean_log()

    def roll_back(self, lake: LakeStorage, table: TableInfo, snapshot_id: SnapshotId) -> None:
        foreign(lake, table).restore(snapshot_id)


class TestDeltaLake(DeltaContract):
    @pytest.fixture
    def lake(self, tmp_path: Path) -> LakeStorage:
        return load_lake("delta", {"warehouse": str(tmp_path)})


@pytest.fixture(scope="module")
def store() -> Iterator[S3Store]:
    with s3_store() as store:
        yield store


@pytest.mark.soak
class TestDeltaOnS3(DeltaContract):
    @pytest.fixture
    def lake(self, store: S3Store, monkeypatch: pytest.MonkeyPatch) -> LakeStorage:
        for name, value in store.environment.items():
            monkeypatch.setenv(name, value)
        return load_lake("delta", {"warehouse": f"{store.new_bucket()}/warehouse", **store.options})


def foreign(lake: LakeStorage, table: TableInfo) -> DeltaForeignEngine:
    assert isinstance(lake, DeltaLakeStorage)
    return DeltaForeignEngine(lake.log(table.path))
