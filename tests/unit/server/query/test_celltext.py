# SPDX-License-Identifier: Apache-2.0
"""Rows as texts: every type has one, and none is endless."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from lakeward.errors import QuotaExceeded
from lakeward.server.lakethreads import AtOnce
from lakeward.server.query.celltext import MOST_CHARS, cell_texts, row_texts


@pytest.mark.parametrize(
    ("values", "kind", "texts"),
    [
        ([1, None], pa.int64(), ["1", None]),
        ([Decimal("1.50")], pa.decimal128(5, 2), ["1.50"]),
        ([b"\x00\xff"], pa.binary(), ["00ff"]),
        ([[1, 2], None], pa.list_(pa.int32()), ["[1, 2]", None]),
        ([{"a": 1}], pa.struct([("a", pa.int32())]), ["{'a': 1}"]),
        ([datetime(2026, 1, 2, tzinfo=UTC)], pa.timestamp("us", "UTC"), ["2026-01-02 00:00:00.000000Z"]),
        ([1], pa.timestamp("ns"), ["1970-01-01 00:00:00.000000001"]),
        (["x" * 501], pa.string(), ["x" * MOST_CHARS + "…"]),
        ([float("nan")], pa.float64(), ["nan"]),
    ],
)
def test_a_cell_is_a_text(values: list[Any], kind: pa.DataType, texts: list[str | None]) -> None:
    assert cell_texts(pa.array(values, kind)) == texts


def test_rows_keep_their_order() -> None:
    assert row_texts(pa.record_batch({"a": [1, 2], "b": ["x", None]})) == [["1", "x"], ["2", None]]


def test_calls_under_way_are_counted_for_a_token_and_in_all() -> None:
    limit = AtOnce("queries", of_token=1, in_all=2)
    with limit.counted("a"):
        with pytest.raises(QuotaExceeded, match="has 1 queries"), limit.counted("a"):
            raise AssertionError("it was let in")
        with limit.counted("b"), pytest.raises(QuotaExceeded, match="has 2 queries with others"), limit.counted("c"):
            raise AssertionError("it was let in")
    with limit.counted("c"):
        pass
