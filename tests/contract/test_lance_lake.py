# SPDX-License-Identifier: Apache-2.0
"""The Lance lake keeps the lake contract: in a folder, and in an S3 bucket."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from lakeward.lake.lance.storage import LanceLakeStorage
from lakeward.lake.lance.table import LanceTable
from lakeward.model import SnapshotId, TableInfo
from lakeward.spi import TAG, LakeStorage, load_lake
from lakeward_testing.lakes import LakeContract
from lakeward_testing.lanceforeign import LanceForeignEngine
from lakeward_testing.scripted_log import Row
from tests.kit.iceberg.s3 import S3Store, s3_store


class LanceContract(LakeContract):
    def foreign_commit(self, lake: LakeStorage, table: TableInfo) -> None:
        foreign(lake, table).touch()

    def foreign_rewrite(self, lake: LakeStorage, table: TableInfo) -> None:
        foreign(lake, table).rewrite()

    def foreign_insert(self, lake: LakeStorage, table: TableInfo, rows: Sequence[Row]) -> None:
        foreign(lake, table).insert([dict(r) for r in rows])

    def foreign_delete(self, lake: LakeStorage, table: TableInfo, id: int) -> bool:
        foreign(lake, table).open().delete(f"id = {id}")
        return True

    def foreign_expire(self, lake: LakeStorage, table: TableInfo) -> None:
        foreign(lake, table).clean_up()

    def roll_back(self, lake: LakeStorage, table: TableInfo, snapshot_id: SnapshotId) -> None:
        foreign(lake, table).restore(snapshot_id)

    def break_tag(self, lake: LakeStorage, table: TableInfo) -> None:
        lance_table = table_of(lake, table)
        lance_table.files.put(f"{lance_table.root}/_refs/tags/{TAG}.json", b"")


class TestLanceLake(LanceContract):
    @pytest.fixture
    def lake(self, tmp_path: Path) -> LakeStorage:
        return load_lake("lance", {"warehouse": str(tmp_path)})


@pytest.fixture(scope="module")
def store() -> Iterator[S3Store]:
    with s3_store() as store:
        yield store


@pytest.mark.soak
class TestLanceOnS3(LanceContract):
    @pytest.fixture
    def lake(self, store: S3Store, monkeypatch: pytest.MonkeyPatch) -> LakeStorage:
        for name, value in store.environment.items():
            monkeypatch.setenv(name, value)
        return load_lake("lance", {"warehouse": f"{store.new_bucket()}/warehouse", **store.options})


def foreign(lake: LakeStorage, table: TableInfo) -> LanceForeignEngine:
    return LanceForeignEngine(table_of(lake, table))


def table_of(lake: LakeStorage, table: TableInfo) -> LanceTable:
    assert isinstance(lake, LanceLakeStorage)
    return lake.table(table.path)
