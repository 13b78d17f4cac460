# SPDX-License-Identifier: Apache-2.0
"""Nested values of compacted rows, and indexed rows, against an encoder written from Fluss's layouts."""

from __future__ import annotations

import struct
from decimal import Decimal
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from lakeward.hot.fluss.kv.kvrows import INDEXED, decode_rows
from lakeward.model import Column, parse_type
from lakeward.model import types as model
from tests.unit.hot.fluss.kv.test_kvrows import EPOCH, MILLISECOND, big, sized, varint

FIXED = {
    model.BooleanType: "<?",
    model.Int8Type: "<b",
    model.Int16Type: "<h",
    model.Int32Type: "<i",
    model.Int64Type: "<q",
    model.Float64Type: "<d",
}
NESTED = (
    "ROW<a INT, t ARRAY<STRING>, m MAP<STRING, DECIMAL(30, 2)>, s TIMESTAMP(6), deep ROW<b BOOLEAN, n ARRAY<SMALLINT>>>"
)
KIND = parse_type(NESTED)
TEXT = st.text(max_size=12)
MONEY = st.integers(-(10**29), 10**29).map(lambda n: Decimal(n).scaleb(-2))
STAMP = st.integers(-(10**14), 10**14).map(lambda n: EPOCH + n * MILLISECOND / 1000)
VALUES = st.fixed_dictionaries(
    {
        "a": st.none() | st.integers(-(2**31), 2**31 - 1),
        "t": st.none() | st.lists(st.none() | TEXT, max_size=40),
        "m": st.none() | st.lists(st.tuples(TEXT, st.none() | MONEY), max_size=5),
        "s": st.none() | STAMP,
        "deep": st.none()
        | st.fixed_dictionaries(
            {"b": st.none() | st.booleans(), "n": st.none() | st.lists(st.none() | st.integers(-(2**15), 2**15 - 1))}
        ),
    }
)


def nulls(values: list[Any], word: int = 1) -> bytes:
    bits = bytearray(-(-len(values) // (8 * word)) * word)
    for number, value in enumerate(values):
        if value is None:
            bits[number // 8] |= 1 << number % 8
    return bytes(bits)


def stamp(value: Any) -> tuple[int, int]:
    millis, rest = divmod(value - EPOCH, MILLISECOND)
    return millis, rest.microseconds * 1000


def body(value: Any, kind: model.DataType) -> bytes:
    """A value of variable size, without its size."""
    match kind:
        case model.StringType():
            return bytes(value.encode())
        case model.DecimalType():
            return big(int(value.scaleb(kind.scale)))
        case model.ArrayType():
            return array(value, kind.element)
        case model.MapType():
            keys = array([k for k, _ in value], kind.key)
            return struct.pack("<i", len(keys)) + keys + array([v for _, v in value], kind.value)
        case model.RowType():
            return compacted([value[f.name] for f in kind.fields], [f.type for f in kind.fields])
    raise AssertionError(kind)


def array(values: list[Any], kind: model.DataType) -> bytes:
    head = struct.pack("<i", len(values)) + nulls(values, 4)
    form = FIXED.get(type(kind))
    if form is not None:
        return head + b"".join(struct.pack(form, 0 if v is None else v) for v in values)
    slots, tail, start = [], b"", len(head) + 8 * len(values)
    for value in values:
        raw = b"" if value is None else body(value, kind)
        if isinstance(kind, model.StringType) and len(raw) <= 7:
            slots.append(raw.ljust(7, b"\0") + bytes([0x80 | len(raw)]))
        else:
            slots.append(struct.pack("<Q", (start + len(tail)) << 32 | len(raw)))
            tail += raw.ljust(-(-len(raw) // 8) * 8, b"\0")
    return head + b"".join(slots) + tail


def compacted(values: list[Any], kinds: list[model.DataType]) -> bytes:
    out = nulls(values)
    for value, kind in zip(values, kinds, strict=True):
        if value is None:
            continue
        if isinstance(kind, model.Int32Type):
            out += varint(value, 32)
        elif isinstance(kind, model.TimestampType):
            millis, nanos = stamp(value)
            out += varint(millis) + varint(nanos, 32)
        elif type(kind) in FIXED:
            out += struct.pack(FIXED[type(kind)], value)
        else:
            out += sized(body(value, kind))
    return out


@given(st.lists(st.none() | VALUES, min_size=1, max_size=5))
def test_nested_columns_of_compacted_rows(rows: list[Any]) -> None:
    columns = [
        Column(name="id", type=parse_type("BIGINT")),
        Column(name="x", type=KIND),
        Column(name="after", type=parse_type("STRING")),
    ]
    raw = [
        struct.pack("<h", 1)
        + nulls([0, row, ""])
        + varint(n)
        + (b"" if row is None else sized(body(row, KIND)))
        + sized(b"end")
        for n, row in enumerate(rows)
    ]
    found = decode_rows(raw, columns).to_pylist()
    assert [r["x"] for r in found] == rows
    assert [(r["id"], r["after"]) for r in found] == [(n, "end") for n in range(len(rows))]


INDEXED_KINDS = [
    "BIGINT",
    "STRING",
    "BOOLEAN",
    "DECIMAL(10, 2)",
    "DECIMAL(30, 2)",
    "TIMESTAMP(6)",
    "CHAR(5)",
    "TIMESTAMP(3)",
    "ARRAY<INT>",
]
INDEXED_ROWS = st.tuples(
    st.integers(-(2**63), 2**63 - 1),
    st.none() | TEXT,
    st.none() | st.booleans(),
    st.none() | st.integers(-(10**9), 10**9).map(lambda n: Decimal(n).scaleb(-2)),
    st.none() | MONEY,
    st.none() | STAMP,
    st.none() | st.text(st.sampled_from("abc"), max_size=5),
    st.none() | st.integers(-(10**12), 10**12).map(lambda n: EPOCH + n * MILLISECOND),
    st.none() | st.lists(st.none() | st.integers(-(2**31), 2**31 - 1), max_size=40),
)


def indexed(row: tuple[Any, ...]) -> bytes:
    number, word, flag, price, money, at, code, when, counts = row
    sizes, out = [], struct.pack("<q", number)
    for value, kind in (
        (word, "STRING"),
        (flag, ""),
        (price, ""),
        (money, "DECIMAL(30, 2)"),
        (at, ""),
        (code, ""),
        (when, ""),
        (counts, "ARRAY<INT>"),
    ):
        if value is None:
            continue
        if kind:
            raw = body(value, parse_type(kind))
            sizes.append(len(raw))
        elif value is flag:
            raw = bytes([value])
        elif value is price:
            raw = struct.pack("<q", int(value.scaleb(2)))
        elif value is at:
            raw = struct.pack("<qi", *stamp(value))
        elif value is when:
            raw = struct.pack("<q", stamp(value)[0])
        else:
            raw = value.encode().ljust(5, b"\0")
        out += raw
    return struct.pack("<h", 1) + nulls(list(row)) + struct.pack(f"<{len(sizes)}i", *sizes).ljust(12, b"\0") + out


@given(st.lists(INDEXED_ROWS, min_size=1, max_size=5))
def test_indexed_rows(rows: list[tuple[Any, ...]]) -> None:
    columns = [Column(name=f"c{n}", type=parse_type(kind)) for n, kind in enumerate(INDEXED_KINDS)]
    found = decode_rows([indexed(r) for r in rows], columns, INDEXED)
    assert [tuple(r.values()) for r in found.to_pylist()] == rows
