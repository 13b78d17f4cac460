# SPDX-License-Identifier: Apache-2.0
"""`lakeward table adopt --foreign --key`: an Iceberg table with rows that others made becomes a PK table of ours."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg import types as ice
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import HourTransform, IdentityTransform

from lakeward.errors import (
    BucketStopped,
    InvalidRequest,
    InvalidTable,
    TableAlreadyExists,
    TableLoading,
)
from lakeward.lake.iceberg.plugin import IcebergLakeStorage
from lakeward.model import Content, SideName, TablePath
from lakeward.protocol.operate import AdoptionStatus, AdoptTable, ResyncChoice
from lakeward.protocol.tables import AlterTable
from lakeward.verify import verify_table
from lakeward.verify.certificate import Certificate
from lakeward_testing.faults import Faults
from lakeward_testing.icebergforeign import IcebergForeignEngine
from tests.kit.iceberg.engines import read_duckdb
from tests.kit.iceberg.folder import folder_lake
from tests.kit.iceberg.merge_on_read import MergeOnReadEngine
from tests.kit.inprocess import InProcessLakeward

PATH = TablePath("db", "orders")
NAME = str(PATH)


@pytest.fixture
def world(tmp_path: Path, lake: IcebergLakeStorage) -> Iterator[InProcessLakeward]:
    lake.connection.catalog.create_namespace_if_not_exists("db")
    made = InProcessLakeward(tmp_path / "server", lake, quarantine_after=1_000)
    yield made
    made.close()


def field(number: int, name: str, kind: ice.IcebergType, required: bool = False, **more: Any) -> ice.NestedField:
    return ice.NestedField(number, name, kind, required=required, **more)


def lived_in(lake: IcebergLakeStorage) -> Table:
    """Partitioned late, its columns changed in every way, rows deleted: keys 3, 4 and 2^40 to 2^40 + 7 are left."""
    schema = Schema(
        field(1, "n", ice.IntegerType()),
        field(2, "old", ice.StringType()),
        field(3, "region", ice.StringType()),
        field(4, "tags", ice.ListType(5, ice.StringType(), element_required=False)),
    )
    by_old = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "old"))
    table = lake.connection.catalog.create_table(("db", "orders"), schema, partition_spec=by_old)
    first = [{"n": n, "old": "x", "region": "north", "tags": ["a"]} for n in range(5)]
    table.append(pa.Table.from_pylist(first, table.schema().as_arrow()))
    IcebergForeignEngine(lake.connection.catalog, PATH).delete("n < 3")
    table = table.refresh()
    with table.update_spec() as spec:
        spec.remove_field("old")
        spec.add_identity("region")
    with table.update_schema() as change:
        change.delete_column("old")
        change.rename_column("n", "id")
        change.update_column("n", ice.LongType())
        change.add_column("price", ice.DecimalType(10, 2))
    table = table.refresh()
    for at, region in enumerate(("north", "south")):
        rows = [{"id": 2**40 + 4 * at + n, "region": region, "tags": None, "price": None} for n in range(4)]
        table.append(pa.Table.from_pylist(rows, table.schema().as_arrow()))
    return table.refresh()


def plain(lake: IcebergLakeStorage, *ids: int | None) -> Table:
    schema = Schema(field(1, "id", ice.LongType()), field(2, "v", ice.StringType()))
    table = lake.connection.catalog.create_table(("db", "orders"), schema)
    for at in range(0, len(ids), 4):
        rows = [{"id": i, "v": f"old{i}"} for i in ids[at : at + 4]]
        table.append(pa.Table.from_pylist(rows, table.schema().as_arrow()))
    return table.refresh()


def begin(world: InProcessLakeward, *key: str, buckets: int = 1, lake: str | None = None) -> AdoptionStatus:
    request = AdoptTable(foreign=True, lake=lake, primary_key=key or ("id",), bucket_count=buckets)
    return world.federation.adopt_keyed(PATH, request)


def adopt(world: InProcessLakeward, *key: str, buckets: int = 1) -> None:
    begin(world, *key, buckets=buckets)
    world.federation.adoptions.run()
    assert world.federation.adoptions.status(PATH).is_done


def loaded(world: InProcessLakeward) -> Table:
    assert isinstance(world.lake, IcebergLakeStorage)
    return world.lake.connection.load(PATH)


def verified(world: InProcessLakeward) -> Certificate:
    return verify_table(world.plugin, PATH, deep=True, open_storage=lambda _plan: world.lake)


def values(world: InProcessLakeward, **options: Any) -> dict[int, Any]:
    found = world.read(NAME, **options).to_table().to_pylist()
    assert len({r["id"] for r in found}) == len(found), found
    return {r["id"]: r.get("v", r.get("price")) for r in found}


@pytest.mark.parametrize("buckets", [1, 3])
def test_changes_right_after_it_replace_rows_of_others_in_place(
    world: InProcessLakeward, lake: IcebergLakeStorage, buckets: int
) -> None:
    before = plain(lake, *range(10))
    files = {task.file.file_path for task in before.scan().plan_files()}
    adopt(world, buckets=buckets)
    expected = {n: f"old{n}" for n in range(10)}
    assert values(world) == expected
    assert verified(world).holds
    world.upsert(NAME, [{"id": 3, "v": "new3"}, {"id": 20, "v": "new20"}])
    world.delete(NAME, [{"id": 4}])
    expected |= {3: "new3", 20: "new20"}
    del expected[4]
    assert values(world) == expected
    world.tier(NAME)
    assert values(world, mode="lake") == expected
    assert dict(zip(*read_duckdb(loaded(world).metadata_location).to_pydict().values(), strict=True)) == expected
    assert files <= {task.file.file_path for task in loaded(world).scan().plan_files()}
    certificate = verified(world)
    assert certificate.holds, certificate


def test_a_table_that_lived_keeps_its_partitions_deletes_and_changed_columns(
    world: InProcessLakeward, lake: IcebergLakeStorage
) -> None:
    files = {task.file.file_path for task in lived_in(lake).scan().plan_files()}
    adopt(world, "id", "region", buckets=2)
    theirs = {3, 4, *range(2**40, 2**40 + 8)}
    assert values(world).keys() == theirs
    assert [f.name for f in loaded(world).schema().fields] == ["id", "region", "tags", "price"]
    assert loaded(world).schema().identifier_field_names() == {"id", "region"}
    for wave, number in enumerate((3, 2**40 + 1)):
        world.upsert(NAME, [{"id": number, "region": "north", "tags": ["new"], "price": wave}])
        world.delete(NAME, [{"id": 2**40 + 4 + wave, "region": "south"}])
        world.upsert(NAME, [{"id": 100 + wave, "region": "east", "tags": None, "price": None}])
        theirs = theirs - {2**40 + 4 + wave} | {100 + wave}
        assert values(world).keys() == theirs
        world.tier(NAME)
        assert values(world, mode="lake").keys() == theirs
        assert sorted(read_duckdb(loaded(world).metadata_location)["id"].to_pylist()) == sorted(theirs)
        assert verified(world).holds, verified(world)
    assert values(world)[3] == 0
    assert files <= {task.file.file_path for task in loaded(world).scan().plan_files()}


@pytest.mark.parametrize("buckets", [1, 2])
def test_partitions_by_time_go_on(world: InProcessLakeward, lake: IcebergLakeStorage, buckets: int) -> None:
    at = ice.TimestamptzType()
    schema = Schema(field(1, "id", ice.LongType()), field(2, "at", at), field(3, "v", ice.StringType()))
    days = PartitionSpec(PartitionField(2, 1000, HourTransform(), "at_hour"))
    table = lake.connection.catalog.create_table(("db", "orders"), schema, partition_spec=days)
    moments = [datetime(1969, 12, 31, 23, 59, tzinfo=UTC), datetime(2026, 11, 18, tzinfo=UTC)]
    theirs = [{"id": n, "at": moments[n % 2], "v": f"old{n}"} for n in range(6)]
    table.append(pa.Table.from_pylist(theirs, table.schema().as_arrow()))
    with pytest.raises(InvalidTable, match=r"it is partitioned by at: .* add them to --key"):
        begin(world, "id")
    adopt(world, "id", "at", buckets=buckets)
    expected = {n: f"old{n}" for n in range(6)}
    assert values(world) == expected
    world.upsert(NAME, [{"id": 1, "at": moments[1], "v": "new1"}, {"id": 9, "at": moments[0], "v": "new9"}])
    world.delete(NAME, [{"id": 0, "at": moments[0]}])
    expected = expected | {1: "new1", 9: "new9"}
    del expected[0]
    assert values(world) == expected
    world.tier(NAME)
    assert values(world, mode="lake") == expected
    assert values(world, filter=[("at", "<", datetime(1970, 1, 1, tzinfo=UTC))]) == {2: "old2", 4: "old4", 9: "new9"}
    assert verified(world).holds, verified(world)


def test_keys_that_others_deleted_stay_deleted_and_may_come_again(
    world: InProcessLakeward, lake: IcebergLakeStorage
) -> None:
    before = plain(lake, *range(4))
    (like,) = [task.file.file_path for task in before.scan().plan_files()]
    engine = MergeOnReadEngine(lake.connection.catalog, PATH)
    engine.delete_keys(pa.table({"id": pa.array([3], pa.int64())}), like)
    adopt(world)
    assert values(world).keys() == {0, 1, 2}
    assert len(world.changes(NAME).to_table()) == 0
    world.upsert(NAME, [{"id": 3, "v": "again"}])
    (change,) = world.changes(NAME).to_table().to_pylist()
    assert (change["__change_type"], change["id"]) == ("insert", 3)
    world.tier(NAME)
    assert values(world, mode="lake") == {0: "old0", 1: "old1", 2: "old2", 3: "again"}
    assert verified(world).holds, verified(world)


def test_rows_without_a_key_that_are_dead_are_no_matter(world: InProcessLakeward, lake: IcebergLakeStorage) -> None:
    """One file from before the key was a column, and one in which a deleted row has none."""
    schema = Schema(field(1, "v", ice.StringType()))
    table = lake.connection.catalog.create_table(("db", "orders"), schema)
    table.append(pa.table({"v": ["a", "b"]}))
    (first,) = [task.file.file_path for task in table.scan().plan_files()]
    with table.update_schema() as change:
        change.add_column("id", ice.LongType())
    table = table.refresh()
    big = 2**60 + 1
    table.append(pa.Table.from_pylist([{"v": "x", "id": None}, {"v": "y", "id": big}], table.schema().as_arrow()))
    dead = {task.file.file_path: [0] for task in loaded(world).scan().plan_files()}
    dead[first] = [0, 1]
    MergeOnReadEngine(lake.connection.catalog, PATH).delete_rows(dead)
    adopt(world)
    assert values(world) == {big: "y"}
    world.upsert(NAME, [{"v": "z", "id": big}, {"v": "w", "id": 0}])
    world.tier(NAME)
    assert values(world, mode="lake") == {big: "z", 0: "w"}
    assert verified(world).holds, verified(world)


def test_compaction_resync_and_other_columns_go_on_as_with_any_table(
    world: InProcessLakeward, lake: IcebergLakeStorage
) -> None:
    before = plain(lake, *range(12))
    files = {task.file.file_path for task in before.scan().plan_files()}
    adopt(world)
    expected: dict[int, Any] = {n: f"old{n}" for n in range(12)}
    for wave in range(10):
        world.upsert(NAME, [{"id": wave, "v": f"new{wave}"}])
        expected[wave] = f"new{wave}"
        world.tier(NAME)
    world.compact(NAME)
    assert values(world, mode="lake") == expected
    assert not files & {task.file.file_path for task in loaded(world).scan().plan_files()}
    world.add_column(NAME, "more int")
    world.upsert(NAME, [{"id": 11, "v": "last", "more": 7}])
    world.delete(NAME, [{"id": 0}])
    expected[11] = "last"
    del expected[0]
    world.tier(NAME)
    assert values(world) == values(world, mode="lake") == expected
    IcebergForeignEngine(lake.connection.catalog, PATH).delete("id = 5")
    world.coordinator.operations.resync(PATH, ResyncChoice.RESYNC)
    world.tier(NAME)
    assert values(world, mode="lake") == expected
    assert verified(world).holds, verified(world)


def test_the_past_and_changes_since(world: InProcessLakeward, lake: IcebergLakeStorage) -> None:
    first, last = [s.snapshot_id for s in plain(lake, *range(8)).metadata.snapshots]
    adopt(world)
    world.upsert(NAME, [{"id": 1, "v": "new1"}])
    world.tier(NAME)
    ours = loaded(world).metadata.current_snapshot_id
    world.delete(NAME, [{"id": 2}])
    assert [len(values(world, as_of=str(at))) for at in (first, last, ours)] == [4, 8, 8]
    assert values(world, as_of=str(ours))[1] == "new1"
    told = [(r["__change_type"], r["id"], r["v"]) for r in world.changes(NAME).to_table().to_pylist()]
    assert told == [("update_before", 1, "old1"), ("update_after", 1, "new1"), ("delete", 2, "old2")]


def test_partial_updates_and_the_same_row_again(world: InProcessLakeward, lake: IcebergLakeStorage) -> None:
    schema = Schema(field(1, "id", ice.LongType()), field(2, "v", ice.StringType()), field(3, "w", ice.LongType()))
    table = lake.connection.catalog.create_table(("db", "orders"), schema)
    table.append(pa.table({"id": [1, 2], "v": ["a", "b"], "w": [7, 8]}))
    adopt(world)
    world.upsert(NAME, [{"id": 1, "v": "a", "w": 7}])
    assert len(world.changes(NAME).to_table()) == 0, "nothing changed"
    world.upsert(NAME, [{"id": 2, "v": "c"}], columns=["id", "v"])
    world.tier(NAME)
    assert {r["id"]: r["w"] for r in world.read(NAME, mode="lake").to_table().to_pylist()} == {1: 7, 2: 8}


def test_a_late_lake_and_a_changelog_get_what_is_theirs(tmp_path: Path, lake: IcebergLakeStorage) -> None:
    lake.connection.catalog.create_namespace_if_not_exists("db")
    plain(lake, *range(5))
    (tmp_path / "other").mkdir()
    with folder_lake(tmp_path / "other") as other:
        world = InProcessLakeward(tmp_path / "server", lake, named={"other": other})
        begin(world, lake="default")
        world.federation.adoptions.run()
        world.upsert(NAME, [{"id": 1, "v": "new1"}])
        world.tier(NAME)
        lakes = {"table.datalake.lakes": "default, other", "table.datalake.changelog": "other"}
        world.federation.alter(PATH, AlterTable(properties=lakes))
        for side in (SideName("other"), SideName("other", Content.CHANGELOG)):
            world.tier(NAME, side)
        expected = {0: "old0", 1: "new1", 2: "old2", 3: "old3", 4: "old4"}
        found = world.read(NAME, mode="lake", lake="other").to_table().to_pylist()
        assert {r["id"]: r["v"] for r in found} == expected
        assert len(world.changes(NAME).to_table()) == 2
        world.close()


# ---- broken off --------------------------------------------------------------------------------------------------
def broken_off(world: InProcessLakeward, point: str, hit: int = 1) -> None:
    with Faults() as faults:
        faults.arm(point, hit=hit, error=lambda: SystemExit("the end of the process"))
        with pytest.raises(SystemExit, match="the end of the process"):
            world.federation.adoptions.run()


POINTS = ["load.put", "load.before-save", "load.sealed", "lake.before-commit", "lake.after-commit", "load.taken-over"]


@pytest.mark.parametrize("point", POINTS)
def test_a_crash_at_any_step_is_made_good_after_the_next_start(
    world: InProcessLakeward, lake: IcebergLakeStorage, point: str
) -> None:
    plain(lake, *range(20))
    begin(world, buckets=2)
    broken_off(world, point, hit=2 if point == "load.put" else 1)
    with pytest.raises(TableLoading, match="is being adopted"):
        world.upsert(NAME, [{"id": 1, "v": "x"}])
    world.restart()
    world.federation.adoptions.run()
    assert world.federation.adoptions.status(PATH).is_done
    assert values(world) == {n: f"old{n}" for n in range(20)}
    world.upsert(NAME, [{"id": 7, "v": "new7"}])
    world.tier(NAME)
    assert values(world, mode="lake")[7] == "new7"
    assert verified(world).holds, verified(world)


def test_rows_that_others_commit_meanwhile_make_it_begin_anew(
    world: InProcessLakeward, lake: IcebergLakeStorage
) -> None:
    table = plain(lake, *range(6))
    begin(world)
    table.append(pa.Table.from_pylist([{"id": 6, "v": "late"}], table.schema().as_arrow()))
    world.federation.adoptions.run()
    status = world.federation.adoptions.status(PATH)
    assert (status.is_done, status.rows) == (False, 0)
    assert "begun anew" in status.words
    world.federation.adoptions.run()
    assert values(world).keys() == set(range(7))
    world.delete(NAME, [{"id": 6}])
    world.tier(NAME)
    assert values(world, mode="lake").keys() == set(range(6))
    assert verified(world).holds, verified(world)


def test_others_that_never_stop_are_told_of(world: InProcessLakeward, lake: IcebergLakeStorage) -> None:
    table = plain(lake, 0)
    begin(world)
    for number in range(1, 7):
        table = table.refresh()
        table.append(pa.Table.from_pylist([{"id": number, "v": "late"}], table.schema().as_arrow()))
        world.federation.adoptions.run()
    with pytest.raises(InvalidRequest, match="others committed to it 6 times"):
        world.federation.adoptions.status(PATH)
    assert nothing_made(world)


def test_what_was_loaded_and_is_lost_is_loaded_anew(world: InProcessLakeward, lake: IcebergLakeStorage) -> None:
    plain(lake, *range(8))
    begin(world)
    broken_off(world, "load.sealed")
    world.close()
    for kv in (world.folder / "hot" / "tables").glob("*/p*/b*"):
        shutil.rmtree(kv)
    world._open()
    for _ in range(2):
        world.federation.adoptions.run()
    assert values(world).keys() == set(range(8))


def test_dropping_it_meanwhile_leaves_nothing(world: InProcessLakeward, lake: IcebergLakeStorage) -> None:
    plain(lake, *range(8))
    begin(world)
    world.federation.drop(PATH)
    world.federation.adoptions.run()
    with pytest.raises(InvalidRequest, match="was dropped meanwhile"):
        world.federation.adoptions.status(PATH)
    assert nothing_made(world)
    adopt(world)
    assert len(values(world)) == 8


def test_a_table_that_was_dropped_is_adopted_again_with_what_came_since(
    world: InProcessLakeward, lake: IcebergLakeStorage
) -> None:
    plain(lake, *range(4))
    adopt(world)
    for wave in range(4):
        world.upsert(NAME, [{"id": 0, "v": f"new{wave}"}])
        world.tier(NAME)
    before = world.store.load_table(PATH).table_id
    world.federation.drop(PATH)
    with pytest.raises(InvalidRequest, match="--buckets 1"):
        begin(world, buckets=2)
    with pytest.raises(InvalidRequest, match="a table with a primary key before"):
        world.federation.adopt(PATH, AdoptTable(foreign=True))
    adopt(world)
    assert world.store.load_table(PATH).table_id == before
    assert values(world) == {0: "new3", 1: "old1", 2: "old2", 3: "old3"}
    world.upsert(NAME, [{"id": 1, "v": "new"}])
    world.tier(NAME)
    assert values(world, mode="lake") == {0: "new3", 1: "new", 2: "old2", 3: "old3"}
    assert verified(world).holds, verified(world)


def test_keys_that_are_damaged_come_back_from_their_snapshot_and_never_as_none(
    world: InProcessLakeward, lake: IcebergLakeStorage
) -> None:
    plain(lake, *range(8))
    adopt(world)
    world.upsert(NAME, [{"id": 0, "v": "new"}])
    world.close()
    (kv,) = (world.folder / "hot" / "tables").glob("*/p0/b0/kv")
    shutil.rmtree(kv / "db")
    world._open()
    assert len(values(world)) == 8
    world.delete(NAME, [{"id": 1}])
    assert values(world).keys() == {0, *range(2, 8)}
    world.close()
    for gone in (kv / "db", kv / "snapshots"):
        shutil.rmtree(gone)
    world._open()
    with pytest.raises(BucketStopped, match="restore a backup"):
        world.upsert(NAME, [{"id": 2, "v": "new"}])


# ---- refused -----------------------------------------------------------------------------------------------------
def nothing_made(world: InProcessLakeward) -> bool:
    """As if nobody had asked: no table, no file, the lake as it was."""
    left = [p for p in (world.folder / "hot" / "tables").glob("*/**/*") if p.is_file()]
    return not (
        world.store.list_tables() or world.store.loads() or left or "lakeward.adopted" in loaded(world).properties
    )


def test_keys_that_are_there_twice_or_not_at_all_are_refused_with_samples(
    world: InProcessLakeward, lake: IcebergLakeStorage
) -> None:
    table = plain(lake, 1, 2, 3, 4, 5, 3, 1)
    schema = table.schema()
    begin(world)
    world.federation.adoptions.run()
    with pytest.raises(InvalidTable, match=r"2 rows or more have the key of another one \(id = 1; id = 3\)"):
        world.federation.adoptions.status(PATH)
    assert nothing_made(world)
    assert loaded(world).schema() == schema
    table.append(pa.Table.from_pylist([{"id": None, "v": "lost"}], schema.as_arrow()))
    IcebergForeignEngine(lake.connection.catalog, PATH).delete("id in (1, 3)")
    begin(world)
    world.federation.adoptions.run()
    with pytest.raises(InvalidTable, match=r"1 rows or more have no value in id, such as the one with v = 'lost'"):
        world.federation.adoptions.status(PATH)
    assert nothing_made(world)
    IcebergForeignEngine(lake.connection.catalog, PATH).delete("id is null")
    adopt(world)
    assert values(world).keys() == {2, 4, 5}


@pytest.mark.parametrize(
    ("key", "words"),
    [
        (("nope",), "no such column; there are id, region, price"),
        (("id",), "it is partitioned by region"),
        (("region",), "it needs a column that is no partition key"),
        (("price", "region"), "cannot be a key"),
        (("id", "id", "region"), "named twice"),
    ],
)
def test_keys_that_cannot_be_are_refused_before_a_row_is_read(
    world: InProcessLakeward, lake: IcebergLakeStorage, key: tuple[str, ...], words: str
) -> None:
    schema = Schema(
        field(1, "id", ice.LongType()), field(2, "region", ice.StringType()), field(3, "price", ice.DoubleType())
    )
    spec = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "region"))
    table = lake.connection.catalog.create_table(("db", "orders"), schema, partition_spec=spec)
    table.append(pa.table({"id": [1], "region": ["x"], "price": [1.5]}))
    with pytest.raises(InvalidTable, match=words):
        begin(world, *key)
    assert nothing_made(world)


def test_other_identifier_fields_and_names_that_are_taken_are_refused(
    world: InProcessLakeward, lake: IcebergLakeStorage
) -> None:
    schema = Schema(
        field(1, "id", ice.LongType(), True), field(2, "v", ice.StringType(), True), identifier_field_ids=[2]
    )
    lake.connection.catalog.create_table(("db", "orders"), schema)
    with pytest.raises(InvalidTable, match="own identifier fields are v"):
        begin(world)
    adopt(world, "v")
    assert begin(world, "v").is_done
    with pytest.raises(TableAlreadyExists):
        begin(world, "id")
    assert values(world) == {}
    world.upsert(NAME, [{"id": 1, "v": "x"}])
    world.tier(NAME)
    assert values(world, mode="lake") == {1: "x"}


def test_another_call_meanwhile_joins_it_or_is_told(world: InProcessLakeward, lake: IcebergLakeStorage) -> None:
    plain(lake, *range(3))
    begin(world)
    assert begin(world).of_rows == 3
    for call in (
        lambda: begin(world, "v"),
        lambda: world.read(NAME),
        lambda: world.create(NAME, "id bigint"),
        lambda: world.add_column(NAME, "more int"),
    ):
        with pytest.raises(TableLoading, match="0 of 3 rows are loaded"):
            call()
    (shown,) = world.coordinator.views.status().adoptions
    assert (shown.path, shown.of_rows, shown.of_files) == (PATH, 3, 1)


def test_whoever_adopts_is_told_of_snapshots_that_will_go(world: InProcessLakeward, lake: IcebergLakeStorage) -> None:
    table = plain(lake, *range(8))
    assert "expire 30 minutes after the next one" in begin(world).warnings[0]
    world.federation.drop(PATH)
    with table.transaction() as change:
        change.set_properties({"history.expire.max-snapshot-age-ms": "86400000"})
    assert begin(world).warnings == ()
