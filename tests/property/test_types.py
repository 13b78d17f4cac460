# SPDX-License-Identifier: Apache-2.0
"""A type survives its SQL spelling; a schema survives Arrow, in memory and over IPC, and JSON."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakeward.errors import InvalidInput, InvalidRequest, UnsupportedType
from lakeward.model import (
    DataType,
    Int64Type,
    Schema,
    StringType,
    TableDescriptor,
    TableInfo,
    from_arrow_schema,
    parse_type,
    to_arrow_schema,
    to_arrow_type,
)
from tests.property.strategies import SCHEMAS, TABLES, TYPES, descriptors


@given(TYPES)
def test_a_type_survives_its_spelling(kind: DataType) -> None:
    assert parse_type(str(kind)) == kind
    assert parse_type(f"  {kind.sql} \n not  null") == kind.with_nullable(False)


@given(SCHEMAS)
def test_a_schema_survives_arrow(schema: Schema) -> None:
    arrow = to_arrow_schema(schema)
    assert from_arrow_schema(arrow) == schema.columns
    assert from_arrow_schema(pa.ipc.read_schema(arrow.serialize())) == schema.columns


@given(SCHEMAS)
def test_a_schema_without_our_metadata_still_maps_and_maps_back_to_the_same_arrow(schema: Schema) -> None:
    stripped = pa.schema([f.remove_metadata() for f in to_arrow_schema(schema)])
    again = to_arrow_schema(from_arrow_schema(stripped))
    assert [f.type for f in again] == [f.type for f in stripped]
    assert [f.nullable for f in again] == [f.nullable for f in stripped]


@given(SCHEMAS)
def test_a_schema_survives_json(schema: Schema) -> None:
    assert Schema.from_json(json.loads(json.dumps(schema.to_json()))) == schema


@given(descriptors())
def test_a_descriptor_survives_json(descriptor: TableDescriptor) -> None:
    assert TableDescriptor.from_json(json.loads(json.dumps(descriptor.to_json()))) == descriptor


@given(TABLES)
def test_a_table_survives_json(table: TableInfo) -> None:
    assert TableInfo.from_json(json.loads(json.dumps(table.to_json()))) == table


@given(st.text(max_size=40) | st.text("ABCINTROW<>(),`' 0123456789", max_size=40))
def test_any_text_is_a_type_or_is_refused_in_words(text: str) -> None:
    try:
        kind = parse_type(text)
    except InvalidInput:
        return
    assert parse_type(str(kind)) == kind


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("bigint", Int64Type()),
        ("LONG NOT NULL", Int64Type(nullable=False)),
        ("varchar(20)", StringType()),
        ("text null", StringType()),
    ],
)
def test_synonyms(text: str, kind: DataType) -> None:
    assert parse_type(text) == kind


@pytest.mark.parametrize(
    "text",
    [
        "",
        "UNKNOWN",
        "DECIMAL(39, 0)",
        "DECIMAL(5, 6)",
        "DECIMAL(1, 1, 1)",
        "TIMESTAMP(10)",
        "ROW<>",
        "ROW<a INT, a INT>",
        "ARRAY<INT",
        "INT INT",
        "CHAR(0)",
        "BINARY(x)",
        "MAP<INT>",
        "TIME(1, 2)",
        "CHAR(1, 2)",
        "ROW<a INT COMMENT>",
        "VARCHAR()",
    ],
)
def test_types_that_are_refused(text: str) -> None:
    with pytest.raises(InvalidRequest) as raised:
        parse_type(text)
    assert text.partition("<")[0] in str(raised.value)


@pytest.mark.parametrize(
    "arrow",
    [
        pa.uint64(),
        pa.float16(),
        pa.duration("s"),
        pa.month_day_nano_interval(),
        pa.null(),
        pa.decimal256(50, 2),
        pa.decimal128(5, -2),
        pa.date64(),
        pa.binary(0),
    ],
    ids=str,
)
def test_arrow_types_that_would_lose_something_are_refused_by_name(arrow: pa.DataType) -> None:
    with pytest.raises(UnsupportedType) as raised:
        from_arrow_schema(pa.schema([pa.field("amount", arrow)]))
    assert "amount" in str(raised.value)
    assert str(arrow) in str(raised.value)


@given(TYPES)
def test_every_type_has_an_arrow_type(kind: DataType) -> None:
    assert isinstance(to_arrow_type(kind), pa.DataType)
