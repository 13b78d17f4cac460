# SPDX-License-Identifier: Apache-2.0
"""Fluss's own bucket function, also for Lance: compacted key bytes, its Murmur3 variant, a second scramble."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from lakeward.bucketing.keybytes import KeyBytes, leb128
from lakeward.bucketing.murmur import Hashes, Tail, finish, hash_bytes, mix, rotate, scramble
from lakeward.bucketing.values import KeyColumn
from lakeward.model import DateType, DecimalType, Int32Type, Int64Type, TimeType

SEED = 42


def assign(columns: Sequence[KeyColumn], count: int) -> npt.NDArray[np.int32]:
    for column in columns:
        column.refuse_nulls("fluss")
    return to_buckets(_hash(columns), count)


def to_buckets(hashes: Hashes, count: int) -> npt.NDArray[np.int32]:
    """From the hash of the key bytes: scrambled once more as if it were one word, made positive, modulo."""
    again = rotate(scramble(hashes), 13)
    again = finish(again * np.uint32(5) + np.uint32(0xE6546B64), np.uint32(4)).view(np.int32)
    # The lowest int has no positive counterpart: it counts as 0.
    positive = np.where(again == np.iinfo(np.int32).min, 0, np.abs(again))
    return (positive % count).astype(np.int32)


def key_bytes(columns: Sequence[KeyColumn]) -> KeyBytes:
    """The compacted key: fields one after the other, no header."""
    first, *rest = (part for column in columns for part in _encode(column))
    return first.joined(rest) if rest else first


def _hash(columns: Sequence[KeyColumn]) -> Hashes:
    if len(columns) == 1 and isinstance(columns[0].type, Int32Type | Int64Type | DateType):
        return _hash_varints(_pattern(columns[0].longs(), is_long=isinstance(columns[0].type, Int64Type)))
    return hash_bytes(key_bytes(columns), SEED, Tail.SIGNED_BYTES)


def _encode(column: KeyColumn) -> list[KeyBytes]:
    if column.is_text or column.is_bytes:
        raw = column.raw_bytes()
        return [leb128(raw.lengths.astype(np.uint64)), raw]
    if column.is_timestamp:
        millis, nanos = column.millis_and_nanos()
        return [
            leb128(_pattern(millis, is_long=True)),
            *([leb128(_pattern(nanos, is_long=False))] if column.has_nanos else []),
        ]
    match column.type:
        case DecimalType() if column.is_wide_decimal:
            raw = column.unscaled_bytes()
            return [leb128(raw.lengths.astype(np.uint64)), raw]
        case DecimalType():
            return [leb128(_pattern(column.limbs()[0], is_long=True))]
        case TimeType():
            return [leb128(_pattern(column.time_in("ms"), is_long=False))]
        case Int32Type() | DateType():
            return [leb128(_pattern(column.longs(), is_long=False))]
        case Int64Type():
            return [leb128(_pattern(column.longs(), is_long=True))]
    plain = column.numbers()
    matrix = np.ascontiguousarray(plain).view(np.uint8).reshape(len(plain), plain.dtype.itemsize)
    return [KeyBytes.from_matrix(matrix, np.full(len(plain), plain.dtype.itemsize, np.int64))]


def _pattern(values: npt.NDArray[np.int64], *, is_long: bool) -> npt.NDArray[np.uint64]:
    """The bits of a Java long, or of a Java int without its sign extension."""
    return values.view(np.uint64) if is_long else values.astype(np.int32).view(np.uint32).astype(np.uint64)


def _hash_varints(values: npt.NDArray[np.uint64]) -> Hashes:
    """Hash of LEB128 bytes without laying them out: words and tail bytes are cut from the bits, per length."""
    hashes = np.empty(len(values), np.uint32)
    lengths = np.ones(len(values), np.uint8)
    for size in range(1, 10):
        lengths += values >= np.uint64(1 << (7 * size))
    for length in np.flatnonzero(np.bincount(lengths)).tolist():
        rows = np.flatnonzero(lengths == length)
        hashes[rows] = _hash_varints_of(values[rows] if len(rows) < len(values) else values, length)
    return hashes


def _hash_varints_of(values: npt.NDArray[np.uint64], length: int) -> Hashes:
    state = np.full(len(values), SEED, np.uint32)
    for word in range(length // 4):
        state = mix(state, _varint_word(values, 4 * word, length))
    for at in range(length // 4 * 4, length):
        more = 0x80 if at < length - 1 else 0
        byte = ((values >> np.uint64(7 * at)) & np.uint64(0x7F)).astype(np.uint8) | np.uint8(more)
        state = mix(state, byte.view(np.int8).astype(np.int32).view(np.uint32))
    return finish(state, np.uint32(length))


def _varint_word(values: npt.NDArray[np.uint64], at: int, length: int) -> Hashes:
    """Bytes `at` to `at + 3` as one little-endian word."""
    low = (values >> np.uint64(7 * at)).astype(np.uint32)
    word = low & np.uint32(0x7F)
    for position in range(1, 4):
        word |= (low & np.uint32(0x7F << (7 * position))) << np.uint32(position)
    more = sum(0x80 << (8 * i) for i in range(4) if at + i < length - 1)
    return word | np.uint32(more)
