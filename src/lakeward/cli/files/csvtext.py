# SPDX-License-Identifier: Apache-2.0
"""Text of CSV cells as a column's values, a column at a time; those that make no sense are named."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lakeward.cli.files.cellformat import CellFormat, DateOrder
from lakeward.cli.files.cellproblem import explain_cell
from lakeward.cli.files.problems import Fix, Problem
from lakeward.client.jsonvalues import plan_converter
from lakeward.model import cast_column, parse_number

_ERRORS = (pa.ArrowException, ValueError, TypeError, OverflowError)
_GROUPED_BY_POINTS = r"^[+-]?[1-9]\d{0,2}\.\d{3}$"
_DAY_FIRST = r"(?P<day>\d{1,2})[./-](?P<month>\d{1,2})[./-](?P<year>\d{4})(?P<rest>(?:[ T].*)?)"
_MONTH_FIRST = r"(?P<month>\d{1,2})[./-](?P<day>\d{1,2})[./-](?P<year>\d{4})(?P<rest>(?:[ T].*)?)"

Convert = Callable[[pa.Array], pa.Array]


@dataclass(frozen=True)
class BadCell:
    row: int
    value: str
    problem: Problem


def convert_cells(
    text: pa.Array, kind: pa.DataType, cells: CellFormat | None = None, *, is_comma_file: bool = False
) -> tuple[pa.Array, list[BadCell]]:
    """The values, null where a cell is bad, and the bad ones. `is_comma_file`: other numbers of the file have a decimal
    comma, so that 1.681 may be 1681."""
    if pa.types.is_string(kind):
        return text, []
    cells = cells or CellFormat()
    trimmed = text if pa.types.is_binary(kind) else _trimmed(text)  # a quoted empty cell is no bytes, not no value
    unclear = _unclear(trimmed) if is_comma_file and _is_fraction(kind) and not cells.is_known else None
    convert, is_well_formed = _plan(kind, cells)
    if unclear is None:
        try:
            return convert(trimmed), []
        except _ERRORS:
            unclear = pa.repeat(False, len(text))
    malformed = pc.and_not(pc.fill_null(pc.invert(is_well_formed(trimmed)), False), unclear)
    bad = [BadCell(row, value, _unclear_problem(value)) for row, value in _at(trimmed, unclear)]
    bad += [BadCell(row, v, explain_cell(v, kind, cells, ValueError("no"))) for row, v in _at(trimmed, malformed)]
    rest = pc.if_else(pc.or_(unclear, malformed), pa.scalar(None, pa.string()), trimmed)
    values = _by_halves(rest, 0, convert, kind, cells, bad)
    return values, sorted(bad, key=lambda cell: cell.row)


def _at(text: pa.Array, mask: pa.Array) -> Iterator[tuple[int, str]]:
    rows = pc.indices_nonzero(mask)
    return zip(rows.to_pylist(), text.take(rows).to_pylist(), strict=True)


def _by_halves(
    text: pa.Array, start: int, convert: Convert, kind: pa.DataType, cells: CellFormat, bad: list[BadCell]
) -> pa.Array:
    """A few bad cells among many cost a few conversions each."""
    try:
        return convert(text)
    except _ERRORS as error:
        if len(text) == 1:
            value = text[0].as_py()
            bad.append(BadCell(start, value, explain_cell(value, kind, cells, error)))
            return pa.nulls(1, kind)
    half = len(text) // 2
    parts = [
        _by_halves(text.slice(at, size), start + at, convert, kind, cells, bad)
        for at, size in ((0, half), (half, len(text) - half))
    ]
    return pa.concat_arrays(parts)


def _trimmed(text: pa.Array) -> pa.Array:
    """Blanks around a number or a date mean nothing, and neither does an empty text in its place."""
    cells = pc.utf8_trim_whitespace(text)
    return pc.if_else(pc.equal(cells, ""), pa.scalar(None, pa.string()), cells)


def _is_fraction(kind: pa.DataType) -> bool:
    return bool(pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def _unclear(cells: pa.Array) -> pa.Array | None:
    mask = pc.fill_null(pc.match_substring_regex(cells, _GROUPED_BY_POINTS), False)
    return mask if pc.any(mask).as_py() else None


def _unclear_problem(value: str) -> Problem:
    words = "the file's other numbers have a decimal comma, so it may mean thousands"
    return Problem(
        "numbers with a point, where other numbers of the file have a decimal comma",
        f"{value!r}: {words}",
        Fix(decimal=",", thousands="."),
    )


def _plan(kind: pa.DataType, cells: CellFormat) -> tuple[Convert, Convert]:
    """A function that converts cells, and a cheap one that finds those of many that are no values."""
    types = pa.types
    if types.is_boolean(kind):
        return lambda text: _booleans(text, cells), lambda text: _is_boolean(text, cells)
    if types.is_integer(kind) or _is_fraction(kind):
        pattern = number_pattern(cells, is_whole=types.is_integer(kind))
        return _plan_number(kind, cells, pattern), lambda text: pc.match_substring_regex(text, pattern)
    if (types.is_date(kind) or types.is_timestamp(kind)) and cells.date_format is None:
        return _plan_moment(kind, cells), lambda text: _is_date(text, cells)
    return _plan_others(kind, cells), lambda text: pa.repeat(True, len(text))


def _plan_others(kind: pa.DataType, cells: CellFormat) -> Convert:
    types = pa.types
    if types.is_date(kind) or types.is_timestamp(kind):
        date_format = cells.date_format or ""
        return lambda text: pa.array([_moment(v, kind, date_format) for v in text.to_pylist()], kind)
    if types.is_binary(kind) or types.is_fixed_size_binary(kind) or types.is_time(kind):
        one_text = plan_converter(kind)
        return lambda text: pa.array([one_text(v) for v in text.to_pylist()], kind)
    if types.is_nested(kind):
        one = plan_converter(kind)
        return lambda text: pa.array(
            [None if v is None else one(json.loads(v, parse_float=parse_number)) for v in text.to_pylist()], kind
        )
    return lambda text: pc.cast(text, kind)


# ---- numbers ---------------------------------------------------------------------------------------------------------
def _plan_number(kind: pa.DataType, cells: CellFormat, pattern: str) -> Convert:
    """Strict where a separator is known: 12.5 is no number where points separate thousands."""
    if cells.decimal == "." and not cells.thousands:
        return lambda text: cast_column(text, kind)

    def convert(text: pa.Array) -> pa.Array:
        if pc.any(pc.invert(pc.match_substring_regex(text, pattern))).as_py():
            raise ValueError("no number of this format")
        plain = pc.replace_substring_regex(text, _any_of(cells.thousands), "") if cells.thousands else text
        return cast_column(pc.replace_substring(plain, cells.decimal, "."), kind)

    return convert


def number_pattern(cells: CellFormat, *, is_whole: bool) -> str:
    """RE2's, of a whole cell."""
    groups = rf"|[1-9]\d{{0,2}}({_any_of(cells.thousands)}\d{{3}})+" if cells.thousands else ""
    if is_whole:
        return rf"^[+-]?(\d+{groups})$"
    fraction = rf"({re.escape(cells.decimal)}\d*)?"
    return (
        rf"^[+-]?((\d+{groups}){fraction}|{re.escape(cells.decimal)}\d+)([eE][+-]?\d+)?$|^[+-]?(?i:nan|inf|infinity)$"
    )


def _any_of(characters: str) -> str:
    return "[" + "".join(re.escape(c) for c in characters) + "]"


# ---- words -----------------------------------------------------------------------------------------------------------
def _booleans(text: pa.Array, cells: CellFormat) -> pa.Array:
    if not pc.all(_is_boolean(text, cells)).as_py():
        raise ValueError("no word for yes or no")
    is_true = pc.is_in(pc.utf8_lower(text), pa.array(cells.all_true_words))
    return pc.if_else(pc.is_null(text), pa.scalar(None, pa.bool_()), is_true)


def _is_boolean(text: pa.Array, cells: CellFormat) -> pa.Array:
    words = pa.array([*cells.all_true_words, *cells.all_false_words])
    return pc.or_(pc.is_in(pc.utf8_lower(text), words), pc.is_null(text))


# ---- dates -----------------------------------------------------------------------------------------------------------
def _plan_moment(kind: pa.DataType, cells: CellFormat) -> Convert:
    return lambda text: pc.cast(_year_first(text, cells), kind)


def _is_date(text: pa.Array, cells: CellFormat) -> pa.Array:
    return pc.match_substring_regex(_year_first(text, cells), r"^\d{4}-\d{2}-\d{2}")


def _year_first(text: pa.Array, cells: CellFormat) -> pa.Array:
    """31.1.2026 as 2026-01-31; what does not look like that stays as it is."""
    if cells.date_order is DateOrder.YEAR:
        return text
    pattern = _DAY_FIRST if cells.date_order is DateOrder.DAY else _MONTH_FIRST
    parts = pc.extract_regex(text, f"^{pattern}$")
    year, month, day, rest = (pc.struct_field(parts, name) for name in ("year", "month", "day", "rest"))
    padded = [pc.utf8_lpad(part, 2, "0") for part in (month, day)]
    dates = pc.binary_join_element_wise(year, *padded, "-")
    return pc.if_else(pc.is_valid(year), pc.binary_join_element_wise(dates, rest, ""), text)


def _moment(value: str | None, kind: pa.DataType, date_format: str) -> Any:
    """A format without a time takes one behind the date, as 14:05 or 14:05:09."""
    if value is None:
        return None
    if pa.types.is_timestamp(kind) and not re.search(r"%[HIcXs]", date_format):
        date, _, time = value.partition(" ")
        moment = datetime.strptime(date, date_format)
        if time:
            moment = datetime.combine(moment, datetime.fromisoformat(f"2000-01-01 {time}").timetz())
    else:
        moment = datetime.strptime(value, date_format)
    if pa.types.is_date(kind):
        return moment.date()
    if kind.tz is None:
        return moment.replace(tzinfo=None)
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
