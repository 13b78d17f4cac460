# SPDX-License-Identifier: Apache-2.0
"""64-bit hashes of whole rows, at every depth: equal rows have equal hashes whatever file or order they come in.

Rows are equal as in `changelog.rowdiff`: floats by their bits, except that all NaNs are one; lists and maps in their
order. A list's hash is a polynomial of its elements' hashes, modulo 2^64, so that a column takes a few numpy calls.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Hashes = npt.NDArray[np.uint64]

_NULL = np.uint64(0x9E3779B97F4A7C15)
_BASE, _COLUMN = 0xD1342543DE82EF95, np.uint64(0xA0761D6478BD642F)
_BASE_INVERSE = pow(_BASE, -1, 1 << 64)
_SMALL_INTS = {1: pa.uint8(), 32: pa.int32()}


def hash_rows(rows: pa.RecordBatch | pa.Table, names: list[str]) -> Hashes:
    """One for each row, of these columns."""
    hashes = np.zeros(rows.num_rows, np.uint64)
    for name in names:
        column = rows.column(name)
        values = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
        hashes = _mixed(hashes * _COLUMN + _hash(values))
    return hashes


def _hash(values: pa.Array) -> Hashes:
    if values.null_count == len(values):
        return np.full(len(values), _NULL, np.uint64)
    if not values.null_count:
        return _hash_valid(values)
    hashes = np.full(len(values), _NULL, np.uint64)
    hashes[values.is_valid().to_numpy(zero_copy_only=False)] = _hash_valid(values.drop_null())
    return hashes


def _hash_valid(values: pa.Array) -> Hashes:
    kind = values.type
    if pa.types.is_struct(kind):
        fields = values.flatten()
        return hash_rows(pa.Table.from_arrays(fields, [str(n) for n in range(len(fields))]), _numbers(len(fields)))
    if pa.types.is_map(kind):
        maps = values.take(pa.array(np.arange(len(values))))  # a slice's keys and items are those of the full array
        pairs = pa.Table.from_arrays([maps.keys, maps.items], _numbers(2))
        return _hash_lists(hash_rows(pairs, _numbers(2)), np.diff(maps.offsets.to_numpy()).astype(np.int64))
    if pa.types.is_fixed_size_list(kind):
        return _hash_lists(_hash(values.flatten()), np.full(len(values), kind.list_size, np.int64))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _hash_lists(_hash(values.flatten()), np.diff(values.offsets.to_numpy()).astype(np.int64))
    if pa.types.is_floating(kind):
        return _hash_floats(values)
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind) or pa.types.is_temporal(kind):
        small = _SMALL_INTS.get(kind.bit_width) if not pa.types.is_integer(kind) else None
        numbers = values if small is None else values.cast(small)
        return _mixed(numbers.cast(pa.int64(), safe=False).to_numpy(zero_copy_only=False).view(np.uint64))
    return _hash_bytes(values)


def _numbers(count: int) -> list[str]:
    return [str(n) for n in range(count)]


def _hash_floats(values: pa.Array) -> Hashes:
    numbers = values.cast(pa.float64()).to_numpy(zero_copy_only=False).copy()
    numbers[np.isnan(numbers)] = np.nan
    return _mixed(numbers.view(np.uint64))


def _hash_bytes(values: pa.Array) -> Hashes:
    """Text, bytes; a decimal by its text."""
    texts = values.cast(pa.string()) if pa.types.is_decimal(values.type) else values
    octets = texts.cast(pa.large_binary())
    offsets = np.frombuffer(octets.buffers()[1], np.int64)[octets.offset : octets.offset + len(octets) + 1]
    data = octets.buffers()[2]
    held = np.frombuffer(data, np.uint8)[offsets[0] : offsets[-1]] if data is not None else np.empty(0, np.uint8)
    return _hash_lists(_byte_words()[held], np.diff(offsets))


def _hash_lists(elements: Hashes, sizes: npt.NDArray[np.int64]) -> Hashes:
    """Hashes of consecutive runs of elements."""
    stops = np.cumsum(sizes)
    starts = stops - sizes
    powers = _powers(_BASE, len(elements))
    sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(elements * powers, dtype=np.uint64)])
    runs = (sums[stops] - sums[starts]) * _powers(_BASE_INVERSE, len(elements) + 1)[starts]
    return _mixed(runs + _mixed(sizes.astype(np.uint64)))


def _powers(base: int, count: int) -> Hashes:
    factors = np.full(count, base, np.uint64)
    if count:
        factors[0] = 1
    return np.cumprod(factors, dtype=np.uint64)


@cache
def _byte_words() -> Hashes:
    return _mixed(np.arange(1, 257, dtype=np.uint64))


def _mixed(words: Hashes) -> Hashes:
    """Spreads each bit over the word."""
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))
