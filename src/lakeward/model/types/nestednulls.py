# SPDX-License-Identifier: Apache-2.0
"""Nulls inside nested values where the type forbids them: Arrow keeps them without complaint, a lake's file would not.

One under a null parent is no value: it may stand there and is taken out before rows are written to a file. Any other is
wrong.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakeward.model.types.decimals import cast_column

Mask = npt.NDArray[np.bool_]


def find_nested_null(column: pa.Array) -> int | None:
    """The first row with a null in a NOT NULL place below its top; None when there is none. Free for flat columns."""
    if not pa.types.is_nested(column.type):
        return None
    broken = _broken(column)
    return int(np.argmax(broken)) if broken.any() else None


def without_hidden_nulls(column: pa.Array) -> pa.Array:
    """The same values, with no null under a null parent where the type says NOT NULL: writers of files count nulls and
    do not look at parents. The column passes `find_nested_null`. Free where nothing below the top is NOT NULL."""
    return _without_hidden(column, is_nullable=True) if _is_strict(column.type) else column


def cast_values(
    column: pa.Array | pa.ChunkedArray, kind: pa.DataType, *, safe: bool = True
) -> pa.Array | pa.ChunkedArray:
    """A cast that leaves alone what is below a null: Arrow's own counts nulls there, and looks at values. A null in a
    NOT NULL place below the top stays. `safe`: as Arrow's. Raises `pa.ArrowInvalid`."""
    if column.type == kind:
        return column
    if isinstance(column, pa.ChunkedArray):
        return pa.chunked_array([cast_values(chunk, kind, safe=safe) for chunk in column.chunks], kind)
    if pa.types.is_struct(kind) and pa.types.is_struct(column.type) and _names(kind) == _names(column.type):
        return _cast_struct(column, kind, safe)
    is_map = pa.types.is_map(kind) and pa.types.is_map(column.type)
    if is_map or (pa.types.is_list(kind) and pa.types.is_list(column.type)):
        values = map_entries(column) if is_map else column.values
        inner = pa.struct([kind.key_field, kind.item_field]) if is_map else kind.value_type
        children = [_cast_struct(values, inner, safe) if is_map else cast_values(values, inner, safe=safe)]
        return pa.Array.from_buffers(kind, len(column), column.buffers()[:2], offset=column.offset, children=children)
    return cast_column(column, kind, safe=safe)


def _cast_struct(array: pa.StructArray, kind: pa.StructType, safe: bool) -> pa.StructArray:
    pairs = zip(kind, array.flatten(), strict=True)
    return struct_of(array, kind, [cast_values(values, field.type, safe=safe) for field, values in pairs])


def struct_of(array: pa.StructArray, kind: pa.StructType, parts: Sequence[pa.Array]) -> pa.StructArray:
    """A struct of these parts, null where `array` is."""
    valid, fitted = array.is_valid(), []
    for field, part in zip(kind, parts, strict=True):
        if not field.nullable and part.null_count and not pc.any(pc.and_(valid, part.is_null())).as_py():
            part = _without_hidden(part, is_nullable=False)
        fitted.append(part)
    return pa.StructArray.from_arrays(fitted, fields=list(kind), mask=array.is_null() if array.null_count else None)


def _names(kind: pa.StructType) -> list[str]:
    return [field.name for field in kind]


def _is_strict(kind: pa.DataType) -> bool:
    """Is anything below its top NOT NULL? A map's key is no reason: its entries are whole."""
    if pa.types.is_map(kind):
        fields = [kind.item_field]
    elif pa.types.is_struct(kind):
        fields = list(kind)
    else:
        fields = [kind.value_field] if pa.types.is_list(kind) else []
    return any(not f.nullable or _is_strict(f.type) for f in fields)


def _without_hidden(array: pa.Array, *, is_nullable: bool) -> pa.Array:
    kind = array.type
    if pa.types.is_struct(kind):
        pairs = [(array.field(i), kind.field(i).nullable) for i in range(kind.num_fields)]
        parts = [_without_hidden(child, is_nullable=nullable) for child, nullable in pairs]
        mask = array.is_null() if is_nullable and array.null_count else None
        return pa.StructArray.from_arrays(parts, fields=list(kind), mask=mask)
    has_validity = is_nullable or not array.null_count
    if pa.types.is_map(kind) or pa.types.is_list(kind):
        values = map_entries(array) if pa.types.is_map(kind) else array.values
        item = pa.field("entry", values.type, False) if pa.types.is_map(kind) else kind.value_field
        valid, offsets = array.buffers()[:2]
        buffers, inner = [valid if has_validity else None, offsets], _without_hidden(values, is_nullable=item.nullable)
        return pa.Array.from_buffers(kind, len(array), buffers, offset=array.offset, children=[inner])
    if has_validity or pa.types.is_nested(kind) or pa.types.is_dictionary(kind):
        return array
    return pa.Array.from_buffers(kind, len(array), [None, *array.buffers()[1:]], offset=array.offset)


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
        # not pc.list_parent_indices: unlike `flatten`, it counts the elements that a null list may have
        lengths = pc.fill_null(pc.list_value_length(array), 0).to_numpy(zero_copy_only=False)
        broken[np.repeat(np.arange(len(array)), lengths)[wrong]] = True
        return broken
    if pa.types.is_fixed_size_list(array.type):
        broken = np.zeros(len(array), np.bool_)
        wrong = ~_valid(array.flatten())  # a vector's elements are never null
        broken[_valid(array)] = wrong.reshape(-1, array.type.list_size).any(axis=1)
        return broken
    return np.zeros(len(array), np.bool_)


def _as_lists(maps: pa.MapArray) -> pa.ListArray:
    """Lists of entries; built by hand, as a cast fails on the very nulls that are looked for."""
    entries = map_entries(maps)
    kind = pa.list_(pa.field("entry", entries.type, False))
    return pa.Array.from_buffers(kind, len(maps), maps.buffers()[:2], offset=maps.offset, children=[entries])


def map_entries(maps: pa.MapArray) -> pa.StructArray:
    return pa.StructArray.from_arrays([maps.keys, maps.items], fields=[maps.type.key_field, maps.type.item_field])


def _wrong(array: pa.Array, field: pa.Field) -> Mask:
    below = _broken(array)
    return below if field.nullable else below | ~_valid(array)


def _valid(array: pa.Array) -> Mask:
    valid: Mask = array.is_valid().to_numpy(zero_copy_only=False)
    return valid
