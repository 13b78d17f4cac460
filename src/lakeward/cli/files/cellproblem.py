# SPDX-License-Identifier: Apache-2.0
"""Explains why a CSV cell is no value of its column, and which option would make it one."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING

import pyarrow as pa

from lakeward.cli.files.cellformat import LOCALES, CellFormat, DateOrder
from lakeward.cli.files.problems import Fix, Problem

if TYPE_CHECKING:
    from collections.abc import Callable

NULL_WORDS = (
    "NULL", "null", "Null", "NA", "N/A", "n/a", "#N/A", "#NV", "None", "none", "nil", "-", "--", "\u2013", "\\N", "?",
    ".", "k.A.", "k. A.", "k.a.",
)  # fmt: skip
"""Written by programs and people for a value that is missing."""

TRUE_WORDS = frozenset(word for locale in LOCALES.values() for word in locale.all_true_words)
FALSE_WORDS = frozenset(word for locale in LOCALES.values() for word in locale.all_false_words)

_COMMA = re.compile(r"[+-]?\d+,\d*$")
_GROUPED_COMMA = re.compile(r"[+-]?\d{1,3}(\.\d{3})+,\d*$|[+-]?\d{1,3}(\.\d{3}){2,}$")
_SPACED_COMMA = re.compile(r"[+-]?\d{1,3}([ \u00a0\u202f\u2009]\d{3})+(,\d*)?$")
_POINT_GROUPS = re.compile(r"[+-]?[1-9]\d{0,2}(\.\d{3})+$")
_COMMA_GROUPS = re.compile(r"[+-]?[1-9]\d{0,2}(,\d{3})+(\.\d*)?$")
_POINT = re.compile(r"[+-]?\d*\.\d+$")
_NUMBER = re.compile(r"[+-]?\d*\.?\d+([eE][+-]?\d+)?$")
_DATE = re.compile(r"(\d{1,2})[./-](\d{1,2})[./-](\d{4}|\d{2})(?!\d)")
_FINE = re.compile(r":\d\d\.\d{1,9}([zZ]|[+-]\d\d:?\d\d)?$")


def explain_cell(value: str, kind: pa.DataType, cells: CellFormat, error: Exception) -> Problem:
    """Explains a cell that could not be converted to this type."""
    types = pa.types
    explainers: tuple[tuple[Callable[[pa.DataType], bool], Callable[..., Problem | None]], ...] = (
        (lambda t: types.is_integer(t) or types.is_floating(t) or types.is_decimal(t), _number),
        (types.is_boolean, _boolean),
        (lambda t: types.is_date(t) or types.is_timestamp(t), _moment),
    )
    for is_of, explain in explainers:
        if is_of(kind) and (problem := explain(value, kind, cells)) is not None:
            return problem
    if value in NULL_WORDS:
        return Problem(
            "words for a missing value", f"{value!r} is no {name_of(kind)}; it may mean NULL", Fix(null=value)
        )
    words = "" if isinstance(error, pa.ArrowException) or str(error).startswith("no ") else f": {error}"
    return Problem(f"no {name_of(kind)}", f"{value!r:.60} is no {name_of(kind)}{words:.120}")


def _number(value: str, kind: pa.DataType, cells: CellFormat) -> Problem | None:
    name, is_whole = name_of(kind), pa.types.is_integer(kind)
    if _COMMA_GROUPS.match(value) and (is_whole or "." in value or value.count(",") > 1):
        kind_words = "numbers with commas between thousands"
        return Problem(kind_words, f"{value!r} is no {name}", Fix(decimal=".", thousands=","))
    if _GROUPED_COMMA.match(value) or (is_whole and _POINT_GROUPS.match(value)):
        kind_words = "numbers with points between thousands"
        return Problem(kind_words, f"{value!r} is no {name}", Fix(decimal=",", thousands="."))
    if _SPACED_COMMA.match(value):
        sign = next(c for c in value if c in " \u00a0\u202f\u2009")
        kind_words = "numbers with spaces between thousands"
        return Problem(kind_words, f"{value!r} is no {name}", Fix(decimal=",", thousands=sign))
    if _COMMA.match(value) and not is_whole and cells.decimal != ",":
        return Problem("numbers with a decimal comma", f"{value!r} is no {name}", Fix(decimal=","))
    if _POINT_GROUPS.match(value) and cells.decimal == ",":
        return Problem("numbers with points between thousands", f"{value!r} is no {name}", Fix(thousands="."))
    if _POINT.match(value) and cells.decimal == "," and not is_whole:
        words = f"{value!r} has a decimal point, and the file's numbers have a comma"
        return Problem("numbers with a decimal point", words, Fix(words="write them all with one decimal sign"))
    if _NUMBER.match(value) and (pa.types.is_decimal(kind) or is_whole):
        words = f"{value!r:.60} is no {name}"
        return Problem(f"no {name}", words, Fix(words="a wider column type takes it"))
    return None


def _boolean(value: str, _: pa.DataType, __: CellFormat) -> Problem | None:
    lowered, words = value.lower(), f"{value!r} is no {name_of(pa.bool_())}"
    if lowered in FALSE_WORDS:  # `n` of a locale is a word for no in every file
        return Problem("words for yes and no", words, Fix(false_word=lowered))
    if lowered in TRUE_WORDS:
        return Problem("words for yes and no", words, Fix(true_word=lowered))
    if value in NULL_WORDS:
        return None
    return Problem("words for yes and no", words, Fix(words="--true WORD and --false WORD name words of the file"))


def _moment(value: str, kind: pa.DataType, cells: CellFormat) -> Problem | None:
    if pa.types.is_timestamp(kind) and (zone := _zone_problem(value, kind)):
        return zone
    if pa.types.is_timestamp(kind) and _FINE.search(value):
        words = f"{value!r} is finer than the column, and would be cut; round it, or make the column one of 6 digits"
        return Problem("moments finer than the column, which would cut them", words)
    written = _DATE.match(value)
    if written is None or cells.date_format is not None:
        return None
    first, second, year = written.groups()
    reason = f"{value!r} is no {name_of(kind)}"
    if len(year) == 2:
        order = "%d" + value[len(first)] + "%m" if int(first) > 12 or "." in value else "%m/%d"
        fix = Fix(date_format=f"{order}{value[written.start(3) - 1]}%y")
        return Problem("dates with a year of two digits", reason, fix)
    if int(first) > 12 or (value[len(first)] == "." and int(second) <= 12):
        is_known = cells.date_order is DateOrder.DAY
        return None if is_known else Problem("dates with the day first", reason, Fix(date_order=DateOrder.DAY))
    if int(second) > 12:
        is_known = cells.date_order is DateOrder.MONTH
        return None if is_known else Problem("dates with the month first", reason, Fix(date_order=DateOrder.MONTH))
    if cells.date_order is not DateOrder.YEAR:
        return None
    words = "--date-order day or --date-order month says which comes first"
    return Problem("dates with the year last", reason, Fix(words=words))


def _zone_problem(value: str, kind: pa.DataType) -> Problem | None:
    has_zone = re.search(r"\d\d:\d\d.*([zZ]|[+-]\d\d(:?\d\d)?)$", value) is not None
    if not re.match(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d", value) or has_zone == (kind.tz is not None):
        return None
    if has_zone:
        return Problem(
            "moments with a zone, where the column has none", f"{value!r} has a zone and the column has none"
        )
    reason = f"{value!r} has no zone; write it with one, as 2026-01-31T12:00:00Z"
    return Problem("moments without a zone, where the column needs one", reason)


@lru_cache(maxsize=1000)
def name_of(kind: pa.DataType) -> str:
    """A type in the words of people who write tables."""
    from lakeward.model import from_arrow_field

    sql = str(from_arrow_field(pa.field("value", kind))) if not pa.types.is_nested(kind) else ""
    names = (
        (pa.types.is_integer, f"whole number that fits {sql}"),
        (pa.types.is_floating, "number"),
        (pa.types.is_decimal, f"decimal number that fits {sql}"),
        (pa.types.is_boolean, "boolean (true, false)"),
        (pa.types.is_date, "date (2026-01-31)"),
        (pa.types.is_time, "time (12:30:00)"),
        (pa.types.is_timestamp, "date and time (2026-01-31T12:30:00) of this precision"),
        (pa.types.is_fixed_size_list, f"list of {getattr(kind, 'list_size', 0)} numbers"),
        (pa.types.is_map, "map in JSON"),
        (pa.types.is_list, "list in JSON"),
        (pa.types.is_struct, "row in JSON"),
    )
    return next((name for test, name in names if test(kind)), f"value of type {sql}")
