# SPDX-License-Identifier: Apache-2.0
"""Deletes of every kind under a union read, in Arrow and in Spark: keys of one partition, deletion vectors, both on one
file, rows that another engine wrote anew under their old offsets, with a hot tail on top."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lakeward.bucketing.pieces import split_partitions
from lakeward.lake.iceberg.plugin import IcebergLakeStorage
from lakeward.model import Bucket, OffsetSet, TablePath
from lakeward.read.arrow import request_of
from lakeward.read.spark.batch import read_frame
from lakeward.read.spark.deadrows import DeadRows
from lakeward.spi import LakeFile
from lakeward_testing.icebergforeign import IcebergForeignEngine
from tests.interop.javaiceberg import JavaIceberg, start_java
from tests.kit.iceberg.merge_on_read import MergeOnReadEngine
from tests.kit.inprocess import InProcessLakeward
from tests.property.union_program import iceberg_lake

pytestmark = [
    pytest.mark.spark,
    # Py4J leaves sockets to the garbage collector.
    pytest.mark.filterwarnings("ignore:.*socket.socket.*:pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore:.*unclosed <socket.*:ResourceWarning"),
]

PATH = "db.t"
Held = dict[tuple[str, int], str]


class World(InProcessLakeward):
    """A PK table with two partitions of one bucket each, and what it must show. Both hold the same ids at the same
    offsets.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, iceberg_lake(folder))
        self.held: Held = {}
        self.create(PATH, "p string not null, id bigint not null, v string", primary_key="p,id", partition_by="p")

    def put(self, partition: str, ids: range, mark: str) -> None:
        self.upsert(PATH, [{"p": partition, "id": i, "v": mark} for i in ids])
        self.held |= {(partition, i): mark for i in ids}

    def engine(self) -> MergeOnReadEngine:
        return MergeOnReadEngine(self.catalog(), TablePath.parse(PATH))

    def catalog(self) -> Any:
        assert isinstance(self.lake, IcebergLakeStorage)
        return self.lake.connection.catalog

    def files(self, partition: str) -> list[LakeFile]:
        reader = self.lake.open_reader(self.store.load_table(TablePath.parse(PATH)))
        head = reader.load_snapshot()
        assert head is not None
        return list(reader.files(head.snapshot_id, Bucket(partition, 0)))

    def in_arrow(self) -> Held:
        return as_held(self.read(PATH).to_table().to_pylist())

    def in_spark(self, spark: Any) -> Held:
        frame, opened = read_frame(spark, self.plugin, request_of(PATH), self.open_lake)
        try:
            return as_held([r.asDict() for r in frame.collect()])
        finally:
            opened.close()

    def check(self, spark: Any) -> None:
        assert self.in_arrow() == self.held
        assert self.in_spark(spark) == self.held


def as_held(rows: list[dict[str, Any]]) -> Held:
    held = {(r["p"], r["id"]): r["v"] for r in rows}
    assert len(held) == len(rows), "a row is there twice"
    return held


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    for partition in "ab":
        made.put(partition, range(20), "first")
    made.tier(PATH)
    yield made
    made.close()


def drop(world: World, partition: str, *ids: int) -> None:
    for i in ids:
        del world.held[partition, i]


def test_keys_reach_older_files_of_their_own_partition_alone(spark: Any, world: World) -> None:
    (first,) = world.files("a")
    world.engine().delete_keys(pa.table({"id": [3, 4, 5]}), first.path)
    drop(world, "a", 3, 4, 5)
    world.check(spark)
    world.put("a", range(4, 6), "anew")
    world.tier(PATH)
    world.check(spark)
    newest = max(world.files("a"), key=lambda f: f.sequence)
    assert newest.path != first.path
    assert newest.deletes == (), "newer than the keys"
    world.engine().delete_keys(pa.table({"id": [5, 6]}), first.path)
    drop(world, "a", 5, 6)
    world.put("a", range(6, 8), "tail")
    world.delete(PATH, [{"p": "b", "id": 19}])
    drop(world, "b", 19)
    world.check(spark)


def test_deletion_vectors_and_keys_on_the_same_file(spark: Any, world: World) -> None:
    (a,), (b,) = world.files("a"), world.files("b")
    world.engine().delete_rows({a.path: [0, 7], b.path: [19]})
    drop(world, "a", 0, 7)
    drop(world, "b", 19)
    world.check(spark)
    assert {d.content for d in world.files("a")[0].deletes} == {"vector"}
    world.engine().delete_keys(pa.table({"id": [8]}), a.path)
    drop(world, "a", 8)
    world.put("a", range(9, 11), "tail")
    world.put("b", range(19, 21), "tail")
    world.check(spark)
    assert {d.content for d in world.files("a")[0].deletes} == {"vector", "equality"}


def test_a_row_that_another_engine_wrote_anew_under_its_offset_lives_once(spark: Any, world: World) -> None:
    """An UPDATE elsewhere: a vector takes the old row out, a new file has it with the same `__offset`."""
    (b,) = world.files("b")
    foreign = IcebergForeignEngine(world.catalog(), TablePath.parse(PATH))
    rows = foreign.load().scan().to_arrow()
    changed = rows.filter(pa.compute.and_(pa.compute.equal(rows["p"], "b"), pa.compute.equal(rows["id"], 5)))
    world.engine().delete_rows({b.path: [5]})
    foreign.append(changed.set_column(changed.schema.get_field_index("v"), "v", pa.array(["updated"])))
    world.held["b", 5] = "updated"
    world.check(spark)
    world.put("b", range(4, 6), "tail")
    world.check(spark)


@pytest.mark.parametrize("is_partitioned", [False, True])
@pytest.mark.parametrize("limits", [(100, 0), (0, 100_000), (0, 0)], ids=["runs", "bitmap", "join"])
def test_dead_rows_go_out_alike_in_every_way(
    spark: Any, tmp_path: Path, limits: tuple[int, int], is_partitioned: bool
) -> None:
    """By a condition, a bitmap or a join. Rows that others added have no offset, and stay."""
    world = InProcessLakeward(tmp_path, iceberg_lake(tmp_path))
    partition = "it's \\ a" if is_partitioned else ""
    table = world.create(
        "db.dead", "p string not null, id bigint", partition_by="p" if is_partitioned else "", buckets=3
    )
    world.close()
    held = {
        Bucket(partition, 0): OffsetSet([0, 1, 2, 63, 64, 500]),
        Bucket(partition, 2): OffsetSet([7]),
        Bucket(partition, 1): OffsetSet(),
    }
    rows = [
        (p, b, o)
        for p in ("it's \\ a", "b")
        for b in range(3)
        for o in (0, 2, 7, 62, 63, 64, 65, 499, 500, 501, 2**45, None)
    ]
    frame = spark.createDataFrame(rows, "p string, __bucket int, __offset long")
    left = DeadRows(table, held, *limits).take_out(spark, frame)
    gone = {(b.number, o) for b, offsets in held.items() for o in offsets.values.tolist()}
    want = [(p, b, o) for p, b, o in rows if (b, o) not in gone or (is_partitioned and p == "b")]
    assert sorted(map(tuple, left.collect()), key=repr) == sorted(want, key=repr)


@pytest.mark.parametrize(
    ("limits", "keys"),
    [
        ((100, 0), "day(ts),hour(lt),month(d)"),
        ((0, 0), "hour(ts),day(lt),year(d)"),
        ((0, 0), "month(ts),year(lt),day(d)"),
    ],
    ids=["runs", "join", "join"],
)
def test_dead_rows_of_partitions_by_time_go_out_in_any_time_zone(
    spark: Any, tmp_path: Path, limits: tuple[int, int], keys: str
) -> None:
    columns = "id bigint not null, ts timestamp_ltz(6) not null, lt timestamp(6) not null, d date not null"
    world = InProcessLakeward(tmp_path, iceberg_lake(tmp_path))
    table = world.create("db.dead", columns, partition_by=keys)
    world.close()
    micros = [-1, 0, 86_400_000_000 - 1, 86_400_000_000, -(2**55), 253_402_300_799_999_999]
    moments = pa.array(micros, pa.timestamp("us"))
    rows = pa.table(
        {"id": range(6), "ts": moments.cast(pa.timestamp("us", "UTC")), "lt": moments, "d": moments.cast("date32")}
    )
    dead = {Bucket(name, 0): OffsetSet(part["id"].to_pylist()[:1]) for name, part in split_partitions(table, rows)}
    zone = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "America/St_Johns")
    try:
        # Offsets 0 to 5 in every partition: only (partition, offset) together say which row is dead.
        frame = spark.createDataFrame([(o, m) for m in micros for o in range(6)], "o long, micros long").selectExpr(
            "micros",
            "0 as __bucket",
            "o as __offset",
            "timestamp_micros(micros) as ts",
            "timestampadd(microsecond, micros, timestamp_ntz'1970-01-01') as lt",
            "date_add(date'1970-01-01', cast((micros - pmod(micros, 86400000000L)) div 86400000000L as int)) as d",
        )
        left = {(r["micros"], r["__offset"]) for r in DeadRows(table, dead, *limits).take_out(spark, frame).collect()}
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone)
    names = {name: part["ts"].cast("int64").to_pylist() for name, part in split_partitions(table, rows)}
    gone = {(m, o) for b, offsets in dead.items() for m in names[b.partition] for o in offsets.values.tolist()}
    assert left == {(m, o) for m in micros for o in range(6)} - gone
    assert len(gone) == len(micros)


@pytest.fixture
def java() -> Iterator[JavaIceberg]:
    with start_java("http://127.0.0.1:1") as engine:
        yield engine


@pytest.mark.soak
def test_vectors_that_java_iceberg_wrote(spark: Any, world: World, java: JavaIceberg) -> None:
    """Our table, raised to version 3 and changed by Java in a catalog of its own, then looked at through ours."""
    world.put("a", range(5, 8), "second")
    world.tier(PATH)
    catalog = world.catalog()
    location = Path(catalog.load_table(("db", "t")).metadata_location)
    shutil.copy(location, location.with_name("v1.metadata.json"))  # as a catalog of files alone names them
    location.with_name("version-hint.text").write_text("1")
    java.sql(f"SET spark.sql.catalog.own.warehouse={location.parents[3]}")
    modes = ", ".join(f"'write.{what}.mode' = 'merge-on-read'" for what in ("delete", "update", "merge"))
    java.sql(f"ALTER TABLE own.db.t SET TBLPROPERTIES ('format-version' = '3', {modes})")
    java.sql("DELETE FROM own.db.t WHERE id IN (6, 11)")
    java.sql("UPDATE own.db.t SET v = 'java' WHERE id = 12")
    newest = location.with_name(f"v{location.with_name('version-hint.text').read_text()}.metadata.json")
    catalog.drop_table(("db", "t"))
    catalog.register_table(("db", "t"), str(newest))
    assert catalog.load_table(("db", "t")).metadata.format_version == 3
    kinds = [d.content for p in "ab" for f in world.files(p) for d in f.deletes]
    assert "vector" in kinds
    for partition in "ab":
        drop(world, partition, 6, 11)
        world.held[partition, 12] = "java"
    world.check(spark)
    world.put("a", range(11, 13), "tail")
    world.delete(PATH, [{"p": "b", "id": 0}])
    drop(world, "b", 0)
    world.check(spark)
