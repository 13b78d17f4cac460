# SPDX-License-Identifier: Apache-2.0
"""Columns, types and the way of writing of a CSV file of which nothing is known, from the shapes of its cells."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from lakeward.cli.files import csvshapes as shape
from lakeward.cli.files.cellformat import FALSE_WORDS, TRUE_WORDS, CellFormat, DateOrder
from lakeward.cli.files.csvshapes import Shapes, load_shapes
from lakeward.model import (
    BooleanType,
    Column,
    DataType,
    DateType,
    DecimalType,
    Float64Type,
    Int64Type,
    StringType,
    TimestampLtzType,
    TimestampType,
    TimeType,
)

_EXACT_DIGITS = 15
"""A double holds that many digits for sure."""

_MOST_DIGITS = 36
"""Of a number without a fraction in a column of two digits after the sign: DECIMAL has 38."""

MONEY = DecimalType(precision=18, scale=2)
"""For columns whose fractions all have two digits, and that a double holds as well. Longer ones take all 38 digits."""

_MICROSECONDS = 6
_TRIED_CELLS = 100

_BY_SHAPE: tuple[tuple[frozenset[str], DataType], ...] = (
    (frozenset((shape.ISO_DATE,)), DateType()),
    (frozenset((shape.ISO_DATE, shape.ISO_MOMENT)), TimestampType(precision=_MICROSECONDS)),
    (frozenset((shape.ISO_ZONED,)), TimestampLtzType(precision=_MICROSECONDS)),
    (frozenset((shape.TIME,)), TimeType(precision=_MICROSECONDS)),
)


@dataclass(frozen=True)
class Guess:
    """`texts`: columns that are text for a reason that people should know."""

    columns: tuple[Column, ...]
    cells: CellFormat
    texts: Mapping[str, str]
    notes: tuple[str, ...]

    def with_texts(self, texts: Mapping[str, str]) -> tuple[Column, ...]:
        return tuple(replace(c, type=StringType()) if c.name in texts else c for c in self.columns)


def guess_columns(connection: Any, cells: CellFormat) -> Guess:
    """Guesses the columns of the view `cells`, which are all text. Settings of `cells` are kept."""
    names = [row[0] for row in connection.execute("DESCRIBE cells").fetchall()]
    shapes = load_shapes(connection, "cells", names)
    cells, is_mixed = _with_numbers(cells, shapes.values())
    cells = _with_dates(cells, shapes.values())
    kinds = {name: _kind(connection, name, shapes[name], cells, is_mixed) for name in names}
    cells = _with_words(cells, [s for n, s in shapes.items() if isinstance(kinds[n], BooleanType)])
    texts = {n: why for n in names if kinds[n] is None and (why := _why_text(shapes[n], cells, is_mixed))}
    cells, kinds, held = _with_nulls(cells, shapes, kinds)
    columns = tuple(Column(name=name, type=kinds[name] or StringType()) for name in names)
    texts |= held | _inexact(connection, columns, cells)
    return Guess(columns, cells, texts, _notes(shapes, cells))


# ---- how they are written --------------------------------------------------------------------------------------------
def _with_numbers(cells: CellFormat, shapes: Iterable[Shapes]) -> tuple[CellFormat, bool]:
    """The second: some columns have a decimal comma, and others a point."""
    numbers = [s for s in shapes if s.is_within(shape.NUMBERS)]
    has_comma = any(s.has(*shape.COMMA_NUMBERS) for s in numbers)
    has_point = any(s.has(*shape.POINT_NUMBERS) for s in numbers)
    if cells.is_known or not (has_comma or has_point):
        return cells, False
    if has_comma and has_point:
        return cells, True
    groups = (shape.GROUPED_COMMA, shape.POINT_MANY, shape.ONE_POINT_GROUP)
    if has_point:
        groups = (shape.GROUPED_POINT, shape.COMMA_MANY, shape.ONE_COMMA_GROUP)
    is_grouped = any(s.has(*groups) for s in numbers)
    if has_point:
        return replace(cells, thousands="," if is_grouped else "", is_known=is_grouped), False
    return replace(cells, decimal=",", thousands="." if is_grouped else "", is_known=True), False


def _with_dates(cells: CellFormat, shapes: Iterable[Shapes]) -> CellFormat:
    if cells.date_order is not DateOrder.YEAR or cells.date_format is not None:
        return cells
    dates = [s for s in shapes if s.is_within(shape.DATES)]
    has_days, has_months = any(s.has(*shape.DAYS) for s in dates), any(s.has(*shape.MONTHS) for s in dates)
    if has_days == has_months:
        return cells
    return replace(cells, date_order=DateOrder.DAY if has_days else DateOrder.MONTH)


def _with_words(cells: CellFormat, columns: Iterable[Shapes]) -> CellFormat:
    for column in columns:
        more_true = sorted(column.true_words - {*TRUE_WORDS, *cells.true_words})
        more_false = sorted(column.false_words - {*FALSE_WORDS, *cells.false_words})
        cells = replace(
            cells,
            true_words=(*cells.true_words, *more_true),
            false_words=(*cells.false_words, *more_false),
        )
    return cells


def _with_nulls(
    cells: CellFormat, shapes: Mapping[str, Shapes], kinds: Mapping[str, DataType | None]
) -> tuple[CellFormat, dict[str, DataType | None], dict[str, str]]:
    """Words for NULL among numbers and the like are taken for that, unless text columns hold them too: they would be
    lost there."""
    in_text = {word: name for name, s in shapes.items() if kinds[name] is None for word in sorted(s.nulls)}
    nulls, decided, texts = list(cells.nulls), dict(kinds), dict[str, str]()
    for name, column in shapes.items():
        if kinds[name] is None:
            continue
        if lost := sorted(column.nulls & in_text.keys()):
            decided[name] = None
            word = lost[0]
            texts[name] = f"{word!r} stands in it; --null {word!r} makes it NULL, also in column {in_text[word]}"
        else:
            nulls += [word for word in sorted(column.nulls) if word not in nulls]
    return replace(cells, nulls=tuple(nulls)), decided, texts


# ---- what they are ---------------------------------------------------------------------------------------------------
def _kind(connection: Any, name: str, column: Shapes, cells: CellFormat, is_mixed: bool) -> DataType | None:
    """None: text."""
    if column.is_yes_or_no:
        return BooleanType()
    if column.is_within(_numbers(cells, is_mixed)):
        if not column.has(*_fractions(cells)) and _is_within_bigint(connection, name, column):
            return Int64Type()
        return _money(connection, name, column, cells) or Float64Type()
    for shapes, kind in _BY_SHAPE:
        if column.is_within(shapes):
            return kind
    if cells.date_format is not None:
        return _by_format(connection, name, cells.date_format)
    order = {DateOrder.DAY: shape.DAYS, DateOrder.MONTH: shape.MONTHS, DateOrder.YEAR: frozenset[str]()}
    dates = order[cells.date_order] | {shape.EITHER, shape.EITHER_TIME}
    if cells.date_order is not DateOrder.YEAR and column.is_within(dates):
        return TimestampType(precision=_MICROSECONDS) if column.has(*shape.TIMES) else DateType()
    return None


def _numbers(cells: CellFormat, is_mixed: bool) -> frozenset[str]:
    taken = {shape.WHOLE, shape.LONG, shape.NAN}
    if cells.decimal == ",":
        taken |= {shape.COMMA, shape.ONE_COMMA_GROUP}
        taken |= {shape.GROUPED_COMMA, shape.POINT_MANY, shape.ONE_POINT_GROUP} if "." in cells.thousands else set()
    else:
        taken |= {shape.POINT} | (set() if is_mixed else {shape.ONE_POINT_GROUP})
        taken |= {shape.GROUPED_POINT, shape.COMMA_MANY, shape.ONE_COMMA_GROUP} if "," in cells.thousands else set()
    is_otherwise_grouped = any(c not in ".," for c in cells.thousands)
    return frozenset(taken | ({shape.OTHER_GROUPS, shape.OTHER_GROUPS_FRACTION} if is_otherwise_grouped else set()))


def _fractions(cells: CellFormat) -> tuple[str, ...]:
    group = shape.ONE_COMMA_GROUP if cells.decimal == "," else shape.ONE_POINT_GROUP
    return (
        shape.COMMA,
        shape.GROUPED_COMMA,
        shape.POINT,
        shape.GROUPED_POINT,
        shape.OTHER_GROUPS_FRACTION,
        group,
        shape.NAN,
    )


def _is_within_bigint(connection: Any, name: str, column: Shapes) -> bool:
    if not column.has(shape.LONG):
        return True
    cell = _name(name)
    query = f"SELECT count(*) FROM cells WHERE trim({cell}) <> '' AND TRY_CAST({cell} AS BIGINT) IS NULL"  # noqa: S608 - quoted
    return bool(connection.execute(query).fetchone()[0] == 0)


def _money(connection: Any, name: str, column: Shapes, cells: CellFormat) -> DataType | None:
    """Exact where there are fractions and each has two digits, as prices have. None: not so."""
    if column.has(shape.NAN):
        return None
    cell = _plain(f"trim({_name(name)})", cells)
    is_money, digits = connection.execute(
        f"SELECT bool_and(regexp_full_match({cell}, '[+-]?[0-9]*(\\.[0-9]{{2}})?')) AND "  # noqa: S608 - quoted
        f"bool_or(contains({cell}, '.')), max(length({_digits(cell)})) FROM cells WHERE regexp_matches({cell}, '[0-9]')"
    ).fetchone()
    if not is_money or digits > _MOST_DIGITS:
        return None
    return MONEY if digits <= _EXACT_DIGITS else replace(MONEY, precision=38)


def _by_format(connection: Any, name: str, date_format: str) -> DataType | None:
    """By its first cells; whether all of them are dates is tried afterwards."""
    cell = _name(name)
    query = f"SELECT {cell} FROM cells WHERE trim({cell}) <> '' LIMIT {_TRIED_CELLS}"  # noqa: S608 - quoted
    samples = [row[0].strip() for row in connection.execute(query).fetchall()]
    try:
        moments = [datetime.strptime(text, date_format) for text in samples]
    except ValueError:
        return None
    has_time = any(code in date_format for code in ("%H", "%I", "%c", "%X", "%s"))
    if not moments:
        return None
    return TimestampType(precision=_MICROSECONDS) if has_time else DateType()


def _why_text(column: Shapes, cells: CellFormat, is_mixed: bool) -> str | None:
    """For columns that a reader would take for numbers or dates."""
    if column.is_within(shape.NUMBERS) and is_mixed:
        return "the file has numbers with a decimal comma and with a point; --decimal says which"
    if column.is_within(shape.NUMBERS) and column.has(shape.ONE_COMMA_GROUP):
        return "1,234 may mean two things; --thousands , or --decimal , says which"
    if column.is_within(shape.NUMBERS) and cells.decimal == ",":
        return "its numbers have a point, and others a decimal comma; --thousands . if points separate thousands"
    if column.is_within(shape.DATES):
        return "which number is the day is not clear; --date-order day or --date-order month says it"
    return None


def _inexact(connection: Any, columns: Iterable[Column], cells: CellFormat) -> dict[str, str]:
    """Columns of numbers that would lose something: zeros in front, as of postal codes, or digits at the end."""
    texts = {}
    for column in columns:
        if column.type.keyword not in ("BIGINT", "DOUBLE"):
            continue
        cell = _plain(_name(column.name), cells)
        of_cell, of_double = _digits(cell), _digits(f"CAST(TRY_CAST({cell} AS DOUBLE) AS VARCHAR)")
        padded, digits = connection.execute(
            f"SELECT bool_or(regexp_matches({cell}, '^\\s*[+-]?0[0-9]')), "  # noqa: S608 - quoted
            f"max(length({of_cell})) FILTER (WHERE {of_cell} IS DISTINCT FROM {of_double}) FROM cells"
        ).fetchone()
        if padded:
            texts[column.name] = "some of its numbers begin with zeros, which a number would lose"
        elif column.type.keyword == "DOUBLE" and (digits or 0) > _EXACT_DIGITS:
            texts[column.name] = f"some of its numbers have {digits} digits, more than a double holds"
    return texts


def _notes(shapes: Mapping[str, Shapes], cells: CellFormat) -> tuple[str, ...]:
    """Notes about values that could be read in two ways."""
    doubtful = [n for n, s in shapes.items() if s.is_within(shape.NUMBERS) and s.has(shape.ONE_POINT_GROUP)]
    if cells.is_known or cells.date_order is not DateOrder.DAY or not doubtful:
        return ()
    return (f"numbers as 1.234 in {', '.join(doubtful)} are read with a decimal point; --locale de reads 1234",)


def _plain(cell: str, cells: CellFormat) -> str:
    for sign in cells.thousands:
        quoted = sign.replace("'", "''")
        cell = f"replace({cell}, '{quoted}', '')"
    return cell if cells.decimal == "." else f"replace({cell}, '{cells.decimal}', '.')"


def _digits(cell: str) -> str:
    """In SQL. What a program wrote of a double has up to 17 of them, and is that double's own text."""
    return f"regexp_replace({cell}, '[eE].*|[^0-9]', '', 'g')"


def _name(column: str) -> str:
    return '"' + column.replace('"', '""') + '"'
