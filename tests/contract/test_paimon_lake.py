# SPDX-License-Identifier: Apache-2.0
"""The Paimon lake keeps the lake contract, on a filesystem catalog in a folder and a bucket, on JDBC and REST
catalogs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pytest

from lakeward.lake.paimon.meta.history import table_folder
from lakeward.lake.paimon.storage import PaimonLakeStorage
from lakeward.lake.s3files import files_of
from lakeward.model import SnapshotId, TableInfo
from lakeward.spi import LakeStorage, load_lake
from lakeward_testing.lakes import LakeContract
from lakeward_testing.paimonforeign import PaimonForeignEngine
from lakeward_testing.scripted_log import Row
from tests.kit.iceberg.s3 import S3Store, s3_store
from tests.kit.paimonrest import PaimonRestServer


class PaimonContract(LakeContract):
    gaps = {
        "test_delete_files_are_referenced_too": "a deleted row is a change in a data file: there are no delete files",
        "test_a_value_that_does_not_fit_may_be_written_again": "every change goes into a file, also those replaced",
        "test_files_that_others_sorted_otherwise_come_into_offset_order": "files are in the order of the key",
    }

    def foreign_commit(self, lake: LakeStorage, table: TableInfo) -> None:
        foreign(lake, table).touch()

    def foreign_rewrite(self, lake: LakeStorage, table: TableInfo) -> None:
        foreign(lake, table).compact()

    def foreign_insert(self, lake: LakeStorage, table: TableInfo, rows: Sequence[Row]) -> None:
        engine = foreign(lake, table)
        engine.insert(pa.Table.from_pylist([{**r, "__bucket": 0, "__timestamp": 0} for r in rows], engine.schema()))

    def foreign_expire(self, lake: LakeStorage, table: TableInfo) -> None:
        foreign(lake, table).expire()

    def roll_back(self, lake: LakeStorage, table: TableInfo, snapshot_id: SnapshotId) -> None:
        foreign(lake, table).roll_back(snapshot_id)

    def break_tag(self, lake: LakeStorage, table: TableInfo) -> None:
        """And the mark beside it, which is the same."""
        assert isinstance(lake, PaimonLakeStorage)
        lake_table = lake.connection.load(table.path)
        for path in ("tag/tag-lakeward", "_lakeward/newest"):
            files_of(lake_table).put(f"{table_folder(lake_table)}/{path}", b"")


class TestPaimonLake(PaimonContract):
    @pytest.fixture
    def lake(self, tmp_path: Path) -> LakeStorage:
        return load_lake("paimon", {"warehouse": str(tmp_path / "warehouse")})


@pytest.fixture
def jdbc_lake(tmp_path: Path) -> LakeStorage:
    options = {"metastore": "jdbc", "uri": f"jdbc:sqlite:{tmp_path}/catalog.db"}
    return load_lake("paimon", {"warehouse": str(tmp_path / "warehouse"), **options})


@pytest.mark.soak
class TestPaimonOnJdbc(PaimonContract):
    @pytest.fixture
    def lake(self, jdbc_lake: LakeStorage) -> LakeStorage:
        return jdbc_lake


def test_a_rule_of_the_contract_on_a_jdbc_catalog(jdbc_lake: LakeStorage) -> None:
    PaimonContract().test_a_commit_prepared_on_a_head_that_moved_is_refused(jdbc_lake)


@pytest.fixture
def rest_lake(tmp_path: Path) -> Iterator[LakeStorage]:
    server = PaimonRestServer(tmp_path / "warehouse")
    yield load_lake("paimon", server.options)
    server.close()


@pytest.mark.soak
class TestPaimonOnRest(PaimonContract):
    @pytest.fixture
    def lake(self, rest_lake: LakeStorage) -> LakeStorage:
        return rest_lake


def test_a_rule_of_the_contract_on_a_rest_catalog(rest_lake: LakeStorage) -> None:
    PaimonContract().test_a_commit_prepared_on_a_head_that_moved_is_refused(rest_lake)


@pytest.fixture(scope="module")
def store() -> Iterator[S3Store]:
    with s3_store() as store:
        yield store


@pytest.fixture
def bucket_lake(store: S3Store, monkeypatch: pytest.MonkeyPatch) -> LakeStorage:
    for name, value in store.environment.items():
        monkeypatch.setenv(name, value)
    return load_lake("paimon", {"warehouse": f"{store.new_bucket()}/warehouse", **store.options})


@pytest.mark.soak
class TestPaimonOnS3(PaimonContract):
    @pytest.fixture
    def lake(self, bucket_lake: LakeStorage) -> LakeStorage:
        return bucket_lake


def test_a_rule_of_the_contract_in_a_bucket(bucket_lake: LakeStorage) -> None:
    """The others take their time there: in the soak, above."""
    PaimonContract().test_a_commit_prepared_on_a_head_that_moved_is_refused(bucket_lake)


def foreign(lake: LakeStorage, table: TableInfo) -> PaimonForeignEngine:
    assert isinstance(lake, PaimonLakeStorage)
    return PaimonForeignEngine(lake.connection, table.path)
