# SPDX-License-Identifier: Apache-2.0
"""Java Paimon reads what we write, and the other way round: kinds of change, types, partitions, old and new columns,
deletion vectors; after our compaction and its own, after its expiry."""

from __future__ import annotations

import datetime as dt
import os
import subprocess
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyspark
import pytest
from pypaimon.schema.schema_change import SchemaChange

from lakeward.config.cache import cache_folder
from lakeward.config.java import load_java
from lakeward.errors import LakewardError
from lakeward.lake.paimon.plugin import load
from lakeward.lake.paimon.storage import PaimonLakeStorage
from lakeward.model import (
    SYSTEM_COLUMNS_PROPERTY,
    Bucket,
    Column,
    ColumnChanges,
    StringType,
    TablePath,
    change_columns,
    parse_type,
)
from lakeward.spi import SupportsSnapshotNames
from lakeward_testing.lakes.rewriting import LakeRewrite
from lakeward_testing.lakes.rounds import LakeRound, lake_rows
from lakeward_testing.lakes.suite import B0, B1, LakeSuite, row
from lakeward_testing.paimonforeign import PaimonForeignEngine
from lakeward_testing.scripted_log import ScriptedLog
from tests.kit.fluss.jars import load_jars

pytestmark = pytest.mark.soak

SUITE = LakeSuite()
VERSIONS = ("org.apache.paimon:paimon-bundle:1.4.2", "org.apache.paimon:paimon-flink-2.0:2.0.0")
PARENTS = ("org.apache.paimon:paimon-flink:2.0.0",)
"""Descriptors that some mirrors lack."""

HADOOP = (
    "hadoop-client-api",
    "hadoop-client-runtime",
    "slf4j-api",
    "commons-logging",
    "log4j-",
    "zstd-jni",
    "commons-",
)
LIMIT_S = 600


class JavaPaimon:
    """A process for each call."""

    def __init__(self, jar: Path, warehouse: Path) -> None:
        jars = Path(pyspark.__file__).parent / "jars"
        beside = [str(j) for j in sorted(jars.glob("*.jar")) if j.name.startswith(HADOOP)]
        self._classpath, self._warehouse = os.pathsep.join([str(jar), *beside]), warehouse

    def __call__(self, deed: str, log: ScriptedLog, *more: str) -> list[str]:
        return self.run(deed, log.table.path, *more)

    def run(self, deed: str, path: TablePath, *more: str) -> list[str]:
        source = Path(__file__).with_name("JavaPaimon.java")
        opened = [f"--add-opens=java.base/{p}=ALL-UNNAMED" for p in ("java.lang", "java.nio", "sun.nio.ch")]
        command = [str(load_java().home / "bin" / "java"), *opened, "-cp", self._classpath, str(source)]
        command += [f"file:{self._warehouse}", deed, path.database, path.table, *more]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
        assert ended.stdout.splitlines()[-1:] == ["done"], ended.stderr[-3000:]
        return [line.removeprefix("row ") for line in ended.stdout.splitlines() if line.startswith("row ")]

    def rows(self, log: ScriptedLog, tag: str | None = None) -> list[str]:
        """The user's columns."""
        count = len(log.table.schema.names)
        found = self("read", log) if tag is None else self("read-tag", log, tag)
        return sorted("|".join(line.split("|")[:count]) for line in found)


@pytest.fixture(params=VERSIONS, ids=["1.4", "2.0"])
def java(request: pytest.FixtureRequest, tmp_path: Path) -> JavaPaimon:
    try:
        (jar,) = load_jars([request.param], cache_folder() / "java-paimon", LIMIT_S, PARENTS)
    except LakewardError as error:
        pytest.skip(f"no jar of Java Paimon can be had on this machine (it comes through mvn): {error}")
    return JavaPaimon(jar, tmp_path / "warehouse")


@pytest.fixture
def lake(tmp_path: Path) -> PaimonLakeStorage:
    storage = load({"warehouse": str(tmp_path / "warehouse")})
    assert isinstance(storage, PaimonLakeStorage)
    return storage


def expected(log: ScriptedLog) -> list[str]:
    """As Java shows the suite's columns: id, name, amount."""
    rows = (r for _, _, r in log.expected(log.ends()))
    return sorted(f"{r['id']}|{r['name']}|{r['amount']:.2f}" for r in rows)


def run_round(lake: PaimonLakeStorage, log: ScriptedLog) -> None:
    LakeRound.plan(lake, log).run()


def test_java_reads_our_changes_before_and_after_compactions_and_we_its(
    lake: PaimonLakeStorage, java: JavaPaimon
) -> None:
    log = SUITE.make_log(lake, primary_key=("id",), bucket_keys=("id",))
    own = {n: (B0, B1)[n % 2] for n in range(20)}
    for name in ("a", "b", "c"):
        for n, bucket in own.items():
            if name == "a" or n % 3:
                log.upsert(bucket, row(n, name))
        if name == "c":
            log.delete(own[5], row(5))
        run_round(lake, log)
    assert java.rows(log) == expected(log)
    cut, at_cut, tagged = lake.open_reader(log.table).snapshots()[-1].snapshot_id, log.ends(), expected(log)
    upkeep = lake.open_maintenance(log.table)
    assert isinstance(upkeep, SupportsSnapshotNames)
    upkeep.tag("lakeward-cut-c", cut)
    LakeRewrite(lake=lake, table=log.table).run()
    assert java.rows(log) == expected(log)
    log.upsert(B0, row(2, "later"))
    run_round(lake, log)
    java("compact", log)
    assert lake_rows(lake, log.table) == log.expected(log.ends())
    log.upsert(B1, row(3, "after Java's compaction"))
    log.delete(B0, row(2))
    run_round(lake, log)
    java("expire", log)
    assert lake_rows(lake, log.table) == log.expected(log.ends())
    assert lake_rows(lake, log.table, cut) == log.expected(at_cut)
    assert java.rows(log, "lakeward-cut-c") == tagged
    assert java.rows(log) == expected(log)
    LakeRewrite(lake=lake, table=log.table).run()
    assert java.rows(log) == expected(log)


def test_java_and_we_take_turns_on_a_clean_pk_table(lake: PaimonLakeStorage, java: JavaPaimon) -> None:
    """Without system columns sequence numbers alone tell which row of a key counts: over our rounds, Java's own
    compaction, which may take the highest away, and ours."""
    keys: dict[str, Any] = {"primary_key": ("id",), "bucket_keys": ("id",), "bucket_count": 1}
    log = SUITE.make_log(lake, properties={SYSTEM_COLUMNS_PROPERTY: "false"}, **keys)
    compactions = (lambda: java("compact", log), lambda: LakeRewrite(lake=lake, table=log.table).run())
    for wave in range(4):
        log.upsert(B0, *(row(n, f"wave {wave}") for n in range(wave, 12)))
        log.delete(B0, row(11), row(wave))
        run_round(lake, log)
        assert java.rows(log) == expected(log) == shown(lake, log)
        if wave % 2:
            compactions[wave // 2 % 2]()
            assert java.rows(log) == expected(log) == shown(lake, log)


def test_java_reads_and_compacts_a_clean_log_table(lake: PaimonLakeStorage, java: JavaPaimon) -> None:
    properties = {SYSTEM_COLUMNS_PROPERTY: "false"}
    log = SUITE.make_log(lake, properties=properties, bucket_keys=("id",), bucket_count=1)
    for wave in range(4):
        log.append(B0, *(row(10 * wave + n) for n in range(3)))
        run_round(lake, log)
        assert lake_rows(lake, log.table) == log.expected(log.ends())
        if wave == 1:
            LakeRewrite(lake=lake, table=log.table).run()
    assert java.rows(log) == expected(log)
    java("compact", log)
    assert java.rows(log) == expected(log) == shown(lake, log)
    log.append(B0, row(100))
    run_round(lake, log)
    assert java.rows(log) == expected(log) == shown(lake, log)


def shown(lake: PaimonLakeStorage, log: ScriptedLog) -> list[str]:
    """The same by our reader."""
    reader = lake.open_reader(log.table)
    head = reader.load_snapshot()
    assert head is not None
    rows = [r for b in reader.scan(head.snapshot_id) for r in b.to_pylist()]
    return sorted(f"{r['id']}|{r['name']}|{r['amount']:.2f}" for r in rows)


def test_java_reads_a_partitioned_log_table_with_old_and_new_columns(lake: PaimonLakeStorage, java: JavaPaimon) -> None:
    columns = {"id": "BIGINT NOT NULL", "day": "DATE NOT NULL", "shop": "INT NOT NULL"}
    log = SUITE.make_log(lake, columns=columns, partition_keys=("day", "shop"))
    first, second = Bucket("2024-02-29$7", 0), Bucket("1969-12-31$-1", 1)
    log.append(first, {"id": 1, "day": dt.date(2024, 2, 29), "shop": 7})
    run_round(lake, log)
    lake.catalog().add_columns(log.table, [Column(name="more", type=StringType())])
    log.append(second, {"id": 2, "day": dt.date(1969, 12, 31), "shop": -1})
    run_round(lake, log)
    days = {
        (line.split("|")[0], line.split("|")[1], line.split("|")[2], line.split("|")[3]) for line in java("read", log)
    }
    assert days == {("1", "19782", "7", "null"), ("2", "-1", "-1", "null")}
    LakeRewrite(lake=lake, table=log.table).run()
    assert len(java("read", log)) == 2


TYPES: dict[str, tuple[str, Any, str]] = {
    "b": ("BOOLEAN", True, "true"),
    "i8": ("TINYINT", -5, "-5"),
    "i16": ("SMALLINT", 300, "300"),
    "i32": ("INT", 70_000, "70000"),
    "f32": ("FLOAT", 1.5, "1.5"),
    "f64": ("DOUBLE", 2.25, "2.25"),
    "c": ("CHAR(4)", "abcd", "abcd"),
    "s": ("STRING", "ünï", "ünï"),
    "dec": ("DECIMAL(20, 4)", Decimal("12345.6789"), "12345.6789"),
    "d": ("DATE", dt.date(2024, 2, 29), "19782"),
    "t": ("TIME(3)", dt.time(1, 2, 3, 4000), "3723004"),
    "ts": ("TIMESTAMP(6)", dt.datetime(2024, 2, 29, 12, 30, 15, 123456), "2024-02-29T12:30:15.123456"),
    "tz": ("TIMESTAMP_LTZ(3)", dt.datetime(2024, 2, 29, 12, 30, tzinfo=dt.UTC), "2024-02-29T12:30"),
}


def test_java_reads_every_flat_type(lake: PaimonLakeStorage, java: JavaPaimon) -> None:
    columns = {"id": "BIGINT NOT NULL", **{name: sql for name, (sql, _, _) in TYPES.items()}}
    log = SUITE.make_log(lake, columns=columns, primary_key=("id",), bucket_keys=("id",))
    log.upsert(
        B0, {"id": 1, **{name: value for name, (_, value, _) in TYPES.items()}}, {"id": 2, **dict.fromkeys(TYPES)}
    )
    run_round(lake, log)
    wanted = [["1", *(text for _, _, text in TYPES.values())], ["2", *["null"] * len(TYPES)]]
    assert [line.split("|") for line in java.rows(log)] == wanted
    LakeRewrite(lake=lake, table=log.table).run()
    assert [line.split("|") for line in java.rows(log)] == wanted


NESTED: dict[str, tuple[str, Any]] = {
    "raw": ("BYTES", b"\x00\xff"),
    "fixed": ("BINARY(3)", b"abc"),
    "micro": ("TIMESTAMP_LTZ(6)", dt.datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=dt.UTC)),
    "list": ("ARRAY<INT>", [1, None, 3]),
    "map": ("MAP<STRING NOT NULL, DECIMAL(5, 2)>", [("a", Decimal("1.25")), ("b", None)]),
    "row": ("ROW<n BIGINT, deep ARRAY<ROW<s STRING>>>", {"n": 7, "deep": [{"s": "x"}, {"s": None}]}),
}


@pytest.mark.parametrize("keys", [(), ("id", "day")], ids=["log", "pk"])
def test_we_read_every_type_that_java_writes_and_java_what_we_wrote(
    lake: PaimonLakeStorage, java: JavaPaimon, keys: tuple[str, ...]
) -> None:
    """It reads our rows and writes them into a table beside; the partition is typed."""
    kinds = {**{name: sql for name, (sql, _, _) in TYPES.items()}, **{name: sql for name, (sql, _) in NESTED.items()}}
    values = {**{n: value for n, (_, value, _) in TYPES.items()}, **{n: value for n, (_, value) in NESTED.items()}}
    day = dt.date(1969, 12, 31)
    columns = {"id": "BIGINT NOT NULL", "day": "DATE NOT NULL", **kinds}
    made: dict[str, Any] = {"columns": columns, "primary_key": keys, "partition_keys": ("day",)}
    log, copy = SUITE.make_log(lake, "t", **made), SUITE.make_log(lake, "copy", **made)
    bucket = Bucket(day.isoformat(), 0)
    (log.upsert if keys else log.append)(
        bucket, {"id": 1, "day": day, **values}, {"id": 2, "day": day, **dict.fromkeys(values)}
    )
    run_round(lake, log)
    java("copy", log, copy.table.path.table)
    (ours, empty), theirs = user_rows(lake, log), user_rows(lake, copy)
    assert theirs == [ours, empty]
    assert {name: ours[name] for name in values} == values
    assert all(empty[name] is None for name in values)


def user_rows(lake: PaimonLakeStorage, log: ScriptedLog) -> list[dict[str, Any]]:
    reader = lake.open_reader(log.table)
    head = reader.load_snapshot()
    assert head is not None
    rows = [r for batch in reader.scan(head.snapshot_id) for r in batch.to_pylist()]
    return sorted(({n: r[n] for n in log.table.schema.names} for r in rows), key=lambda r: r["id"])


def test_deletes_that_java_writes_count_also_as_deletion_vectors(lake: PaimonLakeStorage, java: JavaPaimon) -> None:
    log, copy = (SUITE.make_log(lake, n, primary_key=("id",), bucket_keys=("id",)) for n in ("t", "copy"))
    log.upsert(B0, *(row(n) for n in range(40)))
    run_round(lake, log)
    vectors = SchemaChange.set_option("deletion-vectors.enabled", "true")
    PaimonForeignEngine(lake.connection, copy.table.path).alter(vectors)
    java("copy", log, copy.table.path.table)
    java("compact", copy)
    for gone in (7, 8):
        java("delete", copy, str(gone))
        assert [r["id"] for r in user_rows(lake, copy)] == [n for n in range(40) if n not in range(7, gone + 1)]
        java("merge", copy)
        reader = lake.open_reader(copy.table)
        head = reader.load_snapshot()
        assert head is not None
        assert sum(d.record_count for f in reader.files(head.snapshot_id) for d in f.deletes) == gone - 6
        assert sorted(int(line.split("|")[0]) for line in java("read", copy)) == [
            r["id"] for r in user_rows(lake, copy)
        ]


def test_java_reads_columns_that_changed(lake: PaimonLakeStorage, java: JavaPaimon) -> None:
    """Names that were swapped, a wider type, a column between others, one that was dropped; before and after our
    compaction."""
    columns = {"id": "BIGINT NOT NULL", "a": "INT", "b": "STRING", "gone": "STRING"}
    log = SUITE.make_log(lake, columns=columns, primary_key=("id",))
    log.upsert(B0, {"id": 1, "a": 5, "b": "x", "gone": "old"}, {"id": 2, "a": 6, "b": "y", "gone": "old"})
    LakeRound.plan(lake, log).run()
    changes = ColumnChanges(
        rename={"a": "b", "b": "a"},
        drop=("gone",),
        add=(Column(name="c", type=StringType()),),
        widen={"a": parse_type("BIGINT")},
        after={"c": "id"},
    )
    after = change_columns(log.table, changes)
    catalog = lake.catalog()
    catalog.check_evolve(log.table, after)
    catalog.evolve(log.table, after)
    catalog.finish_evolve(after)
    changed = ScriptedLog(after)
    changed.skip(B0, log.end(B0))
    changed.upsert(B0, {"id": 3, "c": "new", "b": 2**40, "a": "z"})
    LakeRound.plan(lake, changed).run()
    wanted = ["1|null|5|x", "2|null|6|y", f"3|new|{2**40}|z"]
    assert java.rows(changed) == wanted
    LakeRewrite(lake=lake, table=after).run()
    assert java.rows(changed) == wanted
