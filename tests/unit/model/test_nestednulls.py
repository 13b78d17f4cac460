# SPDX-License-Identifier: Apache-2.0
"""Nulls inside nested values: found where the type forbids them, at any depth, and nowhere else."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from lakeward.model.arrow import to_arrow_type
from lakeward.model.nestednulls import find_nested_null
from lakeward.model.sqltype import parse_type

LIST = "ARRAY<INT NOT NULL>"
DEEP = "ARRAY<ROW<a INT NOT NULL, b ARRAY<INT NOT NULL>>>"
MAP = "MAP<STRING, ROW<c INT NOT NULL> NOT NULL>"


@pytest.mark.parametrize(
    ("sql", "values", "row"),
    [
        ("INT", [None, 1], None),
        ("ARRAY<INT>", [[None], None], None),
        (LIST, [None, [], [1, 2]], None),
        (LIST, [None, [1], [1, None], [None]], 2),
        ("ROW<a INT NOT NULL>", [None, {"a": 1}], None),
        ("ROW<a INT NOT NULL>", [None, {"a": 1}, {"a": None}], 2),
        (DEEP, [[None, {"a": 1, "b": None}], [{"a": 1, "b": [1]}]], None),
        (DEEP, [[], [None, {"a": 1, "b": [1]}, {"a": 1, "b": [2, None]}]], 1),
        (DEEP, [[{"a": 1, "b": []}], [{"a": None, "b": []}]], 1),
        (MAP, [[("x", {"c": 1})], None, []], None),
        (MAP, [None, [("x", {"c": 1}), ("y", None)]], 1),
        (MAP, [[], [("x", {"c": None})]], 1),
    ],
)
def test_the_first_row_with_a_forbidden_null(sql: str, values: list[Any], row: int | None) -> None:
    column = pa.array([[], *values] if sql.startswith("ARRAY") else [None, *values], to_arrow_type(parse_type(sql)))
    assert find_nested_null(column[1:]) == row
