# SPDX-License-Identifier: Apache-2.0
"""Finds nulls inside nested values where the type forbids them: Arrow keeps them without complaint, the lake
would not.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Mask = npt.NDArray[np.bool_]


def find_nested_null(column: pa.Array) -> int | None:
    """The first row with a null in a NOT NULL place below its top; None when there is none. Free for flat columns."""
    if not pa.types.is_nested(column.type):
        return None
    broken = _broken(column)
    return int(np.argmax(broken)) if broken.any() else None


def _broken(array: pa.Array) -> Mask:
    """For each value whether a null stands below it where none may."""
    if pa.types.is_struct(array.type):
        broken = np.zeros(len(array), np.bool_)
        for field, child in zip(array.type, array.flatten(), strict=True):
            broken |= _wrong(child, field)
        return broken & _valid(array)
    if pa.types.is_map(array.type):
        array = _as_lists(array)
    if pa.types.is_list(array.type):
        broken = np.zeros(len(array), np.bool_)
        wrong = _wrong(array.flatten(), array.type.value_field)
        broken[pc.list_parent_indices(array).to_numpy(zero_copy_only=False)[wrong]] = True
        return broken
    if pa.types.is_fixed_size_list(array.type):
        broken = np.zeros(len(array), np.bool_)
        wrong = ~_valid(array.flatten())  # a vector's elements are never null
        broken[_valid(array)] = wrong.reshape(-1, array.type.list_size).any(axis=1)
        return broken
    return np.zeros(len(array), np.bool_)


def _as_lists(maps: pa.MapArray) -> pa.ListArray:
    """Lists of entries; built by hand, as a cast fails on the very nulls that are looked for."""
    entries = pa.StructArray.from_arrays([maps.keys, maps.items], fields=[maps.type.key_field, maps.type.item_field])
    kind = pa.list_(pa.field("entry", entries.type, False))
    return pa.Array.from_buffers(kind, len(maps), maps.buffers()[:2], offset=maps.offset, children=[entries])


def _wrong(array: pa.Array, field: pa.Field) -> Mask:
    below = _broken(array)
    return below if field.nullable else below | ~_valid(array)


def _valid(array: pa.Array) -> Mask:
    valid: Mask = array.is_valid().to_numpy(zero_copy_only=False)
    return valid
