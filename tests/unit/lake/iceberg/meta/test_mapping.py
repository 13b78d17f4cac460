# SPDX-License-Identifier: Apache-2.0
"""What a table becomes in Iceberg, and what is refused before anything is created."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from typing import Any

import pytest
from pyiceberg import types as ice
from pyiceberg.manifest import DataFile
from pyiceberg.transforms import BucketTransform, IdentityTransform
from pyiceberg.typedef import Record

from lakeward.errors import InvalidRequest, InvalidTable, LakewardError, UnsupportedBucketKey, UnsupportedType
from lakeward.lake.iceberg.meta.diff import spell_spec
from lakeward.lake.iceberg.meta.mapping import check_descriptor, lake_order, lake_properties, lake_schema, lake_spec
from lakeward.lake.iceberg.meta.partition import bucket_of, check_times, parse_value, partition_record, value_text
from lakeward.lake.iceberg.meta.types import spell_type, to_iceberg_type
from lakeward.model import Bucket, BucketFunction, Column, Schema, TableDescriptor, TablePath, parse_type

PATH = TablePath("db", "t")


def descriptor(columns: dict[str, str] | None = None, **options: Any) -> TableDescriptor:
    columns = columns or {"id": "BIGINT NOT NULL", "name": "STRING"}
    schema = Schema(columns=tuple(Column(name=n, type=parse_type(t), comment=f"about {n}") for n, t in columns.items()))
    return TableDescriptor(schema=schema, **options)


@pytest.mark.parametrize(
    ("sql", "iceberg"),
    [
        ("BOOLEAN", "boolean"),
        ("TINYINT", "int"),
        ("SMALLINT", "int"),
        ("INT", "int"),
        ("BIGINT", "long"),
        ("FLOAT", "float"),
        ("DOUBLE", "double"),
        ("DECIMAL(20, 3)", "decimal(20, 3)"),
        ("CHAR(4)", "string"),
        ("STRING", "string"),
        ("BINARY(4)", "binary"),
        ("BYTES", "binary"),
        ("DATE", "date"),
        ("TIME(0)", "time"),
        ("TIME(6)", "time"),
        ("TIMESTAMP(0)", "timestamp"),
        ("TIMESTAMP(6)", "timestamp"),
        ("TIMESTAMP_LTZ(3)", "timestamptz"),
        ("ARRAY<INT NOT NULL>", "list<element int required>"),
        ("MAP<STRING, ARRAY<DOUBLE>>", "map<key string required, value list<element double>>"),
        ("ROW<a INT NOT NULL, b ROW<c DATE>>", "struct<a int required, b struct<c date>>"),
    ],
)
def test_types(sql: str, iceberg: str) -> None:
    assert spell_type(to_iceberg_type(parse_type(sql), "t.c")) == iceberg


@pytest.mark.parametrize(
    "sql",
    ["TIMESTAMP(7)", "TIMESTAMP(9)", "TIMESTAMP_LTZ(9)", "TIME(9)", "ARRAY<TIMESTAMP(9)>", "ROW<a ROW<b TIME(8)>>"],
)
def test_what_version_2_cannot_hold_is_refused_by_name(sql: str) -> None:
    with pytest.raises(UnsupportedType, match=r"db\.t\.precise.*6 fractional digits"):
        check_descriptor(PATH, descriptor({"id": "INT", "precise": sql}))


def test_system_columns_come_last_and_are_required() -> None:
    schema = lake_schema(descriptor(primary_key=("id",)))
    assert [(f.name, str(f.field_type), f.required) for f in schema.fields[-3:]] == [
        ("__bucket", "int", True),
        ("__offset", "long", True),
        ("__timestamp", "timestamptz", True),
    ]
    assert schema.identifier_field_names() == {"id"}
    assert (schema.find_field("id").required, schema.find_field("name").required) == (True, False)
    assert schema.find_field("name").doc == "about name"
    (field,) = lake_order(schema).fields
    assert (schema.find_column_name(field.source_id), str(field.direction), str(field.null_order)) == (
        "__offset",
        "ASC",
        "NULLS FIRST",
    )


@pytest.mark.parametrize(
    ("options", "transform", "name"),
    [
        ({}, IdentityTransform, "__bucket"),
        ({"bucket_keys": ("id",), "bucket_function": BucketFunction.ICEBERG}, BucketTransform, "id_bucket"),
        ({"bucket_keys": ("id",), "bucket_function": BucketFunction.FLUSS}, IdentityTransform, "__bucket"),
        (
            {"bucket_keys": ("name",), "bucket_function": BucketFunction.ICEBERG},
            IdentityTransform,
            "__bucket",
        ),  # nullable
        ({"bucket_keys": ("id", "name"), "bucket_function": BucketFunction.FLUSS}, IdentityTransform, "__bucket"),
    ],
)
def test_the_last_partition_field_is_the_bucket(options: dict[str, Any], transform: type, name: str) -> None:
    made = descriptor(bucket_count=7, **options)
    (field,) = lake_spec(made, lake_schema(made)).fields
    assert (type(field.transform), field.name) == (transform, name)
    if isinstance(field.transform, BucketTransform):
        assert field.transform.num_buckets == 7


def test_partition_keys_come_first_in_their_order() -> None:
    made = descriptor({"a": "STRING NOT NULL", "b": "DATE NOT NULL", "v": "INT"}, partition_keys=("b", "a"))
    assert [f.name for f in lake_spec(made, lake_schema(made)).fields] == ["b", "a", "__bucket"]


def test_times_are_icebergs_own_transforms_under_names_that_no_column_has() -> None:
    columns = {
        "ts": "TIMESTAMP(6) NOT NULL",
        "d": "DATE",
        "at": "TIMESTAMP_LTZ(3)",
        "o": "TIMESTAMP(0)",
        "d_month": "INT",
    }
    made = descriptor(columns, partition_keys=("hour(ts)", "month(d)", "day(at)", "year(o)"), bucket_count=4)
    schema = lake_schema(made)
    spec = lake_spec(made, schema)
    assert spell_spec(spec, schema) == "hour(ts), month(d), day(at), year(o), identity(__bucket)"
    assert [f.name for f in spec.fields] == ["ts_hour", "d_month2", "at_day", "o_year", "__bucket"]
    bucket = Bucket("1969-12-31-23$1969-12$2026-11-18$0001", 3)
    record = partition_record(spec, schema, bucket)
    assert record == Record(-1, -1, 20_775, -1969, 3)
    assert bucket_of(spec, schema, record, made.partition_keys) == bucket
    assert bucket_of(spec, schema, Record(-1, -1, date(2026, 11, 18), -1969, 3), made.partition_keys) == bucket
    assert bucket_of(spec, schema, Record(-1, None, 20_775, -1969, 3), made.partition_keys) is None


def test_files_that_old_versions_put_into_a_wrong_day_are_found() -> None:
    made = descriptor({"ts": "TIMESTAMP_LTZ(6)", "d": "DATE"}, partition_keys=("day(ts)", "month(d)"))
    spec, schema = lake_spec(made, lake_schema(made)), lake_schema(made)

    def file(day: int | None, first: int, last: int) -> DataFile:
        low, high = ({1: n.to_bytes(8, "little", signed=True), 2: b"\0\0\0\0"} for n in (first, last))
        return DataFile.from_args(file_path="f", partition=Record(day, 0, 0), lower_bounds=low, upper_bounds=high)

    for right in (file(-1, -5, -1), file(0, 0, 86_399_999_999), file(None, -5, 5)):
        check_times("db.t", spec, schema, right)
    for wrong in (file(0, -5, -1), file(0, -1, 7), file(0, 0, 86_400_000_000)):
        with pytest.raises(InvalidTable, match="its ts is not of its partition 1970-01-01; rewrite the file first"):
            check_times("db.t", spec, schema, wrong)


@pytest.mark.parametrize(
    ("sql", "words"),
    [
        ("DOUBLE NOT NULL", "a column that holds its day"),
        ("DECIMAL(5, 2)", "a column that holds its day"),
        ("TIMESTAMP(3)", r"partition by day\(p\), hour\(p\), month\(p\) or year\(p\) instead"),
        ("BYTES", "a column that holds its day"),
        ("ARRAY<INT>", "a column that holds its day"),
    ],
)
def test_partition_keys_that_have_no_plain_text_are_refused(sql: str, words: str) -> None:
    with pytest.raises(UnsupportedType, match=f"partition key p.*{words}"):
        check_descriptor(PATH, descriptor({"id": "INT", "p": sql}, partition_keys=("p",)))


def test_a_bucket_key_without_a_transform_is_refused() -> None:
    with pytest.raises(UnsupportedBucketKey):
        check_descriptor(
            PATH, descriptor({"d": "DOUBLE NOT NULL"}, bucket_keys=("d",), bucket_function=BucketFunction.ICEBERG)
        )


@pytest.mark.parametrize(
    ("key", "value"),
    [("iceberg.format-version", "4"), ("iceberg.format-version", "x"), ("iceberg.write.format.default", "orc")],
)
def test_properties_that_we_cannot_keep_are_refused(key: str, value: str) -> None:
    with pytest.raises(InvalidTable, match=key.replace(".", r"\.")):
        check_descriptor(PATH, descriptor(properties={key: value}))


def test_property_keys() -> None:
    properties = lake_properties(
        descriptor(properties={"iceberg.write.x": "1", "table.datalake.freshness": "10s", "owner": "me"})
    )
    assert properties["write.x"] == "1"
    assert properties["fluss.table.datalake.freshness"] == "10s"
    assert properties["fluss.owner"] == "me"
    assert "write.delete.mode" not in properties
    assert lake_properties(descriptor(primary_key=("id",)))["write.merge.mode"] == "merge-on-read"
    assert (
        lake_properties(descriptor(properties={"iceberg.history.expire.min-snapshots-to-keep": "9"}))[
            "history.expire.min-snapshots-to-keep"
        ]
        == "9"
    )


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (ice.StringType(), "a=b c", "a=b c"),
        (ice.IntegerType(), "-7", -7),
        (ice.LongType(), str(2**60), 2**60),
        (ice.BooleanType(), "true", True),
        (ice.DateType(), "1969-12-31", -1),
        (ice.DateType(), "2024-02-29", 19782),
    ],
)
def test_partition_values_go_there_and_back(kind: ice.IcebergType, text: str, value: Any) -> None:
    assert parse_value(kind, text) == value
    assert value_text(kind, value) == text


@pytest.mark.parametrize(
    ("kind", "text"),
    [(ice.IntegerType(), "x"), (ice.BooleanType(), "1"), (ice.DateType(), "yesterday"), (ice.DoubleType(), "1.0")],
)
def test_partition_values_that_do_not_fit(kind: ice.IcebergType, text: str) -> None:
    with pytest.raises(InvalidRequest):
        parse_value(kind, text)


def test_a_buckets_tuple_names_the_bucket_again() -> None:
    made = descriptor({"a": "STRING NOT NULL", "b": "DATE NOT NULL", "v": "INT"}, partition_keys=("a", "b"))
    schema = lake_schema(made)
    spec = lake_spec(made, schema)
    bucket = Bucket("eu$2024-02-29", 3)
    record = partition_record(spec, schema, bucket)
    assert record == Record("eu", 19782, 3)
    assert bucket_of(spec, schema, record, ("a", "b")) == bucket
    with pytest.raises(InvalidRequest):
        partition_record(spec, schema, Bucket("eu", 3))


def test_refusals_are_ours() -> None:
    made = descriptor({"id": "TIMESTAMP(9)"})
    with pytest.raises(LakewardError):
        check_descriptor(PATH, replace(made, bucket_count=2))
