# SPDX-License-Identifier: Apache-2.0
"""Text of CSV cells as a column's values, a column at a time; those that make no sense are named."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lakeward.cli.files.jsonvalues import plan_converter

_ERRORS = (pa.ArrowException, ValueError, TypeError, OverflowError)

_FINE = re.compile(r":\d\d\.\d{1,9}([zZ]|[+-]\d\d:?\d\d)?$")


@dataclass(frozen=True)
class BadCell:
    row: int
    value: str
    reason: str


def convert_cells(text: pa.Array, kind: pa.DataType, date_format: str | None = None) -> tuple[pa.Array, list[BadCell]]:
    """The values, null where a cell is bad, and the bad ones."""
    if pa.types.is_string(kind):
        return text, []
    convert = _plan(kind, date_format)
    cells = text if pa.types.is_binary(kind) else _trimmed(text)  # a quoted empty cell is no bytes, not no value
    try:
        return convert(cells), []
    except _ERRORS:
        return _one_by_one(cells, kind, convert)


def _one_by_one(
    cells: pa.Array, kind: pa.DataType, convert: Callable[[pa.Array], pa.Array]
) -> tuple[pa.Array, list[BadCell]]:
    parts, bad = [], []
    for row in range(len(cells)):
        try:
            parts.append(convert(cells.slice(row, 1)))
        except _ERRORS as error:
            value = cells[row].as_py()
            bad.append(BadCell(row, value, _why(value, kind, error)))
            parts.append(pa.nulls(1, kind))
    return pa.concat_arrays(parts), bad


def _trimmed(text: pa.Array) -> pa.Array:
    """Blanks around a number or a date mean nothing, and neither does an empty text in its place."""
    cells = pc.utf8_trim_whitespace(text)
    return pc.if_else(pc.equal(cells, ""), pa.scalar(None, pa.string()), cells)


def _plan(kind: pa.DataType, date_format: str | None) -> Callable[[pa.Array], pa.Array]:
    types = pa.types
    if date_format is not None and (types.is_date(kind) or types.is_timestamp(kind)):
        return lambda cells: pa.array([_moment(v, kind, date_format) for v in cells.to_pylist()], kind)
    if types.is_binary(kind) or types.is_fixed_size_binary(kind) or types.is_time(kind):
        text = plan_converter(kind)
        return lambda cells: pa.array([text(v) for v in cells.to_pylist()], kind)
    if types.is_nested(kind):
        one = plan_converter(kind)
        return lambda cells: pa.array(
            [None if v is None else one(json.loads(v, parse_float=Decimal)) for v in cells.to_pylist()], kind
        )
    return lambda cells: pc.cast(cells, kind)


def _moment(value: str | None, kind: pa.DataType, date_format: str) -> Any:
    if value is None:
        return None
    moment = datetime.strptime(value, date_format)
    if pa.types.is_date(kind):
        return moment.date()
    if kind.tz is None:
        return moment.replace(tzinfo=None)
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


def _why(value: str, kind: pa.DataType, error: Exception) -> str:
    if pa.types.is_timestamp(kind) and "zone" in str(error):
        zoned = kind.tz is not None
        return f"{value!r} " + (
            "has no zone; write it with one, as 2026-01-31T12:00:00Z" if zoned else "has a zone and the column has none"
        )
    if pa.types.is_timestamp(kind) and _FINE.search(value):
        return f"{value!r} is finer than the column, and would be cut; round it, or make the column one of 6 digits"
    words = "" if isinstance(error, pa.ArrowException) else f": {error}"
    return f"{value!r:.60} is no {_name(kind)}{words:.120}"


def _name(kind: pa.DataType) -> str:
    names = (
        (pa.types.is_integer, f"whole number that fits {kind}"),
        (pa.types.is_floating, "number"),
        (pa.types.is_decimal, f"decimal number that fits {kind}"),
        (pa.types.is_boolean, "boolean (true, false)"),
        (pa.types.is_date, "date (2026-01-31)"),
        (pa.types.is_time, "time (12:30:00)"),
        (pa.types.is_timestamp, "date and time (2026-01-31T12:30:00) of this precision"),
        (pa.types.is_fixed_size_list, f"list of {getattr(kind, 'list_size', 0)} numbers"),
    )
    return next((name for test, name in names if test(kind)), str(kind))
