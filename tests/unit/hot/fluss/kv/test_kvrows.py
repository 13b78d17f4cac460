# SPDX-License-Identifier: Apache-2.0
"""Compacted rows, many at once, against an encoder that goes row by row."""

from __future__ import annotations

import datetime as dt
import struct
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakeward.errors import CorruptBatch
from lakeward.hot.fluss.kv.kvrows import decode_rows, schema_ids, without_tags
from lakeward.model import Column, parse_type

EPOCH = dt.datetime(1970, 1, 1)
MILLISECOND = dt.timedelta(milliseconds=1)


def varint(value: int, bits: int = 64) -> bytes:
    value %= 1 << bits
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def sized(raw: bytes) -> bytes:
    return varint(len(raw), 32) + raw


def big(value: int) -> bytes:
    return value.to_bytes((value + (value < 0)).bit_length() // 8 + 1, "big", signed=True)


def micros(value: dt.datetime) -> bytes:
    millis, rest = divmod(value - EPOCH, MILLISECOND)
    return varint(millis) + varint(rest.microseconds * 1000, 32)


KINDS: dict[str, tuple[st.SearchStrategy[Any], Any]] = {
    "BOOLEAN": (st.booleans(), lambda v: bytes([v])),
    "TINYINT": (st.integers(-128, 127), lambda v: struct.pack("b", v)),
    "SMALLINT": (st.integers(-(2**15), 2**15 - 1), lambda v: struct.pack("<h", v)),
    "INT": (st.integers(-(2**31), 2**31 - 1), lambda v: varint(v, 32)),
    "BIGINT": (st.integers(-(2**63), 2**63 - 1), varint),
    "FLOAT": (st.floats(width=32, allow_nan=False), lambda v: struct.pack("<f", v)),
    "DOUBLE": (st.floats(allow_nan=False), lambda v: struct.pack("<d", v)),
    "STRING": (st.text(max_size=40), lambda v: sized(v.encode())),
    "BYTES": (st.binary(max_size=200), sized),
    "BINARY(3)": (st.binary(min_size=3, max_size=3), sized),
    "DATE": (st.dates(), lambda v: varint((v - EPOCH.date()).days, 32)),
    "DECIMAL(18, 2)": (st.decimals(-(10**15), 10**15, places=2), lambda v: varint(int(v.scaleb(2)))),
    "DECIMAL(38, 4)": (
        st.integers(-(10**38) + 1, 10**38 - 1).map(lambda n: Decimal(f"{n}E-4")),
        lambda v: sized(big(int(f"{v:f}".replace(".", "")))),
    ),
    "TIMESTAMP(3)": (
        st.integers(-(10**13), 10**13).map(lambda n: EPOCH + n * MILLISECOND),
        lambda v: varint((v - EPOCH) // MILLISECOND),
    ),
    "TIMESTAMP(6)": (st.datetimes(dt.datetime(1900, 1, 1), dt.datetime(2200, 1, 1)), micros),
}
NAMES = list(KINDS)
COLUMNS = [Column(name=f"c{n}", type=parse_type(kind)) for n, kind in enumerate(NAMES)]


def encode_row(row: list[Any], schema_id: int = 1) -> bytes:
    nulls = bytearray((len(row) + 7) // 8)
    for number, value in enumerate(row):
        if value is None:
            nulls[number // 8] |= 1 << number % 8
    fields = b"".join(KINDS[NAMES[n]][1](v) for n, v in enumerate(row) if v is not None)
    return struct.pack("<h", schema_id) + bytes(nulls) + fields


ROWS = st.lists(st.tuples(*(st.none() | values for values, _ in KINDS.values())).map(list), min_size=1, max_size=20)


@given(ROWS)
def test_every_type_reads_back(rows: list[list[Any]]) -> None:
    found = decode_rows([encode_row(r) for r in rows], COLUMNS)
    assert [list(r.values()) for r in found.to_pylist()] == rows


def test_a_row_that_ends_elsewhere_is_corrupt() -> None:
    whole = encode_row([None] * len(NAMES))
    with pytest.raises(CorruptBatch):
        decode_rows([whole, whole + b"x"], COLUMNS)


def test_schema_ids_of_mixed_values() -> None:
    values = [encode_row([None] * len(NAMES), i) for i in (1, 2, 1, 300)]
    assert schema_ids(values).tolist() == [1, 2, 1, 300]


TAGGED = [
    "0000019a910adefb0300000705736576656e000000000000e03f",
    "0000019a910adefb030006ffffffffffffffffff01",
    "0000019a910adefb030000808080808020086772c3b6c39f657200000000000002c0",
]
"""Values of layout 2 as the released client of Fluss 1.0.0 encodes them: BIGINT NOT NULL, STRING, DOUBLE; schema 3."""


def test_values_with_a_tag_are_read_like_those_without() -> None:
    columns = [
        Column(name=name, type=parse_type(kind)) for name, kind in (("a", "BIGINT"), ("b", "STRING"), ("c", "DOUBLE"))
    ]
    values = without_tags([bytes.fromhex(text) for text in TAGGED], "2")
    assert schema_ids(values).tolist() == [3, 3, 3]
    assert [list(row.values()) for row in decode_rows(values, columns).to_pylist()] == [
        [7, "seven", 0.5],
        [-1, None, None],
        [1 << 40, "größer", -2.25],
    ]
    assert without_tags(values, "1") == values
