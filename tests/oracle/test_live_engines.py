# SPDX-License-Identifier: Apache-2.0
"""The live warehouse read by engines on the JVM, Spark with Java Iceberg and Trino, against a dict; and their writes,
each of which is refused and changes nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog import load_catalog

from tests.interop.javaiceberg import start_java
from tests.interop.trino import TrinoFailed, start_trino
from tests.oracle.liveworld import LiveWorld, live_world
from tests.oracle.test_live import TABLES, Play, Read, Row, sorted_rows

pytestmark = pytest.mark.soak

STEPS = 120
VERSION_2 = [name for name, options in TABLES.items() if "iceberg.format-version" not in options]
"""Trino 470 reads no table of version 3: `Error processing metadata`."""

WRITES = (
    "INSERT INTO lake.db.{table} VALUES {row}",
    "DELETE FROM lake.db.{table} WHERE id = 1",
    "UPDATE lake.db.{table} SET n = 1 WHERE id < 30",
    "MERGE INTO lake.db.{table} t USING (SELECT * FROM lake.db.{table} WHERE id < 9) s ON t.id = s.id "
    "WHEN MATCHED THEN UPDATE SET n = 0",
    "DROP TABLE lake.db.{table}",
    "ALTER TABLE lake.db.{table} ADD COLUMN extra int",
)
SPARK_CALLS = (
    "CALL lake.system.rewrite_data_files(table => 'db.{table}', options => map('rewrite-all', 'true'))",
    "CALL lake.system.rewrite_manifests('db.{table}')",
    "CALL lake.system.expire_snapshots(table => 'db.{table}', older_than => TIMESTAMP '2100-01-01 00:00:00')",
    "CALL lake.system.rollback_to_snapshot('db.{table}', 1)",
)
TRINO_CALLS = (
    "ALTER TABLE lake.db.{table} EXECUTE optimize",
    "ALTER TABLE lake.db.{table} EXECUTE expire_snapshots(retention_threshold => '7d')",
)


def play(world: LiveWorld, read: Read, seed: int, tables: Sequence[str] = tuple(TABLES)) -> Play:
    played = Play(world, seed)
    for number in range(STEPS):
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
            except (AssertionError, TrinoFailed):
                refused += 1
            assert catalog.load_table(f"db.{name}").metadata_location == before, statement
        assert refused >= len(WRITES) - 2, "an UPDATE of no row is none"
        live = load_catalog("y", type="rest", uri=world.url, warehouse="live").load_table(f"db.{name}")
        rows = sorted_rows(live.scan().to_arrow().to_pylist(), played.columns(name))
        assert rows == played.expected(name)


def test_spark_reads_live_and_cannot_write_it(tmp_path: Path) -> None:
    with live_world(tmp_path, keep_s=60) as world, start_java(world.url, "live") as spark:

        def read(name: str, columns: Sequence[str]) -> list[Row]:
            return sorted_rows(spark.sql(f"SELECT {', '.join(columns)} FROM lake.db.{name}"), columns)

        check_writes(world, play(world, read, 21), spark.sql, (*WRITES, *SPARK_CALLS), ("pk", "pk3", "log"))


def test_trino_reads_live_and_cannot_write_it(tmp_path: Path) -> None:
    (tmp_path / "trino").mkdir()
    with live_world(tmp_path, keep_s=60) as world, start_trino(tmp_path / "trino", world.url, "live") as trino:

        def read(name: str, columns: Sequence[str]) -> list[Row]:
            return sorted(map(tuple, trino.sql(f"SELECT {', '.join(columns)} FROM lake.db.{name}")), key=str)

        check_writes(world, play(world, read, 22, VERSION_2), trino.sql, (*WRITES, *TRINO_CALLS), ("pk", "log"))
