# SPDX-License-Identifier: Apache-2.0
"""Hashes of rows: equal for equal rows in any chunks and slices, different for any other value at any depth."""

from __future__ import annotations

from random import Random
from typing import Any

import pyarrow as pa
import pytest

from lakeward.client.columns import parse_columns
from lakeward.model import to_arrow_schema
from lakeward.verify.rowhash import hash_rows
from lakeward_testing.oracle.values import TYPES, maybe, spelled

ROWS = 300


def column_of(kind: str, values: list[Any]) -> pa.Table:
    (field,) = to_arrow_schema(parse_columns(f"v {kind}"))
    return pa.Table.from_arrays([pa.array(values, field.type)], ["v"])


def hashes_of(rows: pa.Table | pa.RecordBatch) -> list[int]:
    return [int(h) for h in hash_rows(rows, rows.schema.names)]


@pytest.mark.parametrize("kind", TYPES)
def test_hashes_are_equal_exactly_where_values_are(kind: str) -> None:
    chance = Random(kind)
    rows = column_of(kind, [maybe(TYPES[kind], chance) for _ in range(ROWS)])
    hashes, values = hashes_of(rows), [spelled(v) for v in rows["v"].to_pylist()]
    assert len(dict(zip(hashes, values, strict=True))) == len(set(hashes)) == len(set(values))
    in_slices = pa.concat_tables([rows.slice(0, 7), rows.slice(7, 100), rows.slice(107)])
    assert hashes_of(in_slices) == hashes_of(rows.slice(0, 7)) + hashes_of(rows.slice(7)) == hashes
    order = [chance.randrange(ROWS) for _ in range(ROWS)]
    assert hashes_of(rows.take(pa.array(order))) == [hashes[n] for n in order]


def test_nulls_lengths_and_places_count() -> None:
    lists = [None, [], [None], [None, None], [0], [0, 0], [0, None], [None, 0], [1, 2], [2, 1]]
    assert len(set(hashes_of(column_of("ARRAY<INT>", lists)))) == len(lists)
    texts = ["", None, "\0", "\0\0", "a", "a\0", "\0a", "ab", "ba"]
    assert len(set(hashes_of(column_of("STRING", texts)))) == len(texts)
    pairs = pa.table({"a": [1, 2, None, None], "b": [2, 1, None, 0]})
    assert len(set(hashes_of(pairs))) == 4
