# SPDX-License-Identifier: Apache-2.0
"""Engines on a JVM for the oracle: Java Iceberg and delta-spark on Spark, and Java Paimon. They read, and change tables
between our commits as their users do.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import count
from pathlib import Path
from random import Random
from subprocess import TimeoutExpired
from typing import Any

import pyarrow as pa
from pyiceberg.catalog import load_catalog
from pypaimon import CatalogFactory, Schema

from lakeward.model import TablePath
from lakeward_testing.oracle.columns import Alteration, AlterationKind
from lakeward_testing.oracle.engines.base import FAR, Effect, Engines, Target, some_keys
from tests.interop.javaiceberg import JavaIceberg
from tests.interop.test_paimon_java import JavaPaimon

NUMBERS = count(1)
SPARK_TYPES = (
    (r"TIMESTAMP\(6\)", "TIMESTAMP_NTZ"),
    (r"TIMESTAMP_LTZ\(6\)", "TIMESTAMP"),
    (r"\b(TINYINT|SMALLINT)\b", "INT"),
    (r"CHAR\(\d+\)", "STRING"),
    (r"\bBYTES\b", "BINARY"),
    (r"\bROW<", "STRUCT<"),
    (r"MAP<STRING NOT NULL", "MAP<STRING"),
)
SOME = "{number} % 3 = {third}"


def _spark_type(kind: str) -> str:
    """A column type as Spark's ALTER TABLE spells it."""
    for ours, spark in SPARK_TYPES:
        kind = re.sub(ours, spark, kind)
    return kind


class SparkFailed(Exception):
    """A statement ended in an error: another engine that was refused, or was slower than a commit of ours."""


def sql(java: JavaIceberg, text: str) -> list[dict[str, Any]]:
    try:
        return java.sql(text)
    except AssertionError as error:
        raise SparkFailed(str(error)[:300]) from error


def copy(java: JavaIceberg, path: str, folder: Path) -> pa.Table:
    try:
        return java.copy(path, folder)
    except AssertionError as error:
        raise SparkFailed(str(error)[:300]) from error


class SparkDeeds:
    """Statements that Iceberg and Delta have in common. `name_of` spells a table for Spark."""

    def __init__(self, java: JavaIceberg, engines: Engines, name_of: Callable[[str], str], read: str) -> None:
        self._java, self._engines, self._name_of, self._read = java, engines, name_of, read
        engines.hurt = (*engines.hurt, SparkFailed)
        engines.add(Effect.INSERTS, Spark_inserts=self._insert)
        engines.add(Effect.DELETES, Spark_deletes=self._delete)
        engines.add(Effect.ALTERS, Spark_updates=self._update, Spark_merges=self._merge)

    def _insert(self, target: Target, chance: Random) -> None:
        table = self._name_of(target.path)
        names = self._engines.read[self._read](target.path).column_names
        listed = ", ".join(f"`__offset` + {FAR}" if name == "__offset" else f"`{name}`" for name in names)
        sql(self._java, f"INSERT INTO {table} SELECT {listed} FROM {table} LIMIT {chance.randint(1, 9)}")

    def _delete(self, target: Target, chance: Random) -> list[Any]:
        rows = self._engines.read[self._read](target.path)
        keys = some_keys(rows, target.number, chance)
        listed = ", ".join(map(str, keys))
        if keys:
            sql(self._java, f"DELETE FROM {self._name_of(target.path)} WHERE {target.number} IN ({listed})")
        return keys

    def _update(self, target: Target, chance: Random) -> None:
        condition = SOME.format(number=target.number, third=chance.randrange(3))
        sql(self._java, f"UPDATE {self._name_of(target.path)} SET must = -1 WHERE {condition}")

    def _merge(self, target: Target, chance: Random) -> None:
        table, condition = self._name_of(target.path), SOME.format(number=target.number, third=chance.randrange(3))
        source = f"SELECT p, {target.number} AS n FROM {table} WHERE {condition}"
        on = f"t.p = s.p AND t.{target.number} = s.n"
        matched = chance.choice(("WHEN MATCHED THEN DELETE", "WHEN MATCHED THEN UPDATE SET must = -2"))
        sql(self._java, f"MERGE INTO {table} t USING ({source}) s ON {on} {matched}")


def add_java_iceberg(engines: Engines, java: JavaIceberg, folder: Path) -> None:
    """One JVM serves lab after lab: each gets a catalog of its own."""
    name = f"oracle{next(NUMBERS)}"
    for key, value in {
        "": "org.apache.iceberg.spark.SparkCatalog",
        ".type": "rest",
        ".uri": f"{engines.url}/iceberg",
        ".cache-enabled": "false",
    }.items():
        java.sql(f"SET `spark.sql.catalog.{name}{key}`=`{value}`")

    def read(path: str) -> pa.Table:
        catalog = load_catalog("oracle", type="rest", uri=f"{engines.url}/iceberg")
        return copy(java, catalog.load_table(path).metadata_location, folder / f"copy{next(NUMBERS)}")

    def call(procedure: str, **arguments: str) -> Callable[[Target, Random], None]:
        def act(target: Target, chance: Random) -> None:
            listed = ", ".join(f"{key} => {value}" for key, value in arguments.items())
            sql(java, f"CALL {name}.system.{procedure}(table => '{target.path}'{', ' * bool(listed)}{listed})")

        return act

    def roll_back(target: Target, chance: Random) -> None:
        rows = sql(
            java, f"SELECT CAST(snapshot_id AS STRING) AS id FROM {name}.{target.path}.history ORDER BY made_current_at"
        )
        older = [row["id"] for row in rows][:-1]
        if not older:
            raise SparkFailed("no older snapshot")
        sql(java, f"CALL {name}.system.rollback_to_snapshot('{target.path}', {chance.choice(older)})")

    def alter(target: Target, change: Alteration) -> None:
        column = f"{change.column} {'TYPE ' if change.kind is AlterationKind.WIDEN else ''}{_spark_type(change.new)}"
        clause = {
            AlterationKind.ADD: f"ADD COLUMN {column}",
            AlterationKind.RENAME: f"RENAME COLUMN {change.column} TO {change.new}",
            AlterationKind.DROP: f"DROP COLUMN {change.column}",
            AlterationKind.WIDEN: f"ALTER COLUMN {column}",
        }[change.kind]
        sql(java, f"ALTER TABLE {name}.{target.path} {clause}")

    engines.no_types = (*engines.no_types, "TIME(")
    engines.alters["Spark"] = alter
    engines.read["Java Iceberg"] = read
    SparkDeeds(java, engines, lambda path: f"{name}.{path}", "Java Iceberg")
    engines.add(
        Effect.KEEPS,
        Java_rewrites_data_files=call(
            "rewrite_data_files", options="map('rewrite-all', 'true', 'remove-dangling-deletes', 'true')"
        ),
        Java_rewrites_position_deletes=call("rewrite_position_delete_files", options="map('rewrite-all', 'true')"),
        Java_rewrites_manifests=call("rewrite_manifests"),
        Java_expires=call("expire_snapshots", older_than="TIMESTAMP '2100-01-01 00:00:00'", retain_last="1"),
    )
    engines.add(Effect.ROLLS_BACK, Java_rolls_back=roll_back)


def add_java_paimon(engines: Engines, jar: Path) -> None:
    """A process for each call. Rows come by way of a second table, into which Java copies what it reads."""
    java, catalog = JavaPaimon(jar, engines.warehouse), CatalogFactory.create({"warehouse": str(engines.warehouse)})
    native = engines.read["pypaimon, native reader"]

    def read(path: str) -> pa.Table:
        there = TablePath(*path.split("."))
        copied = f"copy{next(NUMBERS)}"
        fields = catalog.get_table(path).fields
        catalog.create_table(f"{there.database}.{copied}", Schema(fields=fields, options={"bucket": "-1"}), False)
        run("copy", path, copied)
        return native(f"{there.database}.{copied}")

    def run(deed: str, path: str, *more: str) -> None:
        try:
            java.run(deed, TablePath(*path.split(".")), *more)
        except (AssertionError, TimeoutExpired) as error:
            raise SparkFailed(str(error)[-300:]) from error

    engines.hurt = (*engines.hurt, SparkFailed)
    engines.read["Java Paimon"] = read
    engines.add(
        Effect.KEEPS,
        Java_Paimon_compacts=lambda t, _: run("compact", t.path),
        Java_Paimon_merges=lambda t, _: run("merge", t.path),
        Java_Paimon_expires=lambda t, _: run("expire", t.path),
    )


def add_delta_spark(engines: Engines, java: JavaIceberg, folder: Path) -> None:
    def root(path: str) -> str:
        return str(engines.warehouse.joinpath(*path.split(".")))

    def read(path: str) -> pa.Table:
        return copy(java, root(path), folder / f"copy{next(NUMBERS)}")

    def name_of(path: str) -> str:
        return f"delta.`{root(path)}`"

    def restore(target: Target, chance: Random) -> None:
        versions = [row["version"] for row in sql(java, f"DESCRIBE HISTORY {name_of(target.path)}")]
        if len(versions) < 2:
            raise SparkFailed("no older version")
        sql(java, f"RESTORE TABLE {name_of(target.path)} TO VERSION AS OF {chance.choice(sorted(versions)[:-1])}")

    engines.read["delta-spark"] = read
    SparkDeeds(java, engines, name_of, "delta-spark")
    engines.add(Effect.KEEPS, Spark_optimizes=lambda t, _: sql(java, f"OPTIMIZE {name_of(t.path)}") and None)
    engines.add(Effect.ROLLS_BACK, Spark_restores=restore)
