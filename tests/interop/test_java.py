# SPDX-License-Identifier: Apache-2.0
"""Java Iceberg 1.12 in Spark 4.1 reads and rewrites our tables, through our REST catalog and by metadata path."""

from __future__ import annotations

import json
import random
import subprocess
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakeward.config.cache import cache_folder
from lakeward.config.java import load_java
from lakeward.lake.iceberg.plugin import IcebergLakeStorage, load
from lakeward.model.typetable import TYPES
from lakeward.testing.iceberg.engines import read_datafusion, read_duckdb, read_pyiceberg
from lakeward.testing.iceberg.folder import folder_lake
from lakeward.testing.lakes import LakeRound, lake_rows
from lakeward.testing.lakes.ddl import EVERY_TYPE
from lakeward.testing.lakes.suite import B0, LakeSuite, row
from lakeward.testing.lakes.upserts import change_randomly
from lakeward.testing.scripted_log import ScriptedLog
from tests.interop.enginetypes import check_page, make_table

pytestmark = pytest.mark.soak

PYSPARK = "pyspark==4.1.4"
RUNTIME = ("org.apache.iceberg", "iceberg-spark-runtime-4.1_2.13", "1.12.0")


class JavaIceberg:
    """The other side of `java_engine.py`."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        assert self._hear() == {"ready": True}

    def sql(self, text: str) -> list[dict[str, Any]]:
        return self._ask({"sql": text})

    def read(self, metadata_location: str) -> list[dict[str, Any]]:
        return self._ask({"path": metadata_location})

    def copy(self, metadata_location: str, folder: Path) -> pa.Table:
        """What it reads, through a Parquet file: JSON has no NaN and no bytes."""
        self._ask({"path": metadata_location, "to": str(folder)})
        return pq.read_table(folder)

    def _ask(self, order: dict[str, str]) -> list[dict[str, Any]]:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        answer = self._hear()
        assert "error" not in answer, answer["error"]
        rows: list[dict[str, Any]] = answer["rows"]
        return rows

    def _hear(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        while line and not line.startswith("{"):  # what Spark says of itself
            line = self._process.stdout.readline()
        found: dict[str, Any] = json.loads(line or '{"error": "the engine ended"}')
        return found


def environment() -> tuple[Path, Path]:
    """Python with that PySpark, and the runtime's jar; made once and kept in the cache folder."""
    folder = cache_folder() / "java-iceberg"
    python, jar = folder / "bin" / "python", folder / f"{RUNTIME[1]}-{RUNTIME[2]}.jar"
    if not python.exists():
        subprocess.run(["uv", "venv", "-q", "--python", "3.11", str(folder)], check=True)
        subprocess.run(["uv", "pip", "install", "-q", "--python", str(python), PYSPARK], check=True)
    if not jar.exists():
        copy = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy"
        subprocess.run(
            ["mvn", "-q", "-B", copy, f"-Dartifact={':'.join(RUNTIME)}", f"-DoutputDirectory={folder}"], check=True
        )
    return python, jar


@contextmanager
def start_java(catalog: str) -> Iterator[JavaIceberg]:
    """Java Iceberg in a process of its own. Tables can also be read by the path of their metadata, without that
    catalog.
    """
    python, jar = environment()
    variables = {
        "JAVA_HOME": str(load_java().home),
        "PATH": "/usr/bin:/bin",
        "PYSPARK_PYTHON": str(python),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    command = [str(python), str(Path(__file__).with_name("java_engine.py")), str(jar), catalog]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=variables
    )
    try:
        yield JavaIceberg(process)
    finally:
        assert process.stdin is not None
        process.stdin.close()
        process.wait(60)
        assert process.stdout is not None
        process.stdout.close()


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
        tables = [make_table(lake, row) for row in TYPES]
        location = {t.name: lake.connection.load(t.path).metadata_location for t in tables}
        check_page(
            "Spark 4.1, Java Iceberg 1.12", tables, lambda t: java.copy(location[t.name], tmp_path / t.path.table)
        )


def test_upserts_and_deletes_over_rounds(java: JavaIceberg, near: IcebergLakeStorage) -> None:
    log, chance = make_log(near, primary_key=("id",)), random.Random(1)
    for _ in range(10):  # more than eight: manifests of deletes are merged on the way
        change_randomly(log, chance, 20)
        LakeRound.plan(near, log).run()
    check(java, near, log)


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
