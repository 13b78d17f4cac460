# SPDX-License-Identifier: Apache-2.0
"""Rows as verify compares them: what Parquet gives back is the same, whatever its type; one changed value is found."""

from __future__ import annotations

import struct
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakeward.changelog.rowdiff import altered_offsets
from lakeward.model import OFFSET

BITS64, BITS32 = st.integers(0, 2**64 - 1), st.integers(0, 2**32 - 1)
ODD64 = st.sampled_from([0x7FF8000000000000, 0x7FF8000000000001, 0xFFF8000000000007, 1 << 63, 0, 0x7FF0000000000000])


class Double(int):
    """A double by its bits: Python's own floats may lose a NaN's payload."""


class Single(int):
    """The same for 32 bits."""


LEAVES: list[tuple[pa.DataType, st.SearchStrategy[Any]]] = [
    (pa.float64(), (ODD64 | BITS64).map(Double)),
    (pa.float32(), (st.sampled_from([0x7FC00000, 0x7FC00001, 1 << 31, 0]) | BITS32).map(Single)),
    (pa.bool_(), st.booleans()),
    (pa.int8(), st.integers(-128, 127)),
    (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    (pa.decimal128(9, 2), st.integers(-(10**9) + 1, 10**9 - 1).map(lambda n: Decimal(n).scaleb(-2))),
    (pa.string(), st.text(max_size=3)),
    (pa.binary(), st.binary(max_size=3)),
    (pa.date32(), st.dates(date(1800, 1, 1), date(2200, 1, 1))),
    (pa.time64("us"), st.times()),
    (pa.timestamp("us"), st.datetimes(datetime(1800, 1, 1), datetime(2200, 1, 1))),
    (
        pa.timestamp("us", tz="UTC"),
        st.datetimes(datetime(1800, 1, 1), datetime(2200, 1, 1), timezones=st.just(UTC)),
    ),
]
Shape = tuple[pa.DataType, st.SearchStrategy[Any]]


def _list(inner: Shape) -> Shape:
    return pa.list_(inner[0]), st.lists(st.none() | inner[1], max_size=3)


def _struct(inner: Shape) -> Shape:
    return pa.struct([("a", inner[0]), ("b", pa.int32())]), st.fixed_dictionaries(
        {"a": st.none() | inner[1], "b": st.none() | st.integers(-9, 9)}
    )


def _map(inner: Shape) -> Shape:
    pairs = st.lists(st.tuples(st.text(max_size=2), st.none() | inner[1]), max_size=3, unique_by=lambda p: p[0])
    return pa.map_(pa.string(), inner[0]), pairs


def shapes() -> st.SearchStrategy[Shape]:
    def deeper(inner: st.SearchStrategy[Shape]) -> st.SearchStrategy[Shape]:
        return st.builds(lambda make, shape: make(shape), st.sampled_from([_list, _struct, _map]), inner)

    return st.recursive(st.sampled_from(LEAVES[:2]) | st.sampled_from(LEAVES), deeper, max_leaves=4)


def build(values: list[Any], kind: pa.DataType) -> pa.Array:
    """Arrow from values whose floats are bits, at every depth."""
    if pa.types.is_float64(kind) or pa.types.is_float32(kind):
        width, code = (8, "<Q") if pa.types.is_float64(kind) else (4, "<I")
        raw = b"".join(struct.pack(code, 0 if v is None else int(v)) for v in values)
        mask = np.array([v is None for v in values], np.bool_)
        return pa.array(np.frombuffer(raw, f"<f{width}"), kind, mask=mask, from_pandas=False)
    nulls = pa.array([v is None for v in values], pa.bool_())
    if pa.types.is_struct(kind):
        parts = [build([None if v is None else v[f.name] for v in values], f.type) for f in kind]
        return pa.StructArray.from_arrays(parts, fields=list(kind), mask=nulls)
    if pa.types.is_map(kind):
        pairs = [p for v in values for p in v or ()]
        keys, items = build([k for k, _ in pairs], kind.key_type), build([i for _, i in pairs], kind.item_type)
        return pa.MapArray.from_arrays(_offsets(values), keys, items)
    if pa.types.is_list(kind):
        return pa.ListArray.from_arrays(_offsets(values), build([e for v in values for e in v or ()], kind.value_type))
    return pa.array(values, kind)


def _offsets(values: list[Any]) -> pa.Array:
    """A null at a row's start makes the list null, as `from_arrays` has it."""
    starts, at = [], 0
    for value in values:
        starts.append(None if value is None else at)
        at += len(value or ())
    return pa.array([*starts, at], pa.int32())


def through_parquet(rows: pa.Table) -> pa.Table:
    sink = pa.BufferOutputStream()
    pq.write_table(rows, sink, store_schema=False)
    return pq.read_table(pa.BufferReader(sink.getvalue()))


def table(values: list[Any], kind: pa.DataType) -> pa.Table:
    return pa.table({"v": build(values, kind), OFFSET: pa.array(range(len(values)), pa.int64())})


@given(st.data())
def test_what_parquet_gives_back_holds_and_one_other_value_does_not(data: st.DataObject) -> None:
    kind, values_of = data.draw(shapes())
    values = data.draw(st.lists(st.none() | values_of, min_size=1, max_size=8))
    hot, lake = table(values, kind), through_parquet(table(values, kind))
    offsets, compared = altered_offsets(hot, lake, ["v"])
    assert (offsets.tolist(), compared) == ([], len(values))
    at = data.draw(st.integers(0, len(values) - 1))
    other = data.draw(st.none() | values_of)
    lake = through_parquet(table([*values[:at], other, *values[at + 1 :]], kind))
    assert altered_offsets(hot, lake, ["v"])[0].tolist() == ([] if as_jvm(other, values[at]) else [at])


def as_jvm(lake: Any, hot: Any) -> bool:
    """The same, but that a NaN may have become the canonical one."""
    if isinstance(hot, list | tuple) and isinstance(lake, list | tuple):
        return len(lake) == len(hot) and all(as_jvm(a, b) for a, b in zip(lake, hot, strict=True))
    if isinstance(hot, dict) and isinstance(lake, dict):
        return all(as_jvm(lake[k], hot[k]) for k in hot)
    if isinstance(hot, Double) and lake == 0x7FF8000000000000:
        return (hot >> 52) & 0x7FF == 0x7FF and hot & (2**52 - 1) != 0
    if isinstance(hot, Single) and lake == 0x7FC00000:
        return (hot >> 23) & 0xFF == 0xFF and hot & (2**23 - 1) != 0
    return type(lake) is type(hot) and bool(lake == hot)


@pytest.mark.parametrize("make", [lambda s: s, _list, _struct, _map, lambda s: _list(_struct(_map(s)))])
def test_floats_are_their_bits_at_every_depth(make: Any) -> None:
    kind, _ = make(LEAVES[0])

    def wrap(bits: int, shape: pa.DataType) -> Any:
        if pa.types.is_struct(shape):
            return {"a": wrap(bits, shape.field("a").type), "b": None}
        if pa.types.is_map(shape):
            return [("k", wrap(bits, shape.item_type))]
        return [wrap(bits, shape.value_type)] if pa.types.is_list(shape) else Double(bits)

    def altered(hot: int, lake: int) -> bool:
        return bool(len(altered_offsets(table([wrap(hot, kind)], kind), table([wrap(lake, kind)], kind), ["v"])[0]))

    nan, other, zero, negative = 0x7FF8000000000000, 0xFFF8000000000123, 0, 1 << 63
    assert not any(altered(bits, bits) for bits in (nan, other, zero, negative))
    assert altered(zero, negative)
    assert altered(nan, other)  # a payload that came from nowhere
    assert not altered(other, nan)  # what a JVM engine writes for any NaN


def test_a_value_that_the_hot_type_cannot_hold_is_altered_and_no_crash() -> None:
    hot = pa.table({"v": pa.array([1, 2], pa.int8()), OFFSET: pa.array([0, 1])})
    lake = pa.table({"v": pa.array([1, 300], pa.int32()), OFFSET: pa.array([0, 1])})
    assert altered_offsets(hot, lake, ["v"])[0].tolist() == [1]
    times = pa.table({"v": pa.array([time(1), time(2)], pa.time32("ms")), OFFSET: pa.array([0, 1])})
    finer = pa.table({"v": pa.array([time(1), time(2, 0, 0, 7)], pa.time64("us")), OFFSET: pa.array([0, 1])})
    assert altered_offsets(times, finer, ["v"])[0].tolist() == [1]
