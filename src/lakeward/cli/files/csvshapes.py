# SPDX-License-Identifier: Apache-2.0
"""Shapes of the cells of a CSV column, counted by DuckDB over the whole file: decimal signs, orders of dates, words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lakeward.cli.files.cellproblem import FALSE_WORDS, NULL_WORDS, TRUE_WORDS

WHOLE, LONG, NAN, TEXT = "whole", "long", "nan", "text"
OTHER_GROUPS, OTHER_GROUPS_FRACTION = "other groups", "other groups with a fraction"
"""Groups of three digits separated by spaces or apostrophes."""
COMMA, GROUPED_COMMA, POINT_MANY = "comma", "grouped comma", "many points"
POINT, GROUPED_POINT, COMMA_MANY = "point", "grouped point", "many commas"
ONE_POINT_GROUP, ONE_COMMA_GROUP = "one point group", "one comma group"
DAY, DAY_TIME, MONTH, MONTH_TIME, EITHER, EITHER_TIME = (
    "day",
    "day time",
    "month",
    "month time",
    "either",
    "either time",
)

ISO_DATE, ISO_MOMENT, ISO_ZONED, TIME = "iso date", "iso moment", "iso zoned moment", "time of day"

COMMA_NUMBERS = frozenset((COMMA, GROUPED_COMMA, POINT_MANY))
POINT_NUMBERS = frozenset((POINT, GROUPED_POINT, COMMA_MANY))
NUMBERS = COMMA_NUMBERS | POINT_NUMBERS | {WHOLE, LONG, NAN, ONE_POINT_GROUP, ONE_COMMA_GROUP}
DAYS = frozenset((DAY, DAY_TIME))
MONTHS = frozenset((MONTH, MONTH_TIME))
DATES = DAYS | MONTHS | {EITHER, EITHER_TIME}
TIMES = frozenset((DAY_TIME, MONTH_TIME, EITHER_TIME))

_LETTERS = ({"y", "n"}, {"t", "f"}, {"j", "n"})
_LONGEST = 40
_TIME = r"[ T]\d{1,2}:\d{2}(:\d{2}(\.\d+)?)?"
_DATE = r"\d{1,2}[./-]\d{1,2}[./-]\d{4}"
_SHAPES = (
    (r"[+-]?\d{1,18}", WHOLE),
    (r"[+-]?\d+", LONG),
    (r"\d{4}-\d{2}-\d{2}", ISO_DATE),
    (r"\d{4}-\d{2}-\d{2}[ T]\d{2}:\d{2}(:\d{2}(\.\d{1,6})?)?", ISO_MOMENT),
    (r"\d{4}-\d{2}-\d{2}[ T]\d{2}:\d{2}(:\d{2}(\.\d{1,6})?)?(Z|[+-]\d{2}(:?\d{2})?)", ISO_ZONED),
    (r"\d{2}:\d{2}:\d{2}(\.\d{1,6})?", TIME),
    (r"[+-]?[1-9]\d{0,2}\.\d{3}", ONE_POINT_GROUP),
    (r"[+-]?\d*\.\d+([eE][+-]?\d+)?|[+-]?\d+\.", POINT),
    (r"[+-]?[1-9]\d{0,2}(\.\d{3}){2,}", POINT_MANY),
    (r"[+-]?[1-9]\d{0,2}(\.\d{3})+,\d+", GROUPED_COMMA),
    (r"[+-]?[1-9]\d{0,2},\d{3}", ONE_COMMA_GROUP),
    (r"[+-]?\d*,\d+", COMMA),
    (r"[+-]?[1-9]\d{0,2}(,\d{3}){2,}", COMMA_MANY),
    (r"[+-]?[1-9]\d{0,2}(,\d{3})+\.\d+", GROUPED_POINT),
    (r"[+-]?[1-9]\d{0,2}([ \x{a0}\x{202f}\x{2009}\x{27}\x{2019}]\d{3})+", OTHER_GROUPS),
    (r"[+-]?[1-9]\d{0,2}([ \x{a0}\x{202f}\x{2009}\x{27}\x{2019}]\d{3})+[.,]\d+", OTHER_GROUPS_FRACTION),
)
_NOT_FINITE = ("nan", "inf", "-inf", "+inf", "infinity", "-infinity")


@dataclass(frozen=True)
class Shapes:
    """Shapes of one column: the number of cells of each shape, words separately. Empty cells do not count."""

    counts: Mapping[str, int]
    true_words: frozenset[str] = frozenset()
    false_words: frozenset[str] = frozenset()
    nulls: frozenset[str] = frozenset()

    def has(self, *shapes: str) -> bool:
        return any(shape in self.counts for shape in shapes)

    def is_within(self, shapes: frozenset[str]) -> bool:
        """At least one cell, and all of these shapes; words for NULL aside."""
        return bool(self.counts) and self.counts.keys() <= shapes and not (self.true_words or self.false_words)

    @property
    def is_yes_or_no(self) -> bool:
        """All of them, and both occur. Of letters pairs of one language alone: N and S are points of a compass."""
        letters = {w for w in self.true_words | self.false_words if len(w) == 1}
        if not self.counts and (words := self.true_words | self.false_words) and words <= {"true", "false"}:
            return True
        if self.counts or not (self.true_words and self.false_words):
            return False
        return not letters or letters in _LETTERS


def load_shapes(connection: Any, source: str, names: Sequence[str]) -> dict[str, Shapes]:
    """`source`: SQL of a relation whose columns are all text. Raises DuckDB's errors."""
    if not names:
        return {}
    columns = ", ".join(f"histogram({_shape(_name(name))})" for name in names)
    found = connection.execute(f"SELECT {columns} FROM {source}").fetchone()  # noqa: S608 - quoted
    return {name: _shapes(counts or {}) for name, counts in zip(names, found, strict=True)}


def _shapes(counts: Mapping[str, int]) -> Shapes:
    words = {label[5:] for label in counts if label.startswith("word:")}
    return Shapes(
        {label: n for label, n in counts.items() if ":" not in label},
        frozenset(words - FALSE_WORDS),
        frozenset(words & FALSE_WORDS),
        frozenset(label[5:] for label in counts if label.startswith("null:")),
    )


def _shape(name: str) -> str:
    """SQL. The cheap questions first: most text begins with a letter."""
    cell = f"trim({name})"
    cases = [f"WHEN {cell} = '' OR {name} IS NULL THEN NULL"]
    cases += [f"WHEN {cell} IN ({_texts(NULL_WORDS)}) THEN 'null:' || {cell}"]
    words = sorted(w for w in TRUE_WORDS | FALSE_WORDS if not w.isdigit())
    cases += [f"WHEN lower({cell}) IN ({_texts(words)}) THEN 'word:' || lower({cell})"]
    cases += [f"WHEN lower({cell}) IN ({_texts(_NOT_FINITE)}) THEN '{NAN}'"]
    cases += [f"WHEN length({cell}) > {_LONGEST} OR NOT regexp_matches({cell}, '^[+-]?[.,]?[0-9]') THEN '{TEXT}'"]
    cases += [f"WHEN regexp_full_match({cell}, '{pattern}') THEN '{label}'" for pattern, label in _SHAPES]
    first, second = f"regexp_extract({cell}, '^[0-9]+')::INT", f"regexp_extract({cell}, '^[0-9]+.([0-9]+)', 1)::INT"
    for pattern, suffix in ((_DATE, ""), (_DATE + _TIME, " time")):
        by_numbers = (
            f"CASE WHEN {first} > 31 OR {second} > 31 OR ({first} > 12 AND {second} > 12) THEN '{TEXT}' "
            f"WHEN {first} > 12 THEN '{DAY}{suffix}' WHEN {second} > 12 THEN '{MONTH}{suffix}' "
            f"WHEN contains({cell}, '.') AND regexp_matches({cell}, '^[0-9]+\\.') THEN '{DAY}{suffix}' "
            f"ELSE '{EITHER}{suffix}' END"
        )
        cases.append(f"WHEN regexp_full_match({cell}, '{pattern}') THEN {by_numbers}")
    return f"CASE {' '.join(cases)} ELSE '{TEXT}' END"


def _texts(words: Sequence[str]) -> str:
    return ", ".join("'" + word.replace("'", "''") + "'" for word in words)


def _name(column: str) -> str:
    return '"' + column.replace('"', '""') + '"'


def load_is_comma_file(connection: Any, source: str, numbers: Sequence[str], names: Sequence[str]) -> bool:
    """A cell of a number column, as 1.681, may be 1681, because other numbers of the file have a decimal comma."""
    doubt = " OR ".join(
        f"bool_or(regexp_full_match(trim({_name(n)}), '[+-]?[1-9]\\d{{0,2}}\\.\\d{{3}}'))" for n in numbers
    )
    if not numbers or not connection.execute(f"SELECT {doubt} FROM {source}").fetchone()[0]:  # noqa: S608 - quoted
        return False
    shapes = load_shapes(connection, source, names)
    return any(s.has(*COMMA_NUMBERS) and (n in numbers or s.is_within(NUMBERS)) for n, s in shapes.items())
