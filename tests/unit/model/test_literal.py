# SPDX-License-Identifier: Apache-2.0
"""Defaults of columns: which literals a type takes, and how they are spelled."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from lakeward.client.columns import parse_columns
from lakeward.errors import InvalidRequest
from lakeward.model import (
    Column,
    check_default,
    default_value,
    missing_values,
    parse_type,
    spell_default,
    to_arrow_field,
    to_arrow_type,
)

VALUES = [
    ("INT", "5", "5"),
    ("TINYINT", "-128", "-128"),
    ("BIGINT", "+7", "7"),
    ("DOUBLE", "1.5", "1.5"),
    ("FLOAT", "0.1", "0.10000000149011612"),
    ("DECIMAL(6, 2)", "1.5", "1.50"),
    ("BOOLEAN", "true", "true"),
    ("STRING", "'it''s'", "it's"),
    ("STRING", "''", ""),
    ("CHAR(2)", "'ab'", "ab"),
    ("BYTES", "X'0aFF'", "0aff"),
    ("BINARY(2)", "X'0aFF'", "0aff"),
    ("DATE", "DATE '2024-02-29'", "2024-02-29"),
    ("TIME(3)", "'12:30:00.5'", "12:30:00.500000"),
    ("TIMESTAMP(3)", "TIMESTAMP '2024-02-29 01:02:03.5'", "2024-02-29 01:02:03.500000"),
    ("TIMESTAMP_LTZ(6)", "'2024-02-29 01:02:03+02:00'", "2024-02-28 23:02:03+00:00"),
]


@pytest.mark.parametrize(("kind", "literal", "spelled"), VALUES)
def test_a_literal_has_one_spelling_and_is_read_back(kind: str, literal: str, spelled: str) -> None:
    (column,) = parse_columns(f"a {kind} NOT NULL DEFAULT {literal} COMMENT 'c'")
    assert (column.default, column.comment) == (spelled, "c")
    assert check_default(spelled, column.type, "a") == spelled
    assert Column.from_json(column.to_json()) == column
    assert parse_columns(f"a {kind} NOT NULL DEFAULT {spell_default(spelled, column.type)} COMMENT 'c'") == (column,)
    values = missing_values(to_arrow_field(column), 3)
    assert values.type == to_arrow_type(column.type)
    assert values.to_pylist()[2] == pa.scalar(default_value(spelled, column.type), values.type).as_py()


@pytest.mark.parametrize(
    ("kind", "literal"),
    [
        ("INT", "'x'"),
        ("INT", "1.5"),
        ("TINYINT", "128"),
        ("INT", "DATE '2024-01-01'"),
        ("STRING", "5"),
        ("STRING", "now()"),
        ("STRING", "current_user"),
        ("CHAR(2)", "'abc'"),
        ("BYTES", "'0a'"),
        ("BINARY(2)", "X'0a'"),
        ("DECIMAL(6, 2)", "1.555"),
        ("DECIMAL(6, 2)", "12345.5"),
        ("DOUBLE", "1e999"),
        ("DOUBLE", "'nan'"),
        ("BOOLEAN", "1"),
        ("DATE", "'2024-02-30'"),
        ("TIMESTAMP(3)", "'2024-02-29 01:02:03.0001'"),
        ("TIMESTAMP(3)", "'2024-02-29 01:02:03+01:00'"),
        ("ARRAY<INT>", "5"),
        ("ROW<a INT>", "'x'"),
        ("INT", "1 + 1"),
    ],
)
def test_what_is_not_a_value_of_the_type_is_refused(kind: str, literal: str) -> None:
    with pytest.raises(InvalidRequest):
        parse_columns(f"a {kind} DEFAULT {literal}")


def test_null_is_no_default() -> None:
    (column,) = parse_columns("a INT DEFAULT NULL")
    assert column.default is None
    assert "default" not in column.to_json()


def test_a_field_without_default_is_null() -> None:
    field: Any = to_arrow_field(Column(name="a", type=parse_type("INT")))
    assert missing_values(field, 2).to_pylist() == [None, None]
