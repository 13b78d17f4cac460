# SPDX-License-Identifier: Apache-2.0
"""Filters: expressions and tuples, and the columns they need."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from lakeward.errors import InvalidRequest
from lakeward.read.predicate import parse_filter

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string()), ("at", pa.timestamp("ms"))])


def test_a_filter_knows_its_columns() -> None:
    assert parse_filter(None, SCHEMA) is None
    by_tuple = parse_filter([("id", ">", 1), ("name", "==", "x")], SCHEMA)
    by_expression = parse_filter((pc.field("id") > 1) & (pc.field("name") == "x"), SCHEMA)
    assert by_tuple is not None
    assert by_expression is not None
    assert by_tuple.columns == by_expression.columns == ("id", "name")
    batch = pa.record_batch({"id": [1, 2, 3], "name": ["x", "x", "y"]})
    assert by_tuple.apply(batch).to_pylist() == by_expression.apply(batch).to_pylist() == [{"id": 2, "name": "x"}]


@pytest.mark.parametrize("wrong", [[("id", "like", 1)], 17, [("other", ">", 1)]])
def test_a_wrong_filter_is_refused_in_words(wrong: object) -> None:
    with pytest.raises(InvalidRequest, match="filter"):
        parse_filter(wrong, SCHEMA)


def test_a_filter_that_is_nested_too_deeply_is_refused() -> None:
    wrong: object = ("id", "=", 1)
    for _ in range(5_000):
        wrong = [wrong]
    with pytest.raises(InvalidRequest, match="filter"):
        parse_filter(wrong, SCHEMA)
