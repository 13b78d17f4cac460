# SPDX-License-Identifier: Apache-2.0
"""What a table may be: names, keys, partitions, buckets, columns; each refusal names field and value."""

from __future__ import annotations

from typing import Any

import pytest

from lakeward.errors import InvalidTable
from lakeward.model import SYSTEM_COLUMNS, Column, Schema, TableDescriptor, TablePath, parse_type


def schema(**columns: str) -> Schema:
    return Schema(columns=tuple(Column(name=name, type=parse_type(kind)) for name, kind in columns.items()))


ORDERS = schema(day="STRING NOT NULL", id="BIGINT NOT NULL", line="INT NOT NULL", note="STRING")


@pytest.mark.parametrize("text", ["db.t", "a-b.c_d", "0.9", "_x.y", "d" * 200 + ".t"])
def test_paths(text: str) -> None:
    assert str(TablePath.parse(text)) == text


@pytest.mark.parametrize(
    "text",
    ["t", "", ".", "db.", ".t", "a.b.c", "../x.t", "db.a/b", "db.-t", "db.t ", "dé.t", "d" * 201 + ".t", "db.t\n"],
)
def test_paths_that_could_leave_their_folder_are_refused(text: str) -> None:
    with pytest.raises(InvalidTable):
        TablePath.parse(text)


def test_a_pk_table_is_bucketed_by_its_key_without_the_partition() -> None:
    table = TableDescriptor(schema=ORDERS, primary_key=("day", "id"), partition_keys=("day",), bucket_count=4)
    assert table.bucket_keys == ("id",)
    assert table.is_pk
    assert table.is_partitioned


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"primary_key": ("note",)}, "primary key"),
        ({"primary_key": ("nope",)}, "primary key"),
        ({"primary_key": ("id", "id")}, "primary key"),
        ({"primary_key": ("day",), "partition_keys": ("day",)}, "primary key"),
        ({"primary_key": ("id",), "partition_keys": ("day",)}, "partition key"),
        ({"primary_key": ("id",), "bucket_keys": ("line",)}, "bucket key"),
        ({"partition_keys": ("day",), "bucket_keys": ("day",)}, "bucket key"),
        ({"bucket_count": 0}, "bucket count"),
        ({"bucket_count": 10_001}, "bucket count"),
    ],
)
def test_keys_that_do_not_fit_are_refused_by_name(given: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidTable) as raised:
        TableDescriptor(schema=ORDERS, **given)
    assert raised.value.field == field


@pytest.mark.parametrize("name", sorted(SYSTEM_COLUMNS))
def test_system_columns_belong_to_us(name: str) -> None:
    with pytest.raises(InvalidTable, match=name):
        schema(**{name: "INT"})


def test_columns_are_named_once_and_there_is_one() -> None:
    column = Column(name="a", type=parse_type("INT"))
    with pytest.raises(InvalidTable):
        Schema(columns=(column, column))
    with pytest.raises(InvalidTable):
        Schema(columns=())
    for name in ("", " a", "a ", "a\x00"):
        with pytest.raises(InvalidTable):
            Column(name=name, type=parse_type("INT"))


def test_an_added_column_comes_last_under_the_next_schema_id() -> None:
    grown = ORDERS.with_added([Column(name="extra", type=parse_type("DOUBLE"))])
    assert grown.schema_id == ORDERS.schema_id + 1
    assert grown.names == (*ORDERS.names, "extra")
    with pytest.raises(InvalidTable, match="no such column"):
        ORDERS.column("extra")


def test_properties_of_a_descriptor_are_its_own() -> None:
    properties = {"a": "1"}
    table = TableDescriptor(schema=ORDERS, properties=properties)
    properties["a"] = "2"
    assert table.properties == {"a": "1"}


def test_partitions_by_another_function_of_a_column_are_refused_with_the_way_out() -> None:
    with pytest.raises(InvalidTable, match=r"or by its time: year\(c\), month\(c\)"):
        TableDescriptor(schema=ORDERS, partition_keys=("truncate(id)",))
