# SPDX-License-Identifier: Apache-2.0
"""Turns JSON values into the values of a column: JSON has no dates, decimals or bytes."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import date, datetime, time
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from lakeward.model import parse_decimal

if TYPE_CHECKING:
    import pyarrow as pa

_TOO_FINE = re.compile(r"\.\d{7}")
"""Python's times end at microseconds; what is finer would be cut without a word."""

_NUMBERS = ("NaN", "Infinity", "-Infinity")

Convert = Callable[[Any], Any]


def plan_converter(kind: pa.DataType) -> Convert:
    """A function from a JSON value to a value of this type; null stays null. It raises `ValueError` for a value that
    the type does not have.

    Dates and times are ISO 8601 text, decimals text or numbers, bytes hexadecimal text, maps objects or lists of pairs.
    """
    convert = _plan(kind)
    return lambda value: None if value is None else convert(value)


def _plan(kind: pa.DataType) -> Convert:
    import pyarrow as pa

    types = pa.types
    if types.is_timestamp(kind):
        return lambda value: _moment(value, kind.tz is not None)
    if types.is_date(kind):
        return lambda value: date.fromisoformat(value) if isinstance(value, str) else value
    if types.is_time(kind):
        return lambda value: time.fromisoformat(_exact(value)) if isinstance(value, str) else value
    if types.is_decimal(kind):
        return _decimal
    if types.is_floating(kind):
        return lambda value: float(value) if isinstance(value, Decimal) or value in _NUMBERS else value
    if types.is_binary(kind) or types.is_fixed_size_binary(kind) or types.is_large_binary(kind):
        return lambda value: bytes.fromhex(value) if isinstance(value, str) else value
    return _plan_nested(kind)


def _plan_nested(kind: pa.DataType) -> Convert:
    import pyarrow as pa

    if pa.types.is_map(kind):
        key, item = plan_converter(kind.key_type), plan_converter(kind.item_type)
        numbered = pa.types.is_integer(kind.key_type)
        return lambda value: [
            (key(int(k) if numbered else k), item(v)) for k, v in (value.items() if isinstance(value, dict) else value)
        ]
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        one = plan_converter(kind.value_type)
        return lambda value: [one(v) for v in value] if isinstance(value, list) else value
    if pa.types.is_struct(kind):
        fields = {kind.field(i).name: plan_converter(kind.field(i).type) for i in range(kind.num_fields)}
        return lambda value: (
            {k: fields.get(k, _plain)(v) for k, v in value.items()} if isinstance(value, dict) else value
        )
    return _plain


def _plain(value: Any) -> Any:
    return float(value) if isinstance(value, Decimal) else value


def _moment(value: Any, zoned: bool) -> Any:
    if not isinstance(value, str):
        return value
    moment = datetime.fromisoformat(_exact(value))
    if zoned and moment.tzinfo is None:
        raise ValueError(f"{value!r} has no zone; write it with one, as 2026-01-31T12:00:00Z")
    if not zoned and moment.tzinfo is not None:
        raise ValueError(f"{value!r} has a zone and the column has none")
    return moment


def _decimal(value: Any) -> Any:
    if isinstance(value, str):
        return parse_decimal(value)
    return Decimal(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _exact(text: str) -> str:
    if _TOO_FINE.search(text):
        raise ValueError(f"{text!r} is finer than microseconds; write such values from Parquet or Arrow")
    return text
