# SPDX-License-Identifier: Apache-2.0
"""Hudi's bucket function: Java's hash of the list of the key's texts."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakeward.bucketing.javatext import TEXT_OF
from lakeward.bucketing.keybytes import KeyBytes
from lakeward.bucketing.murmur import Hashes
from lakeward.bucketing.values import KeyColumn, Longs
from lakeward.model import BooleanType, DateType, Int8Type, Int16Type, Int32Type, Int64Type, TimeType

_INTEGERS = (Int8Type, Int16Type, Int32Type, Int64Type, DateType)
_CHUNK = 10_000
"""Numbers are hashed four digits at a time, through tables of this size."""

_POWERS = np.array([pow(31, n, 1 << 32) for n in range(32)], np.uint32)
RESERVED = ("__null__", "__empty__")
SEPARATOR = ","


def assign(columns: Sequence[KeyColumn], count: int) -> npt.NDArray[np.int32]:
    if len(columns) > 1:
        for column in columns:
            _refuse_reserved(column)
    state = np.ones(len(columns[0]), np.uint32)
    for column in columns:
        state = state * np.uint32(31) + _hash_column(column, is_single=len(columns) == 1)
    return ((state & np.uint32(0x7FFFFFFF)) % np.uint32(count)).astype(np.int32)


def find_ambiguous(names: Sequence[str], columns: Sequence[pa.Array | pa.ChunkedArray]) -> tuple[int, str, str] | None:
    """The first key (row, column, reason) whose record key, a text, may be another key's as well: Hudi spells an empty
    text `__empty__`, and a key of several columns `a:1,b:2`. None: every key has its own text."""
    for i, (name, values) in enumerate(zip(names, columns, strict=True)):
        if not pa.types.is_string(values.type):
            continue
        bad, reason = pc.is_in(values, value_set=pa.array(RESERVED)), f"a Hudi key is not {' or '.join(RESERVED)}"
        if i + 1 < len(names) and not pc.any(bad).as_py():
            separator = f"{SEPARATOR}{names[i + 1]}:"
            bad = pc.match_substring(values, separator)
            reason = f"a Hudi key of several columns has no {separator!r} in this one, which begins the next"
        row = pc.index(bad, True).as_py()
        if row >= 0:
            return row, name, reason
    return None


def hash_text(text: str) -> int:
    """Java's String.hashCode as an unsigned number: over UTF-16 units."""
    units = np.frombuffer(text.encode("utf-16-le", "surrogatepass"), "<u2")
    state = 0
    for unit in units.tolist():
        state = (31 * state + unit) & 0xFFFFFFFF
    return state


def _hash_column(column: KeyColumn, *, is_single: bool) -> Hashes:
    if isinstance(column.type, _INTEGERS):
        hashes = _hash_longs(column.longs())
    elif isinstance(column.type, TimeType):
        hashes = _hash_longs(column.time_in("ms"))
    elif isinstance(column.type, BooleanType):
        hashes = np.where(column.numbers(), np.uint32(hash_text("true")), np.uint32(hash_text("false")))
    elif column.is_text:
        hashes = _hash_texts(column)
    else:
        hashes = _hash_each(column)
    if column.nulls is None:
        return hashes
    return np.where(column.nulls, np.uint32(hash_text(RESERVED[0]) if is_single else 0), hashes)


def _hash_longs(values: Longs) -> Hashes:
    """The hash of a number's decimal text, from its lowest digits up: sum of digit x 31^place."""
    rest = np.abs(values).view(np.uint64)
    hashes = np.zeros(len(values), np.uint32)
    digits = np.zeros(len(values), np.uint8)
    for place in range(0, 20, 4):
        higher = rest // np.uint64(_CHUNK)
        chunk = (rest - higher * np.uint64(_CHUNK)).astype(np.intp)
        is_top = (higher == 0) & (digits == 0)
        part = np.where(is_top, _LEADING[chunk], np.where(digits == 0, _PADDED[chunk], np.uint32(0)))
        hashes += part * _POWERS[place]
        digits += np.where(is_top, _DIGITS[chunk] + np.uint8(place), np.uint8(0))
        if not higher.any():
            break
        rest = higher
    return hashes + np.where(values < 0, np.uint32(ord("-")) * _POWERS[digits], np.uint32(0))


def _hash_texts(column: KeyColumn) -> Hashes:
    raw = column.raw_bytes()
    if len(raw.data) and (raw.data >= 0x80).any():
        return _hash_each(column)
    return _hash_ascii(raw)


def _hash_ascii(raw: KeyBytes) -> Hashes:
    """Longest first, so that each character position is one slice of those that reach it."""
    order = np.argsort(-raw.lengths, kind="stable")
    starts, lengths = raw.starts[order], raw.lengths[order]
    state = np.zeros(len(order), np.uint32)
    for at in range(int(lengths.max(initial=0))):
        reach = int(np.searchsorted(-lengths, -at, side="left"))
        state[:reach] = state[:reach] * np.uint32(31) + raw.data[starts[:reach] + at]
    hashes = np.empty_like(state)
    hashes[order] = state
    return hashes


def _hash_each(column: KeyColumn) -> Hashes:
    """Types without a fast path: each distinct value's text is made and hashed once."""
    encoded = column.values.dictionary_encode()
    to_text = TEXT_OF[type(column.type)]
    texts = to_text(KeyColumn(name=column.name, values=encoded.dictionary, type=column.type))
    table = np.array([hash_text(t) for t in texts] or [0], np.uint32)
    indices: npt.NDArray[np.int32] = pc.fill_null(encoded.indices, 0).to_numpy(zero_copy_only=False)
    return table[indices]


def _refuse_reserved(column: KeyColumn) -> None:
    """Hudi takes composite keys apart at commas and reads the reserved words as null and empty."""
    if not column.is_text:
        return
    bad = pc.or_(pc.match_substring(column.values, SEPARATOR), pc.is_in(column.values, value_set=pa.array(RESERVED)))
    reserved = pc.fill_null(bad, False).to_numpy(zero_copy_only=False)
    if reserved.any():
        column.refuse(
            int(reserved.argmax()),
            f"a composite hudi key has no {SEPARATOR!r} in it and is not {' or '.join(RESERVED)}",
        )


def _chunk_tables() -> tuple[Hashes, Hashes, npt.NDArray[np.uint8]]:
    """Per number below 10,000: the hash of its four digits, of its digits without leading zeros, and how many those
    are.
    """
    numbers = np.arange(_CHUNK)
    padded, leading = np.zeros(_CHUNK, np.uint32), np.zeros(_CHUNK, np.uint32)
    digits = np.maximum(1, (numbers >= 1) * 1 + (numbers >= 10) + (numbers >= 100) + (numbers >= 1000)).astype(np.uint8)
    for place in range(4):
        part = (numbers // 10**place % 10 + ord("0")).astype(np.uint32) * _POWERS[place]
        padded += part
        leading += np.where(place < digits, part, np.uint32(0))
    return padded, leading, digits


_PADDED, _LEADING, _DIGITS = _chunk_tables()
