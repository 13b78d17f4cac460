# SPDX-License-Identifier: Apache-2.0
"""Java Iceberg 1.12 in Spark 4.1 reads and rewrites our tables, through our REST catalog and by metadata path."""

from __future__ import annotations

import random
import threading
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lakeward.errors import CommitConflict
from lakeward.lake.iceberg.plugin import IcebergLakeStorage, load
from lakeward_testing.lakes import LakeRound, lake_rows
from lakeward_testing.lakes.ddl import EVERY_TYPE
from lakeward_testing.lakes.rewriting import LakeRewrite
from lakeward_testing.lakes.suite import B0, LakeSuite, row
from lakeward_testing.lakes.upserts import change_randomly
from lakeward_testing.scripted_log import ScriptedLog
from tests.interop.enginetypes import PARTS, check_page, make_table
from tests.interop.javaiceberg import JavaIceberg, start_java
from tests.interop.readerfeatures import check_features, make_tables
from tests.kit.iceberg.engines import read_datafusion, read_duckdb, read_pyiceberg
from tests.kit.iceberg.folder import folder_lake

pytestmark = pytest.mark.soak


@pytest.fixture(scope="module")
def java(served: Any) -> Iterator[JavaIceberg]:
    with start_java(served.url) as started:
        yield started


@pytest.fixture
def near(served: Any) -> Iterator[IcebergLakeStorage]:
    lake = load({"type": "rest", "uri": served.url})
    yield lake
    lake.connection.close()


def make_log(lake: IcebergLakeStorage, **options: Any) -> ScriptedLog:
    return LakeSuite().make_log(lake, f"java{uuid.uuid4().hex[:8]}", **options)


def pairs(rows: list[dict[str, Any]]) -> list[tuple[int, int, int, str]]:
    return sorted((r["__bucket"], r["__offset"], r["id"], r["name"]) for r in rows)


def expected(log: ScriptedLog) -> list[tuple[int, int, int, str]]:
    return sorted((b.number, offset, r["id"], r["name"]) for b, offset, r in log.expected(log.ends()))


def check(java: JavaIceberg, lake: IcebergLakeStorage, log: ScriptedLog) -> None:
    location = lake.connection.load(log.table.path).metadata_location
    assert pairs(java.sql(f"SELECT * FROM lake.{log.table.path}")) == expected(log)
    assert pairs(java.read(location)) == expected(log)
    for read in (read_duckdb, read_datafusion, read_pyiceberg):
        assert pairs(read(location).to_pylist()) == expected(log), read.__name__
    assert lake_rows(lake, log.table) == log.expected(log.ends())


def test_java_reads_every_type(java: JavaIceberg, near: IcebergLakeStorage) -> None:
    known = {
        name: found for name, found in EVERY_TYPE.items() if not found[0].startswith("TIME(")
    }  # Spark has no time of day
    log = make_log(near, columns={name: kind for name, (kind, _) in known.items()})
    log.append(B0, *({name: values[i] for name, (_, values) in known.items()} for i in range(3)))
    LakeRound.plan(near, log).run()
    rows = sorted(java.sql(f"SELECT * FROM lake.{log.table.path}"), key=lambda r: r["__offset"])
    assert [r.get("a_bigint") for r in rows] == [-(2**63), None, 2**63 - 1]
    assert [r.get("a_string") for r in rows] == ["", None, "größer 漢字"]
    assert [r.get("a_date") for r in rows] == ["1969-12-31", None, "2100-01-01"]
    assert [r.get("a_map") for r in rows] == [{"a": 1, "b": None}, None, {}]
    assert rows[0]["a_row"] == {"x": 1} or rows[0]["a_row"] == {"x": 1, "y": None}
    (exact,) = java.sql(f"SELECT CAST(a_timestamp AS STRING) AS t FROM lake.{log.table.path} WHERE __offset = 0")
    assert exact == {"t": "1969-01-01 01:01:01.000001"}


def test_the_page_says_what_java_iceberg_reads(java: JavaIceberg, tmp_path: Path) -> None:
    with folder_lake(tmp_path) as lake:
        tables = [make_table(lake, row) for row in PARTS]
        location = {t.name: lake.connection.load(t.path).metadata_location for t in tables}
        check_page(
            "Spark 4.1, Java Iceberg 1.12", tables, lambda t: java.copy(location[t.name], tmp_path / t.path.table)
        )


def test_the_page_says_what_java_iceberg_reads_of_compacted_tables(java: JavaIceberg, tmp_path: Path) -> None:
    with folder_lake(tmp_path, deletes="equality") as lake:
        check_features(
            "Spark 4.1, Java Iceberg 1.12",
            make_tables(lake),
            lambda log: java.read(lake.connection.load(log.table.path).metadata_location),
        )


def test_upserts_and_deletes_over_rounds(java: JavaIceberg, near: IcebergLakeStorage) -> None:
    log, chance = make_log(near, primary_key=("id",)), random.Random(1)
    for _ in range(10):  # more than eight: manifests of deletes are merged on the way
        change_randomly(log, chance, 20)
        LakeRound.plan(near, log).run()
    check(java, near, log)


@pytest.mark.parametrize("version", ["2", "3"])
def test_our_rewrites_before_and_after_with_deletes_that_were_carried_over(
    java: JavaIceberg, near: IcebergLakeStorage, version: str
) -> None:
    log = make_log(near, primary_key=("id",), properties={"iceberg.format-version": version})
    chance = random.Random(9)
    for _ in range(4):
        change_randomly(log, chance, 40)
        LakeRound.plan(near, log).run()
    own = LakeRewrite(lake=near, table=log.table)
    own.groups = [replace(g, files=g.files[1:3]) for g in own.groups]
    own.write()
    change_randomly(log, chance, 40)
    LakeRound.plan(near, log).run()
    check(java, near, log)
    prepared = own.prepare()
    assert prepared.carried > 0
    own.commit(prepared)
    check(java, near, log)
    change_randomly(log, chance, 40)
    LakeRound.plan(near, log).run()
    check(java, near, log)
    LakeRewrite(lake=near, table=log.table).run()
    check(java, near, log)
    if version == "3":
        ids = [r["_row_id"] for r in java.sql(f"SELECT _row_id FROM lake.{log.table.path}")]
        assert len(set(ids)) == len(ids) == len(expected(log))


def rewrite(java: JavaIceberg, log: ScriptedLog, order: str) -> None:
    options = "map('rewrite-all', 'true', 'remove-dangling-deletes', 'true')"
    arguments = f"table => '{log.table.path}', strategy => 'sort', sort_order => '{order}', options => {options}"
    java.sql(f"CALL lake.system.rewrite_data_files({arguments})")


def expire(java: JavaIceberg, log: ScriptedLog) -> None:
    arguments = f"table => '{log.table.path}', older_than => TIMESTAMP '2100-01-01 00:00:00', retain_last => 1"
    java.sql(f"CALL lake.system.expire_snapshots({arguments})")


def test_java_rewrites_in_another_order_and_expires_and_rounds_go_on(
    java: JavaIceberg, near: IcebergLakeStorage
) -> None:
    log, chance = make_log(near, primary_key=("id",)), random.Random(2)
    for _ in range(3):
        change_randomly(log, chance, 40)
        LakeRound.plan(near, log).run()
        rewrite(java, log, "name DESC")
        check(java, near, log)
        change_randomly(log, chance, 40)
        LakeRound.plan(near, log).run()
        check(java, near, log)
        expire(java, log)
        change_randomly(log, chance, 40)
        LakeRound.plan(near, log).run()
        check(java, near, log)


def test_a_rewrite_of_java_loses_to_rounds_that_delete_and_has_its_way_without_them(
    java: JavaIceberg, near: IcebergLakeStorage
) -> None:
    """What docs/sizing.md says of `rewrite_data_files`: rounds that replace rows of files in work make Spark throw its
    groups away; with rounds paused all of them land. Our own rewrite lands beside rounds either way."""
    log, chance = make_log(near, primary_key=("id",)), random.Random(5)
    for _ in range(8):
        change_randomly(log, chance, 60)
        LakeRound.plan(near, log).run()
    with Rounds(near, log, chance):
        beside = rewritten(java, log)
        own = LakeRewrite(lake=near, table=log.table).write()
    LakeRound.plan(near, log).run()
    own.commit()
    check(java, near, log)
    for _ in range(8):
        change_randomly(log, chance, 60)
        LakeRound.plan(near, log).run()
    files = len(java.sql(f"SELECT * FROM lake.{log.table.path}.data_files"))
    alone = rewritten(java, log)
    assert beside["rewritten_data_files_count"] < alone["rewritten_data_files_count"] == files
    check(java, near, log)
    change_randomly(log, chance, 60)
    LakeRound.plan(near, log).run()
    check(java, near, log)


def rewritten(java: JavaIceberg, log: ScriptedLog) -> dict[str, Any]:
    options = "map('rewrite-all', 'true', 'partial-progress.enabled', 'true')"
    (told,) = java.sql(f"CALL lake.system.rewrite_data_files(table => '{log.table.path}', options => {options})")
    return told


class Rounds:
    """Rounds one after the other in a thread, each replacing rows of every bucket, as long as the block lasts."""

    def __init__(self, lake: IcebergLakeStorage, log: ScriptedLog, chance: random.Random) -> None:
        self._lake, self._log, self._chance = lake, log, chance
        self._stop, self._thread = threading.Event(), threading.Thread(target=self._run)
        self.failures: list[Exception] = []

    def _run(self) -> None:
        while not self._stop.is_set():
            change_randomly(self._log, self._chance, 60)
            for _ in range(20):
                try:
                    LakeRound.plan(self._lake, self._log).run()
                    break
                except CommitConflict:  # Spark committed in between: plan again
                    continue
                except Exception as error:  # noqa: BLE001 - told at the end of the block
                    self.failures.append(error)
                    return

    def __enter__(self) -> Rounds:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        assert not self.failures, self.failures


def test_java_cuts_the_chain_between_our_tag_and_main(java: JavaIceberg, near: IcebergLakeStorage) -> None:
    log, chance = make_log(near, primary_key=("id",)), random.Random(3)
    change_randomly(log, chance, 40)
    LakeRound.plan(near, log).run()
    for order in ("name DESC", "id ASC"):
        rewrite(java, log, order)
    expire(java, log)
    change_randomly(log, chance, 40)
    LakeRound.plan(near, log).run()
    check(java, near, log)


def test_java_appends_deletes_and_creates(java: JavaIceberg, near: IcebergLakeStorage) -> None:
    log = make_log(near, primary_key=("id",))
    log.upsert(B0, *(row(i) for i in range(6)))
    LakeRound.plan(near, log).run()
    java.sql(f"DELETE FROM lake.{log.table.path} WHERE id = 4")
    log.upsert(B0, row(4, "again"), row(5, "changed"))
    LakeRound.plan(near, log).run()
    check(java, near, log)
    java.sql(
        f"CREATE TABLE lake.contract.{log.table.path.table}_copy USING iceberg AS SELECT id, name FROM "
        f"lake.{log.table.path}"
    )
    assert len(java.sql(f"SELECT * FROM lake.contract.{log.table.path.table}_copy")) == 6
    java.sql(f"DROP TABLE lake.contract.{log.table.path.table}_copy")
