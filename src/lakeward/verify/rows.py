# SPDX-License-Identifier: Apache-2.0
"""Row comparison: which rows of two batches with the same offsets differ, column by column."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakeward.model.offsetset import Offsets
from lakeward.model.schema import OFFSET


def altered_offsets(hot: pa.Table, lake: pa.Table, columns: list[str]) -> tuple[Offsets, int]:
    """Offsets present on both sides whose values differ, and how many rows were compared."""
    left, right = _unique(hot), _unique(lake)
    left_offsets, right_offsets = _offsets(left), _offsets(right)
    both, at_left, at_right = np.intersect1d(left_offsets, right_offsets, assume_unique=True, return_indices=True)
    if not len(both):
        return both.astype(np.int64), 0
    a, b = left.take(pa.array(at_left)), right.take(pa.array(at_right))
    differs = np.zeros(len(both), np.bool_)
    for name in columns:
        differs |= ~_same(a.column(name).combine_chunks(), b.column(name).combine_chunks())
    return both[differs].astype(np.int64), len(both)


def _offsets(table: pa.Table) -> Offsets:
    values: Offsets = table.column(OFFSET).to_numpy()
    return values


def _unique(table: pa.Table) -> pa.Table:
    """First row of each offset: doubles are another finding's matter."""
    _, first = np.unique(_offsets(table), return_index=True)
    return table if len(first) == table.num_rows else table.take(pa.array(first))


def _same(a: pa.Array, b: pa.Array) -> npt.NDArray[np.bool_]:
    if a.type != b.type:
        b = pc.cast(b, a.type)
    if pa.types.is_nested(a.type):
        return np.array([x == y for x, y in zip(a.to_pylist(), b.to_pylist(), strict=True)], np.bool_)
    equal = pc.fill_null(pc.equal(a, b), False)
    equal = pc.or_(equal, pc.and_(pc.is_null(a), pc.is_null(b)))
    if pa.types.is_floating(a.type):
        nan = pc.and_(pc.fill_null(pc.is_nan(a), False), pc.fill_null(pc.is_nan(b), False))
        equal = pc.or_(equal, nan)
    mask: npt.NDArray[np.bool_] = equal.to_numpy(zero_copy_only=False)
    return mask
