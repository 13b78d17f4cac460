# SPDX-License-Identifier: Apache-2.0
"""Nulls inside nested values: found where the type forbids them, at any depth, and nowhere else."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pyarrow as pa
import pytest

from lakeward.model import cast_values, find_nested_null, parse_type, to_arrow_type, without_hidden_nulls

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


def hidden_nulls(kind: pa.StructType, valid: list[bool]) -> pa.Array:
    """Every field of every row is null; of the rows, those that are not valid."""
    bits = sum(1 << i for i, is_valid in enumerate(valid) if is_valid)
    children = [pa.nulls(len(valid), field.type) for field in kind]
    return pa.Array.from_buffers(kind, len(valid), [pa.py_buffer(bytes([bits]))], children=children)


@pytest.mark.parametrize(
    "sql",
    [
        "ROW<a INT NOT NULL, b STRING NOT NULL, c BINARY(2) NOT NULL, d BOOLEAN NOT NULL, e DECIMAL(9, 2) NOT NULL>",
        "ROW<a ROW<b INT NOT NULL> NOT NULL, c ARRAY<INT NOT NULL> NOT NULL>",
        "ROW<a MAP<STRING NOT NULL, ROW<b INT NOT NULL>> NOT NULL>",
    ],
)
def test_nulls_below_a_null_are_taken_out(sql: str) -> None:
    column = hidden_nulls(to_arrow_type(parse_type(sql)), [False] * 4)[1:]
    assert find_nested_null(column) is None
    settled = without_hidden_nulls(column)
    settled.validate(full=True)
    assert settled.to_pylist() == column.to_pylist() == [None] * 3
    assert all(child.null_count == 0 for child in (settled.field(i) for i in range(column.type.num_fields)))


def test_a_null_that_shows_stays_and_is_found() -> None:
    column = hidden_nulls(to_arrow_type(parse_type("ROW<a INT NOT NULL>")), [False, True])
    assert find_nested_null(column) == 1


def test_elements_of_a_null_list_count_for_nothing() -> None:
    """Arrow lets a null list have elements."""
    bits, offsets = pa.py_buffer(b"\x02"), pa.py_buffer(pa.array([0, 1, 2], pa.int32()).buffers()[1])
    kind = pa.list_(pa.field("element", pa.int32(), False))
    for elements, row in ([None, 1], None), ([1, None], 1):
        column = pa.Array.from_buffers(kind, 2, [bits, offsets], children=[pa.array(elements, pa.int32())])
        assert find_nested_null(column) == row


def test_a_cast_leaves_alone_what_is_below_a_null() -> None:
    plain = pa.struct([pa.field("a", pa.binary(), False), pa.field("b", pa.list_(pa.int32()), False)])
    wanted = pa.struct([pa.field("a", pa.binary(2), False), pa.field("b", pa.list_(pa.int64()), False)])
    values = [None, {"a": b"ab", "b": [1]}]
    for column in (pa.array(values, plain), pa.array([None, *values], plain)[1:], hidden_nulls(plain, [False, False])):
        done = cast_values(column, wanted)
        done.validate(full=True)
        assert (done.type, done.to_pylist()) == (wanted, column.to_pylist())
    nested = cast_values(pa.array([values, None], pa.list_(plain)), pa.list_(wanted))
    assert nested.to_pylist() == [values, None]
    pairs = cast_values(pa.array([[("k", None)], None], pa.map_(pa.string(), plain)), pa.map_(pa.string(), wanted))
    assert pairs.to_pylist() == [[("k", None)], None]
    assert find_nested_null(cast_values(hidden_nulls(plain, [False, True]), wanted)) == 1


def test_a_cast_that_need_not_be_safe_cuts_times_at_any_depth() -> None:
    fine, coarse = (
        pa.struct([pa.field("t", pa.timestamp(u), False), pa.field("l", pa.list_(pa.timestamp(u)))])
        for u in ("us", "ms")
    )
    moment = datetime(2026, 1, 1, 0, 0, 0, 1_234)
    column = pa.array([None, {"t": moment, "l": [moment, None]}], fine)
    with pytest.raises(pa.ArrowInvalid):
        cast_values(column, coarse)
    cut = moment.replace(microsecond=1_000)
    for values in (column, hidden_nulls(fine, [False])):
        done = cast_values(values, coarse, safe=False)
        assert done.to_pylist() == ([None, {"t": cut, "l": [cut, None]}] if len(values) > 1 else [None])
