# SPDX-License-Identifier: Apache-2.0
"""The Iceberg lake keeps the lake contract: on a SQL catalog, on our REST catalog, on an S3 warehouse."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lakeward.lake.iceberg.plugin import IcebergLakeStorage
from lakeward.model import SnapshotId, TableInfo
from lakeward.spi import LakeStorage, load_lake
from lakeward_testing.icebergforeign import IcebergForeignEngine
from lakeward_testing.lakes import LakeContract
from lakeward_testing.scripted_log import Row
from tests.kit.iceberg.folder import folder_lake, folder_options
from tests.kit.iceberg.merge_on_read import MergeOnReadEngine
from tests.kit.iceberg.s3 import REGION, S3Store, s3_store
from tests.kit.iceberg.server import serving


class IcebergContract(LakeContract):
    def foreign_commit(self, lake: LakeStorage, table: TableInfo) -> None:
        foreign(lake, table).touch()

    def foreign_rewrite(self, lake: LakeStorage, table: TableInfo) -> None:
        foreign(lake, table).rewrite()

    def foreign_insert(self, lake: LakeStorage, table: TableInfo, rows: Sequence[Row]) -> None:
        foreign(lake, table).append(their_rows(lake, table, rows))

    def foreign_delete(self, lake: LakeStorage, table: TableInfo, id: int) -> bool:
        foreign(lake, table).delete(f"id = {id}")
        return True

    def foreign_expire(self, lake: LakeStorage, table: TableInfo) -> None:
        foreign(lake, table).expire()

    def roll_back(self, lake: LakeStorage, table: TableInfo, snapshot_id: SnapshotId) -> None:
        foreign(lake, table).roll_back(snapshot_id)


@pytest.fixture(scope="module")
def rest_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("rest")


@pytest.fixture(scope="module")
def server(rest_folder: Path) -> Iterator[str]:
    with serving(folder_options(rest_folder)) as url:
        yield url


@pytest.fixture(scope="module")
def store() -> Iterator[S3Store]:
    with s3_store() as store:
        yield store


class TestSqlCatalog(IcebergContract):
    @pytest.fixture
    def lake(self, tmp_path: Path) -> Iterator[LakeStorage]:
        with folder_lake(tmp_path) as lake:
            yield lake


class TestVersion3(TestSqlCatalog):
    """Tables of format version 3: deletion vectors and row ids."""

    def table_info(self, name: str = "t", **options: Any) -> TableInfo:
        properties = {"iceberg.format-version": "3", **options.pop("properties", {})}
        return super().table_info(name, properties=properties, **options)

    def foreign_commit(self, lake: LakeStorage, table: TableInfo) -> None:
        foreign_3(lake, table).touch()

    def foreign_rewrite(self, lake: LakeStorage, table: TableInfo) -> None:
        foreign_3(lake, table).rewrite()

    def foreign_insert(self, lake: LakeStorage, table: TableInfo, rows: Sequence[Row]) -> None:
        foreign_3(lake, table).insert(their_rows(lake, table, rows))

    def foreign_delete(self, lake: LakeStorage, table: TableInfo, id: int) -> bool:
        """PyIceberg writes no version 3; tests/interop has DuckDB delete from it."""
        return False


def their_rows(lake: LakeStorage, table: TableInfo, rows: Sequence[Row]) -> pa.Table:
    schema = foreign(lake, table).load().schema().as_arrow()
    return pa.Table.from_pylist([{**r, "__bucket": 0, "__timestamp": 0} for r in rows], schema=schema)


def foreign_3(lake: LakeStorage, table: TableInfo) -> MergeOnReadEngine:
    assert isinstance(lake, IcebergLakeStorage)
    return MergeOnReadEngine(lake.connection.catalog, table.path)


def foreign(lake: LakeStorage, table: TableInfo) -> IcebergForeignEngine:
    assert isinstance(lake, IcebergLakeStorage)
    return IcebergForeignEngine(lake.connection.catalog, table.path)


def close(lake: LakeStorage) -> None:
    assert isinstance(lake, IcebergLakeStorage)
    lake.connection.close()


class RestContract(IcebergContract):
    """Our own catalog server between, in a process of its own; a fresh one for the class. Each test drops its tables
    and their files: tables of the next test have the same folders, where an orphan removal would find them."""

    @pytest.fixture
    def lake(self, server: str, rest_folder: Path) -> Iterator[LakeStorage]:
        lake = load_lake("iceberg", {"type": "rest", "uri": server})
        yield lake
        empty(lake)
        close(lake)
        for path in (rest_folder / "warehouse").glob("*"):
            shutil.rmtree(path)


@pytest.mark.soak
class TestRestCatalog(RestContract):
    """The whole contract."""


class TestRestCatalogInShort(RestContract):
    """What a catalog decides: commits on a head, races, fences, what is listed, what is gone."""


class S3Contract(IcebergContract):
    """The warehouse in a bucket of a real S3 server process; credentials come from the environment."""

    @pytest.fixture
    def lake(self, store: S3Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LakeStorage]:
        for name, value in store.environment.items():
            monkeypatch.setenv(name, value)
        options = {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": store.new_bucket()}
        lake = load_lake("iceberg", {**options, **store.options})
        yield lake
        close(lake)


@pytest.mark.soak
class TestS3Warehouse(S3Contract):
    """The whole contract: about a minute, most of it the S3 server's."""


@pytest.mark.soak
class TestGlueCatalog(IcebergContract):
    """AWS Glue's protocol, spoken by the same server: a catalog that is neither ours nor REST.

    That server takes an update whatever version it names, where AWS refuses all but the first: of commits that race, it
    keeps the last and tells each that it was done. The race is therefore left out here."""

    test_of_rounds_that_race_one_wins = None  # type: ignore[assignment]

    @pytest.fixture
    def lake(self, store: S3Store, monkeypatch: pytest.MonkeyPatch) -> Iterator[LakeStorage]:
        for name, value in store.environment.items():
            monkeypatch.setenv(name, value)
        options = {
            "type": "glue",
            "glue.endpoint": store.endpoint,
            "glue.region": REGION,
            "warehouse": store.new_bucket(),
        }
        lake = load_lake("iceberg", {**options, **store.options})
        yield lake
        empty(lake)
        close(lake)


class TestS3WarehouseInShort(S3Contract):
    """What differs most between a folder and a bucket: writing, deletes, conflicts, listing, deleting, expiry, a
    rewrite by others.
    """


_IN_SHORT = {
    "test_the_lake_answers",
    "test_every_type_comes_back_as_it_was_written",
    "test_a_sub_split_replaces_rows_of_the_one_before_it",
    "test_rows_of_partitions_stay_apart",
    "test_a_commit_prepared_on_a_head_that_moved_is_refused",
    "test_files_are_listed_by_round_and_referenced_once_committed",
    "test_deleting_frees_bytes_once",
    "test_expiry_deletes_files_that_only_it_referenced",
    "test_a_round_takes_old_snapshots_out_with_its_own_commit",
}
_CATALOG = re.compile("commit|head|race|fence|conflict|schema|column|exist|rename|gone|table|unknown|expir")
"""By name, so that a case that is added to the contract later is not forgotten here."""


def shorten(contract: type[LakeContract], is_kept: Callable[[str], object]) -> None:
    for name in [n for n in dir(contract) if n.startswith("test_") and not is_kept(n)]:
        setattr(contract, name, None)


shorten(TestS3WarehouseInShort, _IN_SHORT.__contains__)
shorten(TestRestCatalogInShort, _CATALOG.search)


def empty(lake: LakeStorage) -> None:
    assert isinstance(lake, IcebergLakeStorage)
    catalog = lake.connection.catalog
    for namespace in catalog.list_namespaces():
        for table in catalog.list_tables(namespace):
            catalog.drop_table(table)
        catalog.drop_namespace(namespace)
