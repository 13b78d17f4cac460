# SPDX-License-Identifier: Apache-2.0
"""Errors of Arrow and of formats' libraries name the row that does not fit, and nulls below a null are no errors."""

from __future__ import annotations

import pyarrow as pa
import pytest

from lakeward.errors import RowNotEncoded
from lakeward.lake.encoding import RowEncoding, settled
from lakeward.model import OFFSET, Bucket

ENCODING = RowEncoding("iceberg", "db.t", Bucket("", 3))
ROWS = pa.table({"a": ["1", "x", "3"], OFFSET: [7, 8, 9]})


def test_a_value_that_arrow_refuses_is_named() -> None:
    with pytest.raises(RowNotEncoded) as failed:
        ENCODING.fit(ROWS, lambda rows: rows.select(["a"]).cast(pa.schema([("a", pa.int64())])))
    error = failed.value
    assert (error.lake, error.table, error.bucket, error.offset) == ("iceberg", "db.t", "3", "7 to 9")
    assert "x" in error.reason
    assert not error.retryable


def test_a_value_that_a_file_does_not_take_is_named_with_its_row() -> None:
    schema = pa.schema([("a", pa.int64())])
    with pytest.raises(RowNotEncoded) as failed, ENCODING.errors(ROWS, schema):
        ROWS.select(["a"]).cast(schema)
    assert (failed.value.column, failed.value.offset) == ("a", "8")


def test_a_null_below_a_null_is_no_error() -> None:
    kind = pa.struct([pa.field("n", pa.int32(), nullable=False)])
    hidden = pa.StructArray.from_arrays(
        [pa.array([1, None], pa.int32())], fields=list(kind), mask=pa.array([False, True])
    )
    rows = pa.table({"r": hidden})
    with pytest.raises(RowNotEncoded):
        ENCODING.fit(pa.table({"r": pa.StructArray.from_arrays(hidden.flatten(), fields=list(kind))}), lambda r: r)
    column = settled(rows).column("r")
    assert column.to_pylist() == [{"n": 1}, None]
    assert column.chunk(0).field(0).null_count == 0
