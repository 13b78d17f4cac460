# SPDX-License-Identifier: Apache-2.0
"""Which Arrow types may stand for which: the same kind of value in another width or layout, never another kind."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pyarrow.types as pt

_Test = Callable[[pa.DataType], bool]


def is_text(kind: pa.DataType) -> bool:
    return bool(pt.is_string(kind) or pt.is_large_string(kind) or pt.is_string_view(kind))


def is_bytes(kind: pa.DataType) -> bool:
    return bool(
        pt.is_binary(kind) or pt.is_large_binary(kind) or pt.is_binary_view(kind) or pt.is_fixed_size_binary(kind)
    )


def is_array(kind: pa.DataType) -> bool:
    return bool(pt.is_list(kind) or pt.is_large_list(kind) or pt.is_fixed_size_list(kind))


def is_number(kind: pa.DataType) -> bool:
    return bool(pt.is_integer(kind) or pt.is_floating(kind))


_FITTING: tuple[tuple[_Test, _Test], ...] = (
    (pt.is_integer, pt.is_integer),
    (is_number, pt.is_floating),
    (pt.is_integer, pt.is_decimal),
    (pt.is_decimal, pt.is_decimal),
    (is_text, is_text),
    (is_bytes, is_bytes),
    (pt.is_date, pt.is_date32),
    (pt.is_time, pt.is_time),
)
"""(given, wanted). A cast of these is exact or fails: Arrow's casts are checked."""


def is_fitting(given: pa.DataType, wanted: pa.DataType) -> bool:
    if pt.is_null(given) or given == wanted:
        return True
    if pt.is_dictionary(given):
        return is_fitting(given.value_type, wanted)
    if pt.is_timestamp(given) and pt.is_timestamp(wanted):
        return (given.tz is None) == (wanted.tz is None)
    if is_array(given) and is_array(wanted):
        return is_fitting(given.value_type, wanted.value_type)
    if pt.is_map(given) and pt.is_map(wanted):
        return is_fitting(given.key_type, wanted.key_type) and is_fitting(given.item_type, wanted.item_type)
    if pt.is_struct(given) and pt.is_struct(wanted):
        names = {f.name: f.type for f in given}
        return names.keys() <= {f.name for f in wanted} and all(
            is_fitting(names.get(f.name, pa.null()), f.type) for f in wanted
        )
    return any(from_(given) and to(wanted) for from_, to in _FITTING)


def in_microseconds(kind: pa.DataType) -> pa.DataType:
    """The type with every coarser time or timestamp in it made one of microseconds."""
    if pt.is_timestamp(kind) and kind.unit in ("s", "ms"):
        return pa.timestamp("us", tz=kind.tz)
    if pt.is_time32(kind):
        return pa.time64("us")
    if pt.is_list(kind):
        return pa.list_(_field_in_microseconds(kind.value_field))
    if pt.is_struct(kind):
        return pa.struct([_field_in_microseconds(f) for f in kind])
    if pt.is_map(kind):
        return pa.map_(_field_in_microseconds(kind.key_field), _field_in_microseconds(kind.item_field))
    return kind


def _field_in_microseconds(field: pa.Field) -> pa.Field:
    return field.with_type(in_microseconds(field.type))


def holds_map(kind: pa.DataType) -> bool:
    if pt.is_struct(kind):
        return any(holds_map(f.type) for f in kind)
    return bool(pt.is_map(kind)) or (is_array(kind) and holds_map(kind.value_type))


def holds_decimal(kind: pa.DataType) -> bool:
    if pt.is_struct(kind):
        return any(holds_decimal(f.type) for f in kind)
    if pt.is_map(kind):
        return holds_decimal(kind.key_type) or holds_decimal(kind.item_type)
    return bool(pt.is_decimal(kind)) or (is_array(kind) and holds_decimal(kind.value_type))
