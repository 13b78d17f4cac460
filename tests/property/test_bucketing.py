# SPDX-License-Identifier: Apache-2.0
"""Every bucket function against a slow scalar reference, over random values of every key type."""

from __future__ import annotations

import struct
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lakeward.bucketing import assign
from lakeward.model import BucketFunction as F
from lakeward.model import parse_type, to_arrow_type

MASK = 0xFFFFFFFF


# ---- the reference: one value at a time, as the formats' descriptions say it -----------------------------------------
def rotl(x: int, bits: int) -> int:
    return (x << bits | x >> (32 - bits)) & MASK


def scramble(k: int) -> int:
    return rotl(k * 0xCC9E2D51 & MASK, 15) * 0x1B873593 & MASK


def mix(h: int, k: int) -> int:
    return (rotl(h ^ scramble(k), 13) * 5 + 0xE6546B64) & MASK


def fmix(h: int) -> int:
    h = (h ^ h >> 16) * 0x85EBCA6B & MASK
    h = (h ^ h >> 13) * 0xC2B2AE35 & MASK
    return h ^ h >> 16


def murmur(data: bytes, seed: int, *, standard: bool) -> int:
    h, whole = seed, len(data) // 4 * 4
    for at in range(0, whole, 4):
        h = mix(h, int.from_bytes(data[at : at + 4], "little"))
    if standard:
        h ^= scramble(int.from_bytes(data[whole:], "little")) if data[whole:] else 0
    else:
        for byte in data[whole:]:
            h = mix(h, (byte - 256 if byte > 127 else byte) & MASK)
    return fmix(h ^ len(data))


def signed(x: int) -> int:
    return x - (1 << 32) if x >> 31 else x


def leb(x: int) -> bytes:
    out = b""
    while x > 127:
        out += bytes([x & 127 | 128])
        x >>= 7
    return out + bytes([x])


def shortest(x: int) -> bytes:
    return x.to_bytes(((x if x >= 0 else ~x).bit_length()) // 8 + 1, "big", signed=True)


UNITS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}


def nanos(value: int, arrow: pa.DataType) -> int:
    return value * UNITS[arrow.unit]


def unscaled(value: Decimal, scale: int) -> int:
    sign, digits, exponent = value.as_tuple()
    assert exponent == -scale
    return (-1 if sign else 1) * int("".join(map(str, digits)))


def fluss_field(value: Any, sql: str) -> bytes:
    name, arrow = sql.split("(")[0], to_arrow_type(parse_type(sql))
    if name in ("INT", "DATE"):
        return leb(value & MASK)
    if name == "BIGINT":
        return leb(value & (1 << 64) - 1)
    if name == "TIME":
        return leb(nanos(value, arrow) // 10**6)
    if name in ("TIMESTAMP", "TIMESTAMP_LTZ"):
        millis, rest = divmod(nanos(value, arrow), 10**6)
        return leb(millis & (1 << 64) - 1) + (leb(rest) if int(sql[-2]) > 3 else b"")
    if name == "DECIMAL":
        number = unscaled(value, arrow.scale)
        raw = shortest(number)
        return leb(number & (1 << 64) - 1) if arrow.precision <= 18 else leb(len(raw)) + raw
    if name in ("STRING", "CHAR", "BYTES", "BINARY"):
        raw = value.encode() if isinstance(value, str) else value
        return leb(len(raw)) + raw
    return struct.pack(
        "<" + {"BOOLEAN": "?", "TINYINT": "b", "SMALLINT": "h", "FLOAT": "f", "DOUBLE": "d"}[name], value
    )


def fluss(row: tuple[Any, ...], sqls: list[str], count: int) -> int:
    h = murmur(b"".join(fluss_field(v, s) for v, s in zip(row, sqls, strict=True)), 42, standard=False)
    x = signed(fmix((rotl(scramble(h), 13) * 5 + 0xE6546B64) & MASK ^ 4))
    return (0 if x == -(1 << 31) else abs(x)) % count


def iceberg(row: tuple[Any, ...], sqls: list[str], count: int) -> int:
    ((value,), (sql,)) = row, sqls
    if value is None:
        return 0
    name, arrow = sql.split("(")[0], to_arrow_type(parse_type(sql))
    if name in ("STRING", "CHAR", "BYTES", "BINARY"):
        raw = value.encode() if isinstance(value, str) else value
    elif name == "DECIMAL":
        raw = shortest(unscaled(value, arrow.scale))
    elif name in ("TIME", "TIMESTAMP"):
        raw = struct.pack("<q", nanos(value, arrow) // 1000)
    else:
        raw = struct.pack("<q", value)
    return (murmur(raw, 0, standard=True) & 0x7FFFFFFF) % count


def paimon_row(row: tuple[Any, ...], sqls: list[str]) -> bytes:
    head = (len(row) + 71) // 64 * 8
    fixed, tail = bytearray(head + 8 * len(row)), bytearray()
    for i, (value, sql) in enumerate(zip(row, sqls, strict=True)):
        if value is None:
            fixed[(i + 8) // 8] |= 1 << (i + 8) % 8
            continue
        slot, extra = paimon_slot(value, sql, len(fixed) + len(tail))
        fixed[head + 8 * i : head + 8 * i + len(slot)] = slot
        tail += extra
    return bytes(fixed + tail)


def paimon_slot(value: Any, sql: str, cursor: int) -> tuple[bytes, bytes]:
    name, arrow = sql.split("(")[0], to_arrow_type(parse_type(sql))
    if name in ("STRING", "CHAR", "BYTES", "BINARY"):
        raw = value.encode() if isinstance(value, str) else value
        if len(raw) <= 7:
            return raw.ljust(7, b"\0") + bytes([0x80 | len(raw)]), b""
        return struct.pack("<II", len(raw), cursor), raw.ljust((len(raw) + 7) // 8 * 8, b"\0")
    if name == "DECIMAL":
        number = unscaled(value, arrow.scale)
        if arrow.precision <= 18:
            return struct.pack("<q", number), b""
        return struct.pack("<II", len(shortest(number)), cursor), shortest(number).ljust(16, b"\0")
    if name in ("TIMESTAMP", "TIMESTAMP_LTZ"):
        millis, rest = divmod(nanos(value, arrow), 10**6)
        return (
            (struct.pack("<II", rest, cursor), struct.pack("<q", millis))
            if int(sql[-2]) > 3
            else (struct.pack("<q", millis), b"")
        )
    if name == "TIME":
        return struct.pack("<i", nanos(value, arrow) // 10**6), b""
    code = {
        "BOOLEAN": "?",
        "TINYINT": "b",
        "SMALLINT": "h",
        "INT": "i",
        "DATE": "i",
        "BIGINT": "q",
        "FLOAT": "f",
        "DOUBLE": "d",
    }[name]
    return struct.pack("<" + code, value), b""


def paimon(row: tuple[Any, ...], sqls: list[str], count: int) -> int:
    return abs(signed(murmur(paimon_row(row, sqls), 42, standard=False))) % count


def java_hash(text: str) -> int:
    h, raw = 0, text.encode("utf-16-le")
    for at in range(0, len(raw), 2):
        h = (31 * h + int.from_bytes(raw[at : at + 2], "little")) & MASK
    return h


def hudi_text(value: Any, sql: str) -> str:
    name, arrow = sql.split("(")[0], to_arrow_type(parse_type(sql))
    if name == "BOOLEAN":
        return "true" if value else "false"
    if name == "TIME":
        return str(nanos(value, arrow) // 10**6)
    return format(value, "f") if name == "DECIMAL" else str(value)


def hudi(row: tuple[Any, ...], sqls: list[str], count: int) -> int:
    h = 1
    for value, sql in zip(row, sqls, strict=True):
        missing = java_hash("__null__") if len(row) == 1 else 0
        h = (31 * h + (missing if value is None else java_hash(hudi_text(value, sql)))) & MASK
    return (h & 0x7FFFFFFF) % count


# ---- values ----------------------------------------------------------------------------------------------------------
def decimals(precision: int, scale: int) -> st.SearchStrategy[Decimal]:
    top = 10**precision - 1
    return st.integers(-top, top).map(lambda n: exact(n, scale))


def exact(number: int, scale: int) -> Decimal:
    """Without the context's 28 digits."""
    return Decimal((int(number < 0), tuple(map(int, str(abs(number)))), -scale))


# Around the epoch and the byte limits as well as everywhere.
SMALL = st.integers(-70_000, 70_000)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "BOOLEAN": st.booleans(),
    "TINYINT": st.integers(-128, 127),
    "SMALLINT": st.integers(-(2**15), 2**15 - 1),
    "INT": SMALL | st.integers(-(2**31), 2**31 - 1),
    "BIGINT": SMALL
    | st.integers(-(2**63), 2**63 - 1)
    | st.sampled_from([10**n for n in range(19)] + [-(10**n) for n in range(19)]),
    "FLOAT": st.floats(width=32),
    "DOUBLE": st.floats(),
    "DECIMAL(9, 2)": decimals(9, 2),
    "DECIMAL(18, 0)": decimals(18, 0),
    "DECIMAL(38, 10)": decimals(38, 10) | SMALL.map(lambda n: exact(n, 10)),
    "CHAR(3)": st.text(max_size=3, alphabet=st.characters(codec="utf-8", exclude_characters=",")),
    "STRING": st.text(max_size=20, alphabet=st.characters(codec="utf-8", exclude_characters=","))
    | st.text("abc", max_size=9),
    "BINARY(5)": st.binary(min_size=5, max_size=5),
    "BYTES": st.binary(max_size=20),
    "DATE": SMALL | st.integers(-(2**31), 2**31 - 1),
    "TIME(0)": st.integers(0, 86_399),
    "TIME(3)": st.integers(0, 86_399_999),
    "TIME(9)": st.integers(0, 86_399_999_999_999),
    "TIMESTAMP(0)": SMALL,
    "TIMESTAMP(3)": SMALL | st.integers(-(2**50), 2**50),
    "TIMESTAMP(6)": SMALL | st.integers(-(2**60), 2**60),
    "TIMESTAMP_LTZ(9)": SMALL | st.integers(-(2**62), 2**62),
}
TEMPORAL = ("DATE", "TIME")
ICEBERG = [
    s for s in VALUES if s.split("(")[0] not in ("BOOLEAN", "TINYINT", "SMALLINT", "FLOAT", "DOUBLE", "TIMESTAMP_LTZ")
]
HUDI = [
    s for s in VALUES if s.split("(")[0] not in ("BINARY", "BYTES", "FLOAT", "DOUBLE", "TIMESTAMP", "TIMESTAMP_LTZ")
]


def to_arrow(values: list[Any], sql: str) -> pa.Array:
    wanted = to_arrow_type(parse_type(sql))
    if sql.startswith(TEMPORAL):
        return pa.array(values, pa.int32() if wanted.bit_width == 32 else pa.int64()).view(wanted)
    return pa.array(values, wanted)


@st.composite
def keys(draw: st.DrawFn, sqls: list[str], most: int, *, nulls: bool) -> tuple[list[str], list[tuple[Any, ...]]]:
    chosen = draw(st.lists(st.sampled_from(sqls), min_size=1, max_size=most))
    fields = [VALUES[s] | st.none() if nulls else VALUES[s] for s in chosen]
    return chosen, draw(st.lists(st.tuples(*fields), max_size=12))


def check(function: F, reference: Any, sqls: list[str], rows: list[tuple[Any, ...]], count: int) -> None:
    columns = [to_arrow([r[i] for r in rows], s) for i, s in enumerate(sqls)]
    found = assign(function, columns, [parse_type(s) for s in sqls], count).tolist()
    assert found == [reference(r, sqls, count) for r in rows]
    # The same rows in the middle of longer arrays, in chunks: offsets into Arrow's buffers must count.
    doubled = [pa.chunked_array([c, c]).combine_chunks() for c in columns]
    sliced = [pa.chunked_array([c.slice(len(rows) // 2, len(rows))]) for c in doubled]
    again = assign(function, sliced, [parse_type(s) for s in sqls], count).tolist()
    assert again == (found + found)[len(rows) // 2 : len(rows) // 2 + len(rows)]


COUNTS = st.integers(1, 10_000)


@given(keys(list(VALUES), 3, nulls=False), COUNTS)
def test_fluss(key: tuple[list[str], list[tuple[Any, ...]]], count: int) -> None:
    check(F.FLUSS, fluss, *key, count)


@given(keys(list(VALUES), 3, nulls=True), COUNTS)
@example((["STRING"], [("",), ("1234567",), ("12345678",), (None,)]), 7)
def test_paimon(key: tuple[list[str], list[tuple[Any, ...]]], count: int) -> None:
    check(F.PAIMON, paimon, *key, count)


@given(keys(ICEBERG, 1, nulls=True), COUNTS)
def test_iceberg(key: tuple[list[str], list[tuple[Any, ...]]], count: int) -> None:
    check(F.ICEBERG, iceberg, *key, count)


@given(keys(HUDI, 3, nulls=True), COUNTS)
@example((["BIGINT"], [(-(2**63),), (0,), (10_000,), (-10_000,), (2**63 - 1,)]), 1000)
def test_hudi(key: tuple[list[str], list[tuple[Any, ...]]], count: int) -> None:
    check(F.HUDI, hudi, *key, count)


@pytest.mark.parametrize("sql", ICEBERG)
def test_iceberg_equals_pyicebergs_transform(sql: str) -> None:
    transforms = pytest.importorskip("pyiceberg.transforms")
    types = pytest.importorskip("pyiceberg.types")
    arrow = to_arrow_type(parse_type(sql))
    theirs = {
        "INT": types.IntegerType(),
        "BIGINT": types.LongType(),
        "DATE": types.DateType(),
        "STRING": types.StringType(),
        "CHAR": types.StringType(),
        "BYTES": types.BinaryType(),
        "BINARY": types.BinaryType(),
        "TIME": types.TimeType(),
        "TIMESTAMP": types.TimestampType(),
    }
    name = sql.split("(")[0]
    kind = types.DecimalType(arrow.precision, arrow.scale) if name == "DECIMAL" else theirs[name]
    transform = transforms.BucketTransform(16).transform(kind)

    @given(VALUES[sql])
    def agree(value: Any) -> None:
        told = value
        if name in ("TIME", "TIMESTAMP"):
            told = nanos(value, arrow) // 1000
        found = assign(F.ICEBERG, [to_arrow([value], sql)], [parse_type(sql)], 16)
        assert found.tolist() == [transform(told)]

    agree()
