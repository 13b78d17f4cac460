# SPDX-License-Identifier: Apache-2.0
"""Iceberg's bucket transform: Murmur3 with seed 0 over one column's bytes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from lakeward.bucketing.murmur import Hashes, Tail, hash_bytes, hash_words
from lakeward.bucketing.values import KeyColumn, Longs
from lakeward.model import DecimalType, TimeType

SEED = 0


def assign(columns: Sequence[KeyColumn], count: int) -> npt.NDArray[np.int32]:
    """A null goes to bucket 0: the transform gives null for it, and the lake then lays rows out by `__bucket`."""
    (column,) = columns
    buckets = to_buckets(_hash(column), count)
    return buckets if column.nulls is None else np.where(column.nulls, np.int32(0), buckets)


def to_buckets(hashes: Hashes, count: int) -> npt.NDArray[np.int32]:
    return ((hashes & np.uint32(0x7FFFFFFF)) % np.uint32(count)).astype(np.int32)


def _hash(column: KeyColumn) -> Hashes:
    if column.is_text or column.is_bytes:
        return hash_bytes(column.raw_bytes(), SEED, Tail.STANDARD)
    if isinstance(column.type, DecimalType):
        return hash_bytes(column.unscaled_bytes(), SEED, Tail.STANDARD)
    if isinstance(column.type, TimeType):
        return _hash_longs(column.time_in("us"))
    return _hash_longs(column.micros() if column.is_timestamp else column.longs())


def _hash_longs(values: Longs) -> Hashes:
    """Integers and dates hash as eight bytes, whatever their own width."""
    bits = values.view(np.uint64)
    return hash_words([bits.astype(np.uint32), (bits >> np.uint64(32)).astype(np.uint32)], SEED)
