# SPDX-License-Identifier: Apache-2.0
"""Rows of a Fluss log in the columns of the table."""

from __future__ import annotations

import pyarrow as pa

from lakeward.hot.fluss.kv.rowbatch import BatchShaper
from lakeward.model import Column, Schema, parse_type


def test_nulls_below_a_null_row_are_no_values() -> None:
    """A writer of Arrow may leave them null, and say of no field that it is NOT NULL."""
    schema = Schema(columns=(Column(name="r", type=parse_type("ROW<a INT NOT NULL, b BINARY(2) NOT NULL>")),))
    written = pa.struct([pa.field("a", pa.int32()), pa.field("b", pa.binary())])
    for values in ([None, None], [None, {"a": 1, "b": b"ab"}]):
        rows = pa.RecordBatch.from_arrays([pa.array(values, written)], ["r"])
        (column,) = BatchShaper(schema, None).columns_of(rows)
        assert column.type == pa.struct([pa.field("a", pa.int32(), False), pa.field("b", pa.binary(2), False)])
        assert column.to_pylist() == values
