# SPDX-License-Identifier: Apache-2.0
"""Decodes Fluss's binary rows, arrays and maps into Python values: nested columns of compacted rows, and complete
indexed rows.

Array: count i32 | null bits in words of 32 | elements of fixed width | variable part. An element of variable size is 8
bytes: offset (high half, from the array's start) and size, or, with the top bit set, up to 7 bytes in place. Map: size
of the key array i32 | key array | value array. Indexed row: null bits | i32 length of each non-null column of variable
size | the columns, plain. Times and dates stay numbers: Arrow takes them as they are."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

from lakeward.model import types as model

Kinds = Sequence[model.DataType]
ReadRow = Callable[[bytes, int, Kinds], list[Any]]
"""(data, where the row begins, its columns' types) -> its values."""

_COMPACT_DECIMAL = 18
_MILLIS = 3
_IN_PLACE = 1 << 63
_PLAIN: dict[type[model.DataType], struct.Struct] = {
    model.BooleanType: struct.Struct("<?"),
    model.Int8Type: struct.Struct("<b"),
    model.Int16Type: struct.Struct("<h"),
    model.Int32Type: struct.Struct("<i"),
    model.DateType: struct.Struct("<i"),
    model.TimeType: struct.Struct("<i"),
    model.Int64Type: struct.Struct("<q"),
    model.Float32Type: struct.Struct("<f"),
    model.Float64Type: struct.Struct("<d"),
}
_I32, _I64, _U64 = struct.Struct("<i"), struct.Struct("<q"), struct.Struct("<Q")
_STAMPS = (model.TimestampType, model.TimestampLtzType)
_VARINTS = (model.Int32Type, model.DateType, model.TimeType, model.Int64Type)
_TEXTS = (model.StringType, model.CharType)
NESTED = (model.ArrayType, model.MapType, model.RowType)


def read_nested(data: bytes, start: int, size: int, kind: model.DataType, read_row: ReadRow) -> Any:
    """A value of a nested type that takes up `size` bytes."""
    match kind:
        case model.ArrayType():
            return _read_array(data, start, kind.element, read_row)
        case model.MapType():
            keys = int(_I32.unpack_from(data, start)[0])
            key_values = _read_array(data, start + 4, kind.key, read_row)
            return list(zip(key_values, _read_array(data, start + 4 + keys, kind.value, read_row), strict=True))
        case model.RowType():
            values = read_row(data, start, [f.type for f in kind.fields])
            return dict(zip((f.name for f in kind.fields), values, strict=True))
    raise AssertionError(f"{kind} is not nested")


# ---- arrays ----------------------------------------------------------------------------------------------------------
def _read_array(data: bytes, start: int, kind: model.DataType, read_row: ReadRow) -> list[Any]:
    count = int(_I32.unpack_from(data, start)[0])
    first = start + 4 + (count + 31) // 32 * 4
    width = _PLAIN[type(kind)].size if type(kind) in _PLAIN else 8
    return [
        None if _is_null(data, start + 4, n) else _element(data, start, first + n * width, kind, read_row)
        for n in range(count)
    ]


def _element(data: bytes, start: int, at: int, kind: model.DataType, read_row: ReadRow) -> Any:
    plain = _PLAIN.get(type(kind))
    if plain is not None:
        return _number(kind, plain.unpack_from(data, at)[0])
    if isinstance(kind, model.DecimalType) and kind.precision <= _COMPACT_DECIMAL:
        return _decimal(_I64.unpack_from(data, at)[0], kind.scale)
    word = int(_U64.unpack_from(data, at)[0])
    if isinstance(kind, _STAMPS):
        signed = int(_I64.unpack_from(data, at)[0])
        if kind.precision <= _MILLIS:
            return _stamp(signed, 0, kind.precision)
        return _stamp(_I64.unpack_from(data, start + (word >> 32))[0], word & 0xFFFFFFFF, kind.precision)
    where, size = (at, (word >> 56) & 0x7F) if word & _IN_PLACE else (start + (word >> 32), word & 0xFFFFFFFF)
    return _sized(data, where, size, kind, read_row)


# ---- rows ------------------------------------------------------------------------------------------------------------
def read_compacted(data: bytes, start: int, kinds: Kinds) -> list[Any]:
    at, values = start + (len(kinds) + 7) // 8, []
    for number, kind in enumerate(kinds):
        value, at = (None, at) if _is_null(data, start, number) else _compacted(data, at, kind)
        values.append(value)
    return values


def _compacted(data: bytes, at: int, kind: model.DataType) -> tuple[Any, int]:
    """(the value, where the next one begins)."""
    if isinstance(kind, _VARINTS):
        number, at = _varint(data, at)
        bits = 64 if isinstance(kind, model.Int64Type) else 32
        return _number(kind, _signed(number, bits)), at
    if isinstance(kind, _STAMPS):
        millis, at = _varint(data, at)
        nanos, at = (0, at) if kind.precision <= _MILLIS else _varint(data, at)
        return _stamp(_signed(millis, 64), nanos, kind.precision), at
    plain = _PLAIN.get(type(kind))
    if plain is not None:
        return plain.unpack_from(data, at)[0], at + plain.size
    size, at = _varint(data, at)
    if isinstance(kind, model.DecimalType) and kind.precision <= _COMPACT_DECIMAL:
        return _decimal(_signed(size, 64), kind.scale), at
    return _sized(data, at, size, kind, read_compacted), at + size


def read_indexed(data: bytes, start: int, kinds: Kinds) -> list[Any]:
    lengths = start + (len(kinds) + 7) // 8
    at, values = lengths + 4 * sum(_indexed_size(k) is None for k in kinds), list[Any]()
    for number, kind in enumerate(kinds):
        if _is_null(data, start, number):
            values.append(None)
            continue
        size = _indexed_size(kind)
        if size is None:
            size, lengths = int(_I32.unpack_from(data, lengths)[0]), lengths + 4
        values.append(_indexed(data, at, size, kind))
        at += size
    return values


def _indexed_size(kind: model.DataType) -> int | None:
    """None: the row says it."""
    match kind:
        case model.DecimalType():
            return 8 if kind.precision <= _COMPACT_DECIMAL else None
        case model.TimestampType() | model.TimestampLtzType():
            return 8 if kind.precision <= _MILLIS else 12
        case model.CharType() | model.BinaryType():
            return kind.length
    plain = _PLAIN.get(type(kind))
    return None if plain is None else plain.size


def _indexed(data: bytes, at: int, size: int, kind: model.DataType) -> Any:
    plain = _PLAIN.get(type(kind))
    if plain is not None:
        return _number(kind, plain.unpack_from(data, at)[0])
    if isinstance(kind, _STAMPS):
        nanos = 0 if kind.precision <= _MILLIS else _I32.unpack_from(data, at + 8)[0]
        return _stamp(_I64.unpack_from(data, at)[0], nanos, kind.precision)
    if isinstance(kind, model.DecimalType) and kind.precision <= _COMPACT_DECIMAL:
        return _decimal(_I64.unpack_from(data, at)[0], kind.scale)
    if isinstance(kind, model.CharType):
        return data[at : at + size].rstrip(b"\0").decode()
    return _sized(data, at, size, kind, read_indexed)


# ---- values ----------------------------------------------------------------------------------------------------------
def _sized(data: bytes, at: int, size: int, kind: model.DataType, read_row: ReadRow) -> Any:
    if isinstance(kind, _TEXTS):
        return data[at : at + size].decode()
    if isinstance(kind, model.DecimalType):
        return _decimal(int.from_bytes(data[at : at + size], "big", signed=True), kind.scale)
    if isinstance(kind, NESTED):
        return read_nested(data, at, size, kind, read_row)
    return data[at : at + size]


def _is_null(data: bytes, bits: int, number: int) -> bool:
    return bool(data[bits + number // 8] >> (number % 8) & 1)


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at


def _signed(number: int, bits: int) -> int:
    number &= (1 << bits) - 1
    return number - (1 << bits) if number >> (bits - 1) else number


def _number(kind: model.DataType, value: Any) -> Any:
    """Times of day are milliseconds whatever the precision; Arrow's unit follows the precision."""
    if not isinstance(kind, model.TimeType):
        return value
    return _scaled(value, 0, kind.precision)


def _stamp(millis: int, nanos: int, precision: int) -> int:
    return _scaled(millis, nanos, precision)


def _scaled(millis: int, nanos: int, precision: int) -> int:
    """In the unit that Arrow has for the precision: s, ms, us or ns."""
    whole = millis * 1_000_000 + nanos
    if precision == 0:
        return whole // 1_000_000_000
    return whole // (1_000_000 if precision <= _MILLIS else 1_000 if precision <= 6 else 1)


def _decimal(unscaled: int, scale: int) -> Decimal:
    digits = tuple(int(c) for c in str(abs(unscaled)))
    return Decimal((int(unscaled < 0), digits, -scale))
