# SPDX-License-Identifier: Apache-2.0
"""Texts of bad rows, types of new columns, the rate of bad rows, batches of redriven rows: without a server."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from lakeward.errors import InvalidInput, TooManyBadRows
from lakeward.model import Bucket, Column, Int64Type, TablePath
from lakeward.server.contract.batch import Piece, RedriveBatch
from lakeward.server.contract.rates import SHOWN_S, SPAN_S, BadRowRates
from lakeward.server.ingest.bodies import RowFormat
from lakeward.server.ingest.fitting import RowOp
from lakeward.server.ingest.rowtext import row_texts, value_type

COLUMNS = (Column(name="id", type=Int64Type()), Column(name="v", type=Int64Type()))
PATH = TablePath("shop", "t")


@pytest.mark.parametrize(
    "body",
    ['[1, {"a": 1.10}, "x,]"]', ' [ 1 ,\n{"a": 1.10}\t, "x,]" ] ', '[1,{"a": 1.10},"x,]"]'],
    ids=["plain", "blanks", "tight"],
)
def test_texts_of_json_rows_are_exact(body: str) -> None:
    assert row_texts(body.encode(), RowFormat.JSON, COLUMNS, {0, 1, 2}) == {0: "1", 1: '{"a": 1.10}', 2: '"x,]"'}


def test_texts_of_a_single_object_and_of_an_empty_list() -> None:
    assert row_texts(b' {"id": "x"} ', RowFormat.JSON, COLUMNS, {0}) == {0: '{"id": "x"}'}
    assert row_texts(b" [ ] ", RowFormat.JSON, COLUMNS, {0}) == {}


def test_texts_of_csv_rows_tell_null_from_an_empty_text() -> None:
    body = b'id,v\n1,\nx,""\n2,3,4\ny,5\n'
    texts = row_texts(body, RowFormat.CSV, COLUMNS, {1, 2, 3})
    assert texts == {1: '{"id": "x", "v": ""}', 2: "2,3,4", 3: '{"id": "y", "v": "5"}'}


@pytest.mark.parametrize(
    ("values", "sql"),
    [
        ([1, None], "BIGINT"),
        ([1, Decimal("1.5")], "DOUBLE"),
        ([2**63], "DOUBLE"),
        ([True], "BOOLEAN"),
        (["x"], "STRING"),
        ([True, 1], None),
        ([None], None),
        ([{"a": 1}], None),
        ([[1]], None),
    ],
)
def test_types_of_new_columns(values: list[Any], sql: str | None) -> None:
    kind = value_type(values)
    assert (None if kind is None else kind.sql) == sql


def test_rates_count_one_minute_and_show_stopped_sources_for_ten() -> None:
    now = [0.0]
    rates = BadRowRates(lambda: now[0])
    rates.add(PATH, 3, 3)
    with pytest.raises(TooManyBadRows):
        rates.add(PATH, 1, 3)
    assert rates.stopped() == {PATH: 4}
    now[0] = SPAN_S
    rates.add(PATH, 3, 3)
    now[0] = SHOWN_S
    assert rates.stopped() == {}


def test_a_batch_is_read_back_and_loses_rows_one_by_one() -> None:
    rows = pa.record_batch({"id": [1, 2, 3]})
    piece = Piece(op=RowOp.APPEND, bucket=Bucket("", 1), columns=("id",), ids=("a", "b", "c"), rows=rows)
    batch = RedriveBatch(id="b1", started_at_ms=5, schema_id=2, pieces=(piece,)).without(0, 1)
    back = RedriveBatch.from_text(batch.to_text())
    assert (back.ids, back.version, back.pieces[0].rows.to_pydict()) == (["a", "c"], 1, {"id": [1, 3]})
    assert (back.writer_id(0), back.without(0).ids) == (batch.writer_id(0), [])


@pytest.mark.parametrize("text", ["", "[]", json.dumps({"id": 1, "pieces": []}), '{"id": "x", "pieces": [{}]}'])
def test_a_record_that_is_none_of_ours_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput):
        RedriveBatch.from_text(text)
