# SPDX-License-Identifier: Apache-2.0
"""Row comparison: which rows of two batches with the same offsets differ, column by column."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakeward.model import OFFSET, Offsets, cast_values

Mask = npt.NDArray[np.bool_]
_CANONICAL_NAN = {2: 0x7E00, 4: 0x7FC00000, 8: 0x7FF8000000000000}


def altered_offsets(hot: pa.Table, lake: pa.Table, columns: list[str]) -> tuple[Offsets, int]:
    """Offsets present on both sides whose values differ, and how many rows were compared."""
    hot_rows, right = _unique(hot), _unique(lake)
    left_offsets, right_offsets = _offsets(hot_rows), _offsets(right)
    both, at_left, at_right = np.intersect1d(left_offsets, right_offsets, assume_unique=True, return_indices=True)
    if not len(both):
        return both.astype(np.int64), 0
    a, b = hot_rows.take(pa.array(at_left)), right.take(pa.array(at_right))
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


def _same(a: pa.Array, b: pa.Array) -> Mask:
    """Row by row, at every depth. Floats by their bits; lists and maps in their order."""
    a_null, b_null = _nulls(a), _nulls(b)
    kind = a.type
    if not pa.types.is_nested(kind):
        same = _same_values(a, b)
    elif pa.types.is_struct(kind):
        same, others = np.ones(len(a), np.bool_), b.flatten()
        for field, values in zip(kind, a.flatten(), strict=True):
            same &= _same(values, others[b.type.get_field_index(field.name)])
    else:
        same = _same_lists(a, b, ~a_null & ~b_null)
    matching: Mask = np.where(a_null | b_null, a_null & b_null, same)
    return matching


def _same_lists(a: pa.Array, b: pa.Array, valid: Mask) -> Mask:
    """Where both lists have the same length, compares their elements in one pass."""
    a_sizes, b_sizes = _sizes(a), _sizes(b)
    same: Mask = valid & (a_sizes == b_sizes)
    rows = np.flatnonzero(same)
    left, right = (_elements(x.take(pa.array(rows))) for x in (a, b))
    owners = np.repeat(rows, a_sizes[rows])
    for ours, theirs in zip(left, right, strict=True):
        same[owners[~_same(ours, theirs)]] = False
    return same


def _elements(lists: pa.Array) -> tuple[pa.Array, ...]:
    return (lists.keys, lists.items) if pa.types.is_map(lists.type) else (lists.flatten(),)


def _same_values(a: pa.Array, b: pa.Array) -> Mask:
    if a.type != b.type:
        a, b = _one_type(a, b)
    if pa.types.is_floating(a.type):
        return _same_bits(a, b)
    equal: Mask = pc.fill_null(pc.equal(a, b), False).to_numpy(zero_copy_only=False)
    return equal


def _one_type(a: pa.Array, b: pa.Array) -> tuple[pa.Array, pa.Array]:
    """The lake has one integer type where we have three, and microseconds for all times. A value of the lake that the
    hot store's type cannot hold was altered: then the wider type compares."""
    try:
        return a, cast_values(b, a.type)
    except pa.ArrowInvalid:
        return cast_values(a, b.type), b


def _same_bits(hot: pa.Array, lake: pa.Array) -> Mask:
    """-0.0 is not 0.0. A NaN keeps its payload in our files; engines on the JVM write the canonical NaN for any."""
    width = hot.type.bit_width // 8
    ours, theirs = (x.fill_null(0).to_numpy().view(f"<u{width}") for x in (hot, lake))
    same: Mask = (ours == theirs) | (np.isnan(ours.view(f"<f{width}")) & (theirs == _CANONICAL_NAN[width]))
    return same


def _nulls(values: pa.Array) -> Mask:
    mask: Mask = values.is_null().to_numpy(zero_copy_only=False)
    return mask


def _sizes(values: pa.Array) -> npt.NDArray[np.int64]:
    if pa.types.is_fixed_size_list(values.type):
        return np.full(len(values), values.type.list_size, np.int64)
    sizes: npt.NDArray[np.int64] = np.diff(values.offsets.to_numpy()).astype(np.int64)
    return sizes
