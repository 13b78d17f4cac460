# SPDX-License-Identifier: Apache-2.0
"""The live warehouse read by engines on the JVM, Spark with Java Iceberg, Trino and Flink, against a dict, and the lake
itself after the last round; and their writes, each of which is refused and changes nothing. Daft and Superset's driver
read it too."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog import load_catalog

from tests.interop.flinksql import FlinkFailed, start_flink
from tests.interop.javaiceberg import start_java
from tests.interop.pyengines import start_py_engines
from tests.interop.trino import TrinoFailed, start_trino
from tests.oracle.liveworld import LiveWorld, live_world
from tests.oracle.test_live import TABLES, Play, Read, Row, sorted_rows

pytestmark = pytest.mark.soak

STEPS = 120
VERSION_2 = [name for name, options in TABLES.items() if "iceberg.format-version" not in options]
"""Trino 470 reads no table of version 3: `Error processing metadata`."""

COPY = "INSERT INTO lake.db.{table} SELECT * FROM lake.db.{table}"
OVERWRITE = "INSERT OVERWRITE lake.db.{table} SELECT * FROM lake.db.{table}"
WRITES = (
    "INSERT INTO lake.db.{table} VALUES {row}",
    COPY,
    "DELETE FROM lake.db.{table} WHERE id = 1",
    "UPDATE lake.db.{table} SET n = 1 WHERE id < 30",
    "MERGE INTO lake.db.{table} t USING (SELECT * FROM lake.db.{table} WHERE id < 9) s ON t.id = s.id "
    "WHEN MATCHED THEN UPDATE SET n = 0",
    "DROP TABLE lake.db.{table}",
    "ALTER TABLE lake.db.{table} ADD COLUMN extra int",
)
FLINK_WRITES = (
    COPY,
    OVERWRITE,
    "DROP TABLE lake.db.{table}",
    "ALTER TABLE lake.db.{table} ADD extra INT",
    "ALTER TABLE lake.db.{table} RENAME TO lake.db.other",
    "CREATE TABLE lake.db.fresh (id BIGINT)",
    "CREATE DATABASE lake.elsewhere",
)
FLINK_STEPS = 40
"""Each query is a job of its own."""

SPARK_CALLS = (
    OVERWRITE,
    "CALL lake.system.rewrite_data_files(table => 'db.{table}', options => map('rewrite-all', 'true'))",
    "CALL lake.system.rewrite_manifests('db.{table}')",
    "CALL lake.system.expire_snapshots(table => 'db.{table}', older_than => TIMESTAMP '2100-01-01 00:00:00')",
    "CALL lake.system.rollback_to_snapshot('db.{table}', 1)",
)
TRINO_CALLS = (
    "ALTER TABLE lake.db.{table} EXECUTE optimize",
    "ALTER TABLE lake.db.{table} EXECUTE expire_snapshots(retention_threshold => '7d')",
)


def play(world: LiveWorld, read: Read, seed: int, tables: Sequence[str] = tuple(TABLES), steps: int = STEPS) -> Play:
    played = Play(world, seed)
    for number in range(steps):
        done = played.step()
        name = played.random.choice(tables)
        assert read(name, played.columns(name)) == played.expected(name), f"after step {number}: {done}"
    return played


def check_writes(
    world: LiveWorld, played: Play, run: Callable[[str], Any], statements: Sequence[str], tables: Sequence[str]
) -> None:
    """Every statement fails, or finds nothing to do; the catalog's pointer and every row stay."""
    catalog = load_catalog("x", type="rest", uri=world.url)
    for name in tables:
        before = catalog.load_table(f"db.{name}").metadata_location
        columns = len(catalog.load_table(f"db.{name}").schema().fields)
        row = "(1, 'a', 1, " + ", ".join(["0"] * (columns - 4)) + ", current_timestamp)"
        refused = 0
        for statement in statements:
            try:
                run(statement.format(table=name, row=row))
            except (AssertionError, TrinoFailed, FlinkFailed):
                refused += 1
            assert catalog.load_table(f"db.{name}").metadata_location == before, statement
        assert refused >= min(len(statements), len(WRITES)) - 2, "an UPDATE of no row is none"
        live = load_catalog("y", type="rest", uri=world.url, warehouse="live").load_table(f"db.{name}")
        rows = sorted_rows(live.scan().to_arrow().to_pylist(), played.columns(name))
        assert rows == played.expected(name)


def test_spark_reads_live_and_cannot_write_it(tmp_path: Path) -> None:
    with live_world(tmp_path, keep_s=60) as world, start_java(world.url, "live") as spark:

        def read(name: str, columns: Sequence[str]) -> list[Row]:
            return sorted_rows(spark.sql(f"SELECT {', '.join(columns)} FROM lake.db.{name}"), columns)

        check_writes(world, play(world, read, 21), spark.sql, (*WRITES, *SPARK_CALLS), ("pk", "pk3", "log"))


def check_default(played: Play, read_default: Read, tables: Sequence[str]) -> None:
    """The lake after a round that took everything."""
    for name in tables:
        played.tier(name)
        assert read_default(name, played.columns(name)) == played.expected(name)


def test_trino_reads_live_and_cannot_write_it(tmp_path: Path) -> None:
    (tmp_path / "trino").mkdir()
    with (
        live_world(tmp_path, keep_s=60) as world,
        start_trino(tmp_path / "trino", world.url, "live", base="default") as trino,
    ):

        def read(name: str, columns: Sequence[str], catalog: str = "lake") -> list[Row]:
            return sorted(map(tuple, trino.sql(f"SELECT {', '.join(columns)} FROM {catalog}.db.{name}")), key=str)

        played = play(world, read, 22, VERSION_2)
        check_writes(world, played, trino.sql, (*WRITES, *TRINO_CALLS), ("pk", "log"))
        check_default(played, partial(read, catalog="base"), VERSION_2)


def test_flink_reads_live_and_cannot_write_it(tmp_path: Path) -> None:
    with (
        live_world(tmp_path, keep_s=60) as world,
        start_flink(tmp_path / "flink.log", world.url, lake="live", base="default") as flink,
    ):

        def read(name: str, columns: Sequence[str], catalog: str = "lake") -> list[Row]:
            return sorted(map(tuple, flink.sql(f"SELECT {', '.join(columns)} FROM {catalog}.db.{name}")), key=str)

        played = play(world, read, 23, steps=FLINK_STEPS)
        check_writes(world, played, flink.sql, FLINK_WRITES, ("pk", "pk3", "log"))
        check_default(played, partial(read, catalog="base"), tuple(TABLES))


def test_daft_reads_live(tmp_path: Path) -> None:
    """Daft 0.7 reads no deletion vectors, so tables of version 2 alone."""
    with live_world(tmp_path, keep_s=60) as world, start_py_engines(world.url) as engines:

        def read(name: str, columns: Sequence[str]) -> list[Row]:
            return sorted_rows(engines.daft(f"db.{name}", columns), columns)

        play(world, read, seed=24, tables=VERSION_2)


def test_the_driver_of_superset_reads_live(tmp_path: Path) -> None:
    with live_world(tmp_path, keep_s=60) as world, start_py_engines(world.url) as engines:

        def read(name: str, columns: Sequence[str]) -> list[Row]:
            return sorted_rows(engines.sql(f"SELECT {', '.join(columns)} FROM fresh.db.{name}"), columns)

        played = play(world, read, seed=25)

        def write(statement: str) -> object:
            return engines.sql(statement.replace("lake.", "fresh."))

        check_writes(world, played, write, WRITES, list(TABLES))
