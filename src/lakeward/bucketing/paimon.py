# SPDX-License-Identifier: Apache-2.0
"""Paimon's bucket function: the key columns as a Paimon BinaryRow, its Murmur3 variant, Java's remainder made
positive.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from lakeward.bucketing.keybytes import Bytes, Counts, KeyBytes
from lakeward.bucketing.murmur import Hashes, Tail, hash_bytes, hash_words
from lakeward.bucketing.values import KeyColumn
from lakeward.model import DecimalType, TimeType

SEED = 42
SLOT = 8
INLINE_BYTES = 7
"""Strings up to so many bytes lie in their slot."""

WIDE_DECIMAL_BYTES = 16


def assign(columns: Sequence[KeyColumn], count: int) -> npt.NDArray[np.int32]:
    return to_buckets(_hash(columns), count)


def to_buckets(hashes: Hashes, count: int) -> npt.NDArray[np.int32]:
    """Java's remainder has the sign of the hash; its absolute value is the remainder of the absolute value."""
    return (np.abs(hashes.view(np.int32).astype(np.int64)) % count).astype(np.int32)


def row_bytes(columns: Sequence[KeyColumn]) -> KeyBytes:
    """The BinaryRow: null bits, a slot of eight bytes per field, then what does not fit into a slot."""
    head = (len(columns) + 71) // 64 * 8
    rows = len(columns[0])
    fixed = np.zeros((rows, head + SLOT * len(columns)), np.uint8)
    cursor = np.full(rows, fixed.shape[1], np.int64)
    tails: list[KeyBytes] = []
    for index, column in enumerate(columns):
        slot = fixed[:, head + SLOT * index : head + SLOT * (index + 1)]
        tail = _fill_slot(column, slot, cursor)
        if column.nulls is not None:
            slot[column.nulls] = 0
            bit = index + 8
            fixed[column.nulls, bit // 8] |= np.uint8(1 << (bit % 8))
        if tail is not None:
            tails.append(tail)
            cursor = cursor + tail.lengths
    fixed_bytes = KeyBytes.from_matrix(fixed, np.full(rows, fixed.shape[1], np.int64))
    return fixed_bytes.joined(tails) if tails else fixed_bytes


def _hash(columns: Sequence[KeyColumn]) -> Hashes:
    if len(columns) == 1 and columns[0].nulls is None:
        single = _single_slot(columns[0])
        if single is not None:
            zero = np.zeros(len(single), np.uint32)
            return hash_words([zero, zero, single.astype(np.uint32), (single >> np.uint64(32)).astype(np.uint32)], SEED)
    keys = row_bytes(columns)
    if keys.lengths.size and (keys.lengths == keys.lengths[0]).all():
        words = keys.data.reshape(len(keys.lengths), -1).view("<u4")
        return hash_words([np.ascontiguousarray(words[:, i]) for i in range(words.shape[1])], SEED)
    return hash_bytes(keys, SEED, Tail.SIGNED_BYTES)


def _single_slot(column: KeyColumn) -> npt.NDArray[np.uint64] | None:
    """The slot of a field that always fits into it, as a number; None for the other types."""
    if column.is_text or column.is_bytes or column.is_wide_decimal or column.has_nanos:
        return None
    if isinstance(column.type, DecimalType):
        return column.limbs()[0].view(np.uint64)
    if column.is_timestamp:
        return column.millis_and_nanos()[0].view(np.uint64)
    plain = column.time_in("ms").astype(np.int32) if isinstance(column.type, TimeType) else column.numbers()
    bits = np.ascontiguousarray(plain).view(f"u{plain.dtype.itemsize}")
    return bits.astype(np.uint64, copy=False)


def _fill_slot(column: KeyColumn, slot: Bytes, cursor: Counts) -> KeyBytes | None:
    """Writes a field's slot; returns its variable part, if the type has one."""
    single = _single_slot(column)
    if single is not None:
        slot[:] = _le_bytes(single)
        return None
    if column.has_nanos:
        millis, nanos = column.millis_and_nanos()
        slot[:] = _le_bytes(((cursor << 32) | nanos).view(np.uint64))
        return _present(
            column, KeyBytes.from_matrix(_le_bytes(millis.view(np.uint64)), np.full(len(millis), SLOT, np.int64))
        )
    if column.is_wide_decimal:
        raw = column.unscaled_bytes()
        slot[:] = _le_bytes(((cursor << 32) | raw.lengths).view(np.uint64))
        return _present(column, _padded(raw, np.full(len(column), WIDE_DECIMAL_BYTES, np.int64)))
    return _fill_text(column.raw_bytes(), slot, cursor)


def _fill_text(raw: KeyBytes, slot: Bytes, cursor: Counts) -> KeyBytes:
    """Short: in the slot, the length in its top byte. Long: padded to eight bytes behind the slots."""
    is_long = raw.lengths > INLINE_BYTES
    slot[:] = _le_bytes(((cursor << 32) | raw.lengths).view(np.uint64))
    slot[~is_long] = 0
    short = np.flatnonzero(~is_long)
    for at in range(INLINE_BYTES):
        rows = short[raw.lengths[short] > at]
        slot[rows, at] = raw.data[raw.starts[rows] + at]
    slot[short, INLINE_BYTES] = (0x80 | raw.lengths[short]).astype(np.uint8)
    long_texts = KeyBytes(raw.data, raw.starts, np.where(is_long, raw.lengths, 0))
    return _padded(long_texts, (long_texts.lengths + 7) // 8 * 8)


def _padded(raw: KeyBytes, lengths: Counts) -> KeyBytes:
    """Each row filled up with zeros to these lengths."""
    ends = np.cumsum(lengths)
    data = np.zeros(int(ends[-1]) if len(ends) else 0, np.uint8)
    raw.copy_to(data, ends - lengths)
    return KeyBytes(data, ends - lengths, lengths)


def _present(column: KeyColumn, tail: KeyBytes) -> KeyBytes:
    """A null has no variable part."""
    return tail if column.nulls is None else KeyBytes(tail.data, tail.starts, np.where(column.nulls, 0, tail.lengths))


def _le_bytes(values: npt.NDArray[np.uint64]) -> Bytes:
    return np.ascontiguousarray(values.astype("<u8")).view(np.uint8).reshape(-1, SLOT)
