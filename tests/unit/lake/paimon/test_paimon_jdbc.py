# SPDX-License-Identifier: Apache-2.0
"""A JDBC catalog lists Paimon's tables: from many threads, when it is away, and where it and the folder differ."""

from __future__ import annotations

import shutil
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from lakeward.errors import InvalidConfig, LakeMismatch, LakeTableGone, LakeUnavailable
from lakeward.lake.paimon.plugin import load
from lakeward.lake.paimon.storage import PaimonLakeStorage
from lakeward_testing.lakes.rounds import LakeRound, lake_rows
from lakeward_testing.lakes.suite import B0, LakeSuite, row

SUITE = LakeSuite()


@pytest.fixture
def lake(tmp_path: Path) -> PaimonLakeStorage:
    return jdbc(tmp_path, f"jdbc:sqlite:{tmp_path}/catalog.db")


def jdbc(folder: Path, uri: str) -> PaimonLakeStorage:
    storage = load({"warehouse": str(folder / "warehouse"), "metastore": "jdbc", "uri": uri})
    assert isinstance(storage, PaimonLakeStorage)
    return storage


def test_threads_make_and_write_tables_of_one_catalog(lake: PaimonLakeStorage, tmp_path: Path) -> None:
    def run(name: str) -> bool:
        log = SUITE.make_log(lake, name)
        log.append(B0, row(1), row(2))
        LakeRound.plan(lake, log).run()
        return lake_rows(lake, log.table) == log.expected(log.ends())

    names = [f"t{n}" for n in range(4)]
    lake.catalog().create(SUITE.table_info("first"))
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(run, names)) == [True] * 4
    with closing(sqlite3.connect(tmp_path / "catalog.db")) as database:
        listed = [name for (name,) in database.execute("select table_name from paimon_tables order by 1")]
    assert listed == ["first", *names]


def test_each_deed_asks_the_database_anew(lake: PaimonLakeStorage, tmp_path: Path) -> None:
    """It was restored from a copy: a connection that is kept would still see the old one."""
    first, second = SUITE.table_info("first"), SUITE.table_info("second")
    lake.catalog().create(first)
    copy = (tmp_path / "catalog.db").read_bytes()
    lake.catalog().create(second)
    (tmp_path / "catalog.db").unlink()
    (tmp_path / "catalog.db").write_bytes(copy)
    assert [lake.catalog().exists(t.path) for t in (first, second)] == [True, False]


def test_a_catalog_that_is_away_makes_nothing(lake: PaimonLakeStorage, tmp_path: Path) -> None:
    """A folder where its database should be."""
    (tmp_path / "catalog.db").mkdir()
    table = SUITE.table_info()
    with pytest.raises(LakeUnavailable, match=r"create table.*unable to open database"):
        lake.catalog().create(table)
    with pytest.raises(LakeUnavailable, match="list databases"):
        lake.catalog().check()
    assert list(tmp_path.glob("warehouse/*")) == []
    (tmp_path / "catalog.db").rmdir()
    assert lake.catalog().create(table)


def test_a_folder_that_the_catalog_does_not_list_is_told(lake: PaimonLakeStorage, tmp_path: Path) -> None:
    """As a crash leaves it between the folder and the list."""
    table = SUITE.table_info()
    lake.catalog().create(table)
    with closing(sqlite3.connect(tmp_path / "catalog.db")) as database, database:
        database.execute("delete from paimon_tables")
        database.execute("delete from paimon_table_properties")
    with pytest.raises(LakeTableGone):
        lake.catalog().validate(table)
    with pytest.raises(LakeMismatch, match=r"has a schema, and the catalog does not list it"):
        lake.catalog().create(table)
    shutil.rmtree(tmp_path / "warehouse")
    assert lake.catalog().create(table)
    lake.catalog().validate(table)


@pytest.mark.parametrize(("uri", "why"), [("jdbc:oracle:x", "oracle"), ("jdbc:mysql://h/d", "pymysql")])
def test_databases_that_have_no_driver_are_named(tmp_path: Path, uri: str, why: str) -> None:
    with pytest.raises(InvalidConfig, match=rf"datalake\.paimon\.uri.*{why}"):
        jdbc(tmp_path, uri).catalog().check()
