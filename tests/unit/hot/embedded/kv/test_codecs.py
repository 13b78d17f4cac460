# SPDX-License-Identifier: Apache-2.0
"""Rows and keys to bytes and back: every column type, nulls at every depth, slices, older schemas."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from lakeward.errors import InvalidRequest
from lakeward.hot.embedded.kv.keycodec import KeyCodec
from lakeward.hot.embedded.kv.rowcodec import RowCodec
from lakeward.hot.embedded.kv.structcodec import StructCodec, make_binary
from lakeward.model import Column, Schema, parse_type, to_arrow_type

NOON = dt.datetime(2024, 2, 29, 12, 0, 0, 123000)
VALUES: dict[str, list[Any]] = {
    "BOOLEAN": [True, False],
    "TINYINT": [-128, 127],
    "SMALLINT": [-32768, 5],
    "INT": [-1, 2**31 - 1],
    "BIGINT": [-(2**63), 2**63 - 1],
    "FLOAT": [1.5, float("inf")],
    "DOUBLE": [-0.0, 1e300],
    "DECIMAL(38, 10)": [Decimal("-1234567890123456789012345678.0123456789"), Decimal("0E-10")],
    "DECIMAL(5, 2)": [Decimal("-1.25"), Decimal("999.99")],
    "CHAR(3)": ["abc", "ä"],
    "STRING": ["", "x" * 1000, "ünï"],
    "BINARY(3)": [b"\x00\x01\x02", b"abc"],
    "BYTES": [b"", b"\x00" * 9],
    "DATE": [dt.date(1969, 12, 31), dt.date(2400, 1, 1)],
    "TIME(3)": [dt.time(23, 59, 59, 999000), dt.time(0)],
    "TIME(6)": [dt.time(1, 2, 3, 4), dt.time(0)],
    "TIMESTAMP(3)": [NOON, dt.datetime(1960, 1, 1)],
    "TIMESTAMP(6)": [NOON, dt.datetime(1960, 1, 1)],
    "TIMESTAMP_LTZ(6)": [NOON.replace(tzinfo=dt.UTC)],
    "VECTOR(3)": [[0.0, -1.5, 2.0]],
    "ARRAY<INT>": [[], [1, None, 3], list(range(50))],
    "ARRAY<STRING NOT NULL>": [[], ["", "abc"]],
    "ARRAY<ARRAY<DECIMAL(5, 2)>>": [[], [None, [], [Decimal("1.00"), None]]],
    "MAP<STRING, BIGINT>": [[], [("a", 1), ("b", None)]],
    "MAP<INT, ARRAY<STRING>>": [[(1, ["x", None]), (2, None)], [(3, [])]],
    "ROW<a INT NOT NULL, b STRING>": [{"a": 1, "b": None}, {"a": 2, "b": "zz"}],
    "ROW<a ROW<b ARRAY<BOOLEAN>>, m MAP<STRING, ROW<c DATE>>>": [
        {"a": {"b": [True, None]}, "m": [("k", {"c": dt.date(2020, 1, 1)}), ("l", None)]},
        {"a": None, "m": None},
    ],
}


def column_of(sql: str) -> pa.Array:
    values = VALUES[sql]
    mixed = [v for value in values for v in (None, value, value)] * 3
    return pa.array(mixed, to_arrow_type(parse_type(sql)))


def field_of(sql: str) -> pa.Field:
    return pa.field(sql, to_arrow_type(parse_type(sql)))


@pytest.mark.parametrize("sql", VALUES)
def test_every_type_round_trips_alone_and_sliced(sql: str) -> None:
    column = column_of(sql)
    codec = StructCodec([field_of(sql)])
    for piece in (column, column[1:], column[2:3], column[:1], column[:0], column.drop_null()):
        (back,) = codec.decode(codec.encode([piece]))
        back.validate(full=True)
        assert back.equals(piece)


def test_every_type_side_by_side() -> None:
    fields = [field_of(sql) for sql in VALUES]
    size = min(len(column_of(sql)) for sql in VALUES)
    columns = [column_of(sql)[:size] for sql in VALUES]
    codec = StructCodec(fields)
    rows = codec.encode(columns)
    assert [b.equals(c) for b, c in zip(codec.decode(rows), columns, strict=True)] == [True] * len(fields)
    # rows in another order, of which some columns are wanted
    order = pa.array(list(reversed(range(size))))
    for position in (0, 7, 10, len(fields) - 1):
        assert codec.decode(rows.take(order), [position])[0].equals(columns[position].take(order))


@pytest.mark.parametrize("sql", VALUES)
def test_equal_rows_have_equal_bytes(sql: str) -> None:
    """Also when Arrow holds garbage under nulls, and whatever came before them in the batch."""
    kind, values = to_arrow_type(parse_type(sql)), [None, *VALUES[sql]]
    codec = StructCodec([field_of(sql)])
    forward = codec.encode([pa.array(values, kind)]).to_pylist()
    backward = codec.encode([pa.array([*VALUES[sql], *reversed(values)], kind)]).to_pylist()
    assert forward == list(reversed(backward))[: len(forward)]
    assert len(set(forward)) == len(forward)


def test_bytes_under_a_null_do_not_count() -> None:
    dirty = pa.Array.from_buffers(pa.int64(), 2, [pa.py_buffer(b"\x02"), pa.py_buffer(np.array([77, 5]).tobytes())])
    clean = pa.array([None, 5], pa.int64())
    codec = StructCodec([pa.field("a", pa.int64())])
    assert codec.encode([dirty]).equals(codec.encode([clean]))


def test_more_than_arrow_can_address_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="bytes"):
        make_binary(np.array([0, 2**31], np.int64), b"")


@pytest.mark.parametrize(
    ("types", "rows"),
    [
        (["BIGINT"], [(1,), (-1,), (256,), (2**63 - 1,)]),
        (["TINYINT"], [(0,), (1,), (-1,)]),
        (["STRING"], [("",), ("a",), ("\x00",), ("a\x00",)]),
        (["STRING", "STRING"], [("a", "bc"), ("ab", "c"), ("", "abc"), ("abc", "")]),
        (["BYTES", "INT", "BYTES"], [(b"", 1, b"x"), (b"x", 1, b""), (b"\x01", 0, b""), (b"", 0, b"\x01")]),
        (["DECIMAL(10, 2)", "DATE"], [(Decimal("1.00"), dt.date(2020, 1, 1)), (Decimal("0.01"), dt.date(2020, 1, 1))]),
    ],
)
def test_different_keys_have_different_bytes(types: list[str], rows: list[tuple[Any, ...]]) -> None:
    fields = [pa.field(f"c{i}", to_arrow_type(parse_type(sql)), False) for i, sql in enumerate(types)]
    codec = KeyCodec(fields)
    batch = pa.RecordBatch.from_pylist([dict(zip(codec.names, r, strict=True)) for r in rows], schema=pa.schema(fields))
    keys = codec.encode(batch).to_pylist()
    assert len(set(keys)) == len(rows)
    assert all(keys)
    assert codec.encode(batch.slice(1)).to_pylist() == keys[1:]


def test_older_rows_decode_with_nulls_in_the_order_given() -> None:
    first = Schema(columns=(Column(name="a", type=parse_type("INT")), Column(name="b", type=parse_type("STRING"))))
    second = first.with_added([Column(name=f"c{i}", type=parse_type("ARRAY<INT>")) for i in range(8)])
    old, new = RowCodec({1: first}), RowCodec({1: first, 2: second})
    few = pa.RecordBatch.from_pylist([{"a": 1, "b": "x"}, {"a": 2, "b": None}], schema=old.arrow)
    many = pa.RecordBatch.from_pylist([{"a": 3, "b": "y", "c7": [1, None]}], schema=new.arrow)
    values = pa.concat_arrays(
        [old.pack(old.encode(few), np.array([10, 11]), 5), new.pack(new.encode(many), np.array([12]), 6)]
    )
    rows = new.unpack(values.take(pa.array([2, 0, 1])))
    batch = new.decode_batch(rows, ["c7", "b"])
    assert batch.column("c7").to_pylist() == [[1, None], None, None]
    assert batch.column("b").to_pylist() == ["y", "x", None]
    assert batch.column("__offset").to_pylist() == [12, 10, 11]
    assert (
        new.in_schema(rows)
        .take(pa.array([1]))
        .equals(new.encode(pa.RecordBatch.from_pylist([{"a": 1, "b": "x"}], schema=new.arrow)))
    )
