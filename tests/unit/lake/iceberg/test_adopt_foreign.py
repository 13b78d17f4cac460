# SPDX-License-Identifier: Apache-2.0
"""`lakeward table adopt --foreign`: an Iceberg table with rows that others made becomes a log table of ours."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg import types as ice
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.sorting import SortField, SortOrder
from pyiceberg.transforms import BucketTransform, DayTransform, IdentityTransform, TruncateTransform

from lakeward.errors import (
    CommitUnknown,
    FaultInjected,
    InvalidAlter,
    InvalidRequest,
    InvalidRows,
    InvalidTable,
    LakePathRefused,
    LakewardError,
    TableAlreadyExists,
    UnsupportedType,
)
from lakeward.lake.iceberg.meta.summary import summary_of
from lakeward.lake.iceberg.plugin import IcebergLakeStorage
from lakeward.model import TablePath
from lakeward.protocol.operate import AdoptTable
from lakeward.protocol.tables import AlterTable, TableAnswer
from lakeward.spi import load_lake
from lakeward.verify import verify_table
from lakeward.verify.certificate import Certificate, CertificateVerdict
from lakeward_testing.faults import Faults
from lakeward_testing.icebergforeign import IcebergForeignEngine
from tests.kit.iceberg.engines import read_duckdb
from tests.kit.iceberg.folder import folder_lake
from tests.kit.iceberg.merge_on_read import MergeOnReadEngine
from tests.kit.inprocess import InProcessLakeward

PATH = TablePath("db", "visits")
NAME = str(PATH)
PLACE = "ROW<`x` DOUBLE, `y` TIMESTAMP_LTZ(6)>"
FOREIGN = AdoptTable(foreign=True, bucket_count=2)


@pytest.fixture
def world(tmp_path: Path, lake: IcebergLakeStorage) -> Iterator[InProcessLakeward]:
    lake.connection.catalog.create_namespace_if_not_exists("db")
    made = InProcessLakeward(tmp_path / "server", lake, quarantine_after=1_000)
    yield made
    made.close()


def field(number: int, name: str, kind: ice.IcebergType, required: bool = False, **more: Any) -> ice.NestedField:
    return ice.NestedField(number, name, kind, required=required, **more)


def lived_in(lake: IcebergLakeStorage) -> Table:
    """Partitioned late, its columns changed in every way, rows deleted, in an order: 10 rows are left of 13."""
    schema = Schema(
        field(1, "n", ice.IntegerType()),
        field(2, "old", ice.StringType()),
        field(3, "region", ice.StringType()),
        field(4, "tags", ice.ListType(5, ice.StringType(), element_required=False)),
        field(6, "at", ice.StructType(field(7, "x", ice.DoubleType()), field(8, "y", ice.TimestamptzType()))),
    )
    by_old = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "old"))
    order = SortOrder(SortField(source_id=1, transform=IdentityTransform()))
    table = lake.connection.catalog.create_table(("db", "visits"), schema, partition_spec=by_old, sort_order=order)
    first = [{"n": n, "old": "x", "region": "north", "tags": ["a"], "at": {"x": 1.5, "y": None}} for n in range(5)]
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
    for region in ("north", "south"):
        rows = [{"id": 2**40 + n, "region": region, "tags": None, "at": None, "price": None} for n in range(4)]
        table.append(pa.Table.from_pylist(rows, table.schema().as_arrow()))
    return table.refresh()


def adopt(world: InProcessLakeward, request: AdoptTable = FOREIGN) -> TableAnswer:
    return world.federation.adopt(PATH, request)


def loaded(world: InProcessLakeward) -> Table:
    assert isinstance(world.lake, IcebergLakeStorage)
    return world.lake.connection.load(PATH)


def verified(world: InProcessLakeward) -> Certificate:
    return verify_table(world.plugin, PATH, deep=True, open_storage=lambda _plan: world.lake)


def ids(world: InProcessLakeward, **options: Any) -> list[int]:
    return sorted(r["id"] for r in world.read(NAME, **options).to_table().to_pylist())


def rows(*numbers: int, region: str = "north") -> list[dict[str, Any]]:
    return [{"id": n, "region": region, "tags": ["new"], "at": {"x": 2.5, "y": None}, "price": None} for n in numbers]


def test_rows_of_others_stay_and_every_reader_sees_them_with_ours(
    world: InProcessLakeward, lake: IcebergLakeStorage
) -> None:
    before = lived_in(lake)
    theirs = sorted(before.scan().to_arrow()["id"].to_pylist())
    files = {task.file.file_path for task in before.scan().plan_files()}
    table = adopt(world).table
    assert (table.descriptor.partition_keys, table.descriptor.bucket_count) == (("region",), 2)
    assert [str(c.type) for c in table.schema.columns] == ["BIGINT", "STRING", "ARRAY<STRING>", PLACE, "DECIMAL(10, 2)"]
    assert ids(world) == theirs
    assert {r["at"]["x"] for r in world.read(NAME).to_table().to_pylist() if r["id"] < 5} == {1.5}
    assert verified(world).verdict is CertificateVerdict.NOT_CHECKED
    for wave in range(3):
        world.append(NAME, rows(*range(100 * wave, 100 * wave + 6), region=("north", "east", "south")[wave]))
        world.tier(NAME)
    world.append(NAME, rows(900, 901))
    ours = [*range(6), *range(100, 106), *range(200, 206)]
    assert ids(world) == sorted([*theirs, *ours, 900, 901])
    assert ids(world, mode="lake") == sorted([*theirs, *ours])
    assert sorted(read_duckdb(loaded(world).metadata_location)["id"].to_pylist()) == sorted([*theirs, *ours])
    planned = {task.file.file_path: task.file for task in loaded(world).scan().plan_files()}
    assert files <= planned.keys()
    assert {planned[path].sort_order_id for path in planned.keys() - files} == {0}
    assert [f.name for f in loaded(world).schema().fields] == ["id", "region", "tags", "at", "price"]
    certificate = verified(world)
    assert certificate.verdict is CertificateVerdict.PARTLY_CHECKED, certificate
    assert "10 rows from before the table was adopted, which were counted" in " ".join(certificate.beyond)


def test_the_past_is_read_from_before_and_after_the_adoption(
    world: InProcessLakeward, lake: IcebergLakeStorage
) -> None:
    first, *_, last = [s.snapshot_id for s in lived_in(lake).metadata.snapshots]
    adopt(world)
    world.append(NAME, rows(1, 2))
    world.tier(NAME)
    ours = loaded(world).metadata.current_snapshot_id
    world.append(NAME, rows(3))
    counts = [len(ids(world, as_of=str(at))) for at in (first, last, ours)]
    assert counts == [5, 10, 12]
    assert len(ids(world, filter=[("id", "<", 5)])) == 2 + 3
    assert len(ids(world, filter=[("region", "=", "south")])) == 4


def test_rows_that_others_deleted_by_key_stay_deleted(world: InProcessLakeward, lake: IcebergLakeStorage) -> None:
    catalog = lake.connection.catalog
    table = catalog.create_table(("db", "visits"), Schema(field(1, "id", ice.LongType())))
    table.append(pa.table({"id": pa.array(range(10), pa.int64())}))
    (like,) = [task.file.file_path for task in table.scan().plan_files()]
    MergeOnReadEngine(catalog, PATH).delete_keys(pa.table({"id": pa.array([3, 4], pa.int64())}), like)
    adopt(world)
    for number in (3, 20):
        world.append(NAME, [{"id": number}])
        world.tier(NAME)
    assert ids(world) == [0, 1, 2, 3, 5, 6, 7, 8, 9, 20]
    certificate = verified(world)
    assert certificate.verdict is CertificateVerdict.PARTLY_CHECKED, certificate
    assert certificate.beyond[0].startswith("8 rows from before the table was adopted")


def test_upkeep_leaves_their_files_and_their_last_snapshot(world: InProcessLakeward, lake: IcebergLakeStorage) -> None:
    before = lived_in(lake)
    files = {task.file.file_path for task in before.scan().plan_files()}
    adopt(world)
    for number in range(12):
        world.append(NAME, rows(number))
        world.tier(NAME)
    world.compact(NAME)
    assert len({t.file.file_path for t in loaded(world).scan().plan_files()}) < len(files) + 12
    IcebergForeignEngine(lake.connection.catalog, PATH).expire()
    world.add_column(NAME, "more int")
    world.append(NAME, [{**rows(50)[0], "more": 7}])
    world.tier(NAME)
    assert files <= {t.file.file_path for t in loaded(world).scan().plan_files()}
    assert len(ids(world)) == 10 + 13
    certificate = verified(world)
    assert certificate.verdict is CertificateVerdict.PARTLY_CHECKED, certificate
    tag = loaded(world).metadata.refs["lakeward-adopted"]
    assert loaded(world).scan(snapshot_id=tag.snapshot_id).to_arrow().num_rows == 10
    assert {r["id"] for r in world.changes(NAME).to_table().to_pylist()} == {*range(12), 50}


def test_a_rewrite_by_others_is_counted_with_the_rows_from_before(
    world: InProcessLakeward, lake: IcebergLakeStorage
) -> None:
    table = lake.connection.catalog.create_table(("db", "visits"), Schema(field(1, "id", ice.LongType())))
    table.append(pa.table({"id": pa.array(range(10), pa.int64())}))
    adopt(world)
    world.append(NAME, [{"id": n} for n in (11, 12, 13)])
    world.tier(NAME)
    engine = IcebergForeignEngine(lake.connection.catalog, PATH)
    engine.rewrite()
    engine.expire()
    assert verified(world).verdict is CertificateVerdict.PARTLY_CHECKED
    world.append(NAME, [{"id": 14}])
    world.tier(NAME)
    assert ids(world) == [*range(10), 11, 12, 13, 14]
    certificate = verified(world)
    assert certificate.verdict is CertificateVerdict.PARTLY_CHECKED, certificate


def test_a_row_from_before_that_is_gone_is_found(world: InProcessLakeward, lake: IcebergLakeStorage) -> None:
    lived_in(lake)
    adopt(world)
    world.append(NAME, rows(1))
    world.tier(NAME)
    whole = next(t.file for t in loaded(world).scan("region = 'south'").plan_files())
    with loaded(world).transaction() as change, change.update_snapshot().overwrite() as overwrite:
        overwrite.delete_data_file(whole)
    (finding,) = verified(world).findings
    assert finding.count == 4
    assert finding.words == "6 rows are from before the table was adopted, and 10 were there then"


def test_what_was_noted_of_them_is_not_for_others_to_change(world: InProcessLakeward, lake: IcebergLakeStorage) -> None:
    lived_in(lake)
    adopt(world)
    with pytest.raises(InvalidAlter, match=r"lakeward\.adopted"):
        world.federation.alter(PATH, AlterTable(properties={"iceberg.lakeward.adopted": "{}"}))
    with loaded(world).transaction() as change:
        change.set_properties({"lakeward.adopted": "{}"})
    (finding,) = verified(world).findings
    assert "lakeward.adopted" in finding.words


def test_a_call_that_broke_off_goes_on_where_it_was(world: InProcessLakeward, lake: IcebergLakeStorage) -> None:
    lived_in(lake)
    table = adopt(world).table
    world.append(NAME, rows(1, 2))
    with pytest.raises(TableAlreadyExists):
        adopt(world)
    world.federation.drop(PATH)  # as if the hot side had never come to be
    again = adopt(world).table
    assert again.table_id == table.table_id
    assert len(ids(world)) == 10
    marks = [s for s in loaded(world).metadata.snapshots if "lakeward.table-id" in summary_of(s)]
    assert len(marks) == 1


@pytest.mark.parametrize("point", ["lake.before-manifests", "lake.before-commit", "lake.after-commit"])
def test_a_crash_while_it_is_marked_is_made_good_by_the_next_call(
    world: InProcessLakeward, lake: IcebergLakeStorage, point: str
) -> None:
    lived_in(lake)
    with Faults() as faults:
        faults.arm(point)
        with pytest.raises((CommitUnknown, FaultInjected)):
            adopt(world)
    late = [{"id": 5, "region": "south", "tags": None, "at": None, "price": None}]
    if point != "lake.after-commit":  # not ours yet: what others add belongs to what was there
        loaded(world).append(pa.Table.from_pylist(late, loaded(world).schema().as_arrow()))
    adopt(world)
    world.append(NAME, rows(1))
    world.tier(NAME)
    assert len(ids(world)) == 11 + (point != "lake.after-commit")
    assert verified(world).verdict is CertificateVerdict.PARTLY_CHECKED


def test_another_lake_is_refused_as_it_would_never_have_the_rows_from_before(
    lake: IcebergLakeStorage, tmp_path: Path
) -> None:
    lake.connection.catalog.create_namespace("db")
    lived_in(lake)
    (tmp_path / "second").mkdir()
    with folder_lake(tmp_path / "second") as second:
        world = InProcessLakeward(tmp_path / "server", lake, named={"second": second})
        adopt(world, AdoptTable(foreign=True, lake="default"))
        for lakes in ("default, second", "second"):
            with pytest.raises(InvalidAlter, match="rows from before it was adopted are in one lake alone"):
                world.federation.alter(PATH, AlterTable(properties={"table.datalake.lakes": lakes}))
        assert not second.catalog().exists(PATH)
        world.federation.alter(PATH, AlterTable(properties={"table.datalake.changelog": "second"}))
        for switch in ("false", "true"):
            world.federation.alter(PATH, AlterTable(properties={"table.datalake.enabled": switch}))
        world.append(NAME, rows(1))
        world.tier(NAME)
        assert len(ids(world)) == 11
        world.close()


def test_an_empty_one_is_taken_too(world: InProcessLakeward, lake: IcebergLakeStorage) -> None:
    lake.connection.catalog.create_table(("db", "visits"), Schema(field(1, "id", ice.LongType())))
    adopt(world)
    world.append(NAME, [{"id": 1}])
    world.tier(NAME)
    assert ids(world) == [1]
    assert verified(world).holds


def test_partitions_by_time_go_on(world: InProcessLakeward, lake: IcebergLakeStorage) -> None:
    schema = Schema(field(1, "id", ice.LongType()), field(2, "at", ice.TimestamptzType()))
    table = lake.connection.catalog.create_table(("db", "visits"), schema, partition_spec=spec(DayTransform(), 2))
    moments = [datetime(1969, 12, 31, 23, tzinfo=UTC), datetime(2026, 11, 18, tzinfo=UTC), None]
    theirs = [{"id": number, "at": moment} for number, moment in enumerate(moments)]
    table.append(pa.Table.from_pylist(theirs, table.schema().as_arrow()))
    assert adopt(world).table.descriptor.partition_keys == ("day(at)",)
    world.append(NAME, [{"id": 10 + number, "at": moment} for number, moment in enumerate(moments[:2])])
    assert ids(world) == [0, 1, 2, 10, 11]
    with pytest.raises(InvalidRows, match="null in a partition key"):
        world.append(NAME, [{"id": 12, "at": None}])
    world.tier(NAME)
    assert ids(world, mode="lake") == ids(world, mode="union") == [0, 1, 2, 10, 11]
    assert ids(world, filter=[("at", "<", datetime(1970, 1, 1, tzinfo=UTC))]) == [0, 10]
    days = {task.file.partition[0] for task in loaded(world).scan().plan_files()}
    assert days == {-1, 20_775, None}
    assert verified(world).verdict is CertificateVerdict.PARTLY_CHECKED


def spec(transform: Any, source: int = 1) -> PartitionSpec:
    return PartitionSpec(PartitionField(source, 1000, transform, "part"))


@pytest.mark.parametrize(
    ("fields", "partitioning", "words"),
    [
        (
            [field(1, "id", ice.UUIDType())],
            UNPARTITIONED_PARTITION_SPEC,
            r"db\.visits\.id: type uuid is not supported by Lakeward",
        ),
        (
            [field(1, "s", ice.StructType(field(2, "inner", ice.FixedType(4))))],
            UNPARTITIONED_PARTITION_SPEC,
            r"db\.visits\.s\.inner: type fixed\[4\] is not supported",
        ),
        (
            [field(1, "__offset", ice.LongType())],
            UNPARTITIONED_PARTITION_SPEC,
            r"table db\.visits: column '__offset': this name is a system column's",
        ),
        (
            [field(1, "__prev_offset", ice.LongType())],
            UNPARTITIONED_PARTITION_SPEC,
            r"table db\.visits: column '__prev_offset': this name is a system column's",
        ),
        (
            [field(1, "a", ice.LongType()), field(2, "A", ice.LongType())],
            UNPARTITIONED_PARTITION_SPEC,
            r"table db\.visits: column 'A': it differs from a in case alone",
        ),
        (
            [field(1, "id", ice.LongType())],
            spec(TruncateTransform(4)),
            r"'part \(truncate\[4\]\)': partitions of ours are by value \(identity\) or by year, month, day or hour",
        ),
        (
            [field(1, "id", ice.LongType())],
            spec(BucketTransform(4)),
            r"'part \(bucket\[4\]\)': files partitioned so would be taken for buckets of ours",
        ),
        ([field(1, "x", ice.DoubleType())], spec(IdentityTransform()), "partition key x: type DOUBLE is not supported"),
    ],
)
def test_what_cannot_work_is_refused_in_words(
    world: InProcessLakeward,
    lake: IcebergLakeStorage,
    fields: list[ice.NestedField],
    partitioning: PartitionSpec,
    words: str,
) -> None:
    made = lake.connection.catalog.create_table(("db", "visits"), Schema(*fields), partition_spec=partitioning)
    with pytest.raises((InvalidTable, UnsupportedType), match=words):
        adopt(world)
    assert loaded(world).metadata == made.metadata


def test_a_table_of_version_1_is_refused(world: InProcessLakeward, lake: IcebergLakeStorage) -> None:
    lake.connection.catalog.create_table(
        ("db", "visits"), Schema(field(1, "id", ice.LongType())), properties={"format-version": "1"}
    )
    with pytest.raises(InvalidTable, match="format version '1': versions 2 and 3 are written"):
        adopt(world)


def test_inner_fields_that_changed_are_refused(world: InProcessLakeward, lake: IcebergLakeStorage) -> None:
    kind = ice.StructType(field(2, "a", ice.LongType()))
    table = lake.connection.catalog.create_table(("db", "visits"), Schema(field(1, "s", kind)))
    with table.update_schema() as change:
        change.rename_column("s.a", "b")
    with pytest.raises(InvalidTable, match="column 's': its inner fields changed"):
        adopt(world)


def test_files_without_field_ids_are_refused(
    world: InProcessLakeward, lake: IcebergLakeStorage, tmp_path: Path
) -> None:
    table = lake.connection.catalog.create_table(("db", "visits"), Schema(field(1, "id", ice.LongType())))
    elsewhere = tmp_path / "imported.parquet"
    imported = Path(table.location().removeprefix("file://")) / elsewhere.name
    pa.parquet.write_table(pa.table({"id": pa.array([1], pa.int64())}), imported)
    table.add_files([f"file://{imported}"])
    with pytest.raises(InvalidTable, match=r"imported\.parquet.*no field ids"):
        adopt(world)
    imported.rename(elsewhere)
    imported.symlink_to(elsewhere)
    with pytest.raises(LakePathRefused):
        adopt(world)


def of_ours(world: InProcessLakeward) -> None:
    world.create(NAME, "id bigint", **{"table.datalake.system-columns": "false"})  # type: ignore[arg-type]
    world.append(NAME, [{"id": 1}])
    world.tier(NAME)
    world.federation.drop(PATH)


@pytest.mark.parametrize(
    ("prepare", "request_", "words"),
    [
        (of_ours, FOREIGN, "it has snapshots of ours; adopt it without --foreign"),
        (
            lambda world: lived_in(world.lake),
            AdoptTable(foreign=True, primary_key=("id",)),
            "with a key its rows are loaded first",
        ),
        (lambda world: lived_in(world.lake), AdoptTable(foreign=True, lake="other"), "no such lake is configured"),
        (lambda world: None, FOREIGN, "the catalog of lake default has no such table"),
    ],
)
def test_wrong_calls_are_refused_in_words(
    world: InProcessLakeward, prepare: Callable[[Any], object], request_: AdoptTable, words: str
) -> None:
    prepare(world)
    with pytest.raises(LakewardError, match=words):
        adopt(world, request_)


@pytest.mark.parametrize(("format", "where"), [("memory", "name"), ("delta", "warehouse")])
def test_other_formats_refuse_in_words(tmp_path: Path, format: str, where: str) -> None:
    world = InProcessLakeward(tmp_path / "server", load_lake(format, {where: str(tmp_path / "lake")}))
    with pytest.raises(InvalidRequest, match="of this lake format no tables are taken over that others made"):
        adopt(world)
    world.close()
