# SPDX-License-Identifier: Apache-2.0
"""How the cells of a CSV file are written: decimal sign, thousands separator, order of dates, words for yes, no and
NULL. A locale is a name for several of these.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from difflib import get_close_matches
from enum import StrEnum
from types import MappingProxyType

from lakeward.errors import InvalidRequest

TRUE_WORDS = ("true", "t", "yes", "y", "on", "1")
FALSE_WORDS = ("false", "f", "no", "n", "off", "0")
"""Taken in every file; those of a locale and of `--true` and `--false` come on top."""

_SPACES = " \u00a0\u202f\u2009"
_MOST_THOUSANDS = len(_SPACES)


class DateOrder(StrEnum):
    YEAR = "year"
    DAY = "day"
    MONTH = "month"


@dataclass(frozen=True, kw_only=True)
class CellFormat:
    """`thousands`: each of these characters separates groups of three digits. `is_known`: the decimal sign was
    specified, not assumed."""

    decimal: str = "."
    thousands: str = ""
    date_order: DateOrder = DateOrder.YEAR
    date_format: str | None = None
    true_words: tuple[str, ...] = ()
    false_words: tuple[str, ...] = ()
    nulls: tuple[str, ...] = ()
    is_known: bool = False

    def __post_init__(self) -> None:
        """Raises `InvalidRequest`."""
        if self.decimal not in (".", ","):
            raise InvalidRequest(what=f"--decimal {self.decimal}", reason="it is a point or a comma")
        if self.decimal in self.thousands:
            reason = f"the decimal sign is {self.decimal} already; pass --decimal too"
            raise InvalidRequest(what=f"--thousands {self.thousands}", reason=reason)
        if len(self.thousands) > _MOST_THOUSANDS or any(c.isalnum() or c in "+-" for c in self.thousands):
            raise InvalidRequest(what=f"--thousands {self.thousands}", reason="it is one sign, as . or ,")
        if both := set(self.all_true_words) & set(self.all_false_words):
            raise InvalidRequest(what="--true and --false", reason=f"{', '.join(sorted(both))} cannot mean both")

    @property
    def all_true_words(self) -> tuple[str, ...]:
        return (*TRUE_WORDS, *self.true_words)

    @property
    def all_false_words(self) -> tuple[str, ...]:
        return (*FALSE_WORDS, *self.false_words)

    @property
    def options(self) -> tuple[str, ...]:
        """The command line that specifies this format: a locale where that says several of its settings."""
        candidates = [("--locale", name, *_differences(self, locale)) for name, locale in LOCALES.items()]
        fitting = [c for c in candidates if not _is_contradicted(self, LOCALES[c[1]])]
        return min([_differences(self, CellFormat()), *fitting], key=len)

    @property
    def command_line(self) -> str:
        return shlex.join(self.options)


def _differences(wanted: CellFormat, known: CellFormat) -> tuple[str, ...]:
    differences: list[str] = []
    if wanted.decimal != known.decimal:
        differences += ["--decimal", wanted.decimal]
    if wanted.thousands and not set(wanted.thousands) <= set(known.thousands):
        differences += ["--thousands", wanted.thousands[0]]
    if wanted.date_order not in (DateOrder.YEAR, known.date_order):
        differences += ["--date-order", wanted.date_order]
    if wanted.date_format is not None:
        differences += ["--date-format", wanted.date_format]
    for option, words, present in (
        ("--true", wanted.true_words, known.true_words),
        ("--false", wanted.false_words, known.false_words),
        ("--null", wanted.nulls, known.nulls),
    ):
        for word in words:
            differences += [] if word in present else [option, word]
    return tuple(differences)


def _is_contradicted(wanted: CellFormat, locale: CellFormat) -> bool:
    """A setting that the file showed, and that this locale has otherwise."""
    is_number_known = wanted.is_known and wanted.decimal != locale.decimal
    is_date_known = wanted.date_order not in (DateOrder.YEAR, locale.date_order)
    return is_number_known or is_date_known or not (wanted.is_known or wanted.date_order is not DateOrder.YEAR)


def _locale(decimal: str, thousands: str, order: DateOrder, yes: str, no: str) -> CellFormat:
    return CellFormat(
        decimal=decimal,
        thousands=thousands,
        date_order=order,
        true_words=tuple(yes.split()),
        false_words=tuple(no.split()),
        is_known=True,
    )


LOCALES: Mapping[str, CellFormat] = MappingProxyType(
    {
        "de": _locale(",", ".", DateOrder.DAY, "ja j wahr", "nein falsch"),
        "ch": _locale(".", "'\u2019", DateOrder.DAY, "ja j oui o wahr vrai", "nein non falsch faux"),
        "us": _locale(".", ",", DateOrder.MONTH, "", ""),
        "gb": _locale(".", ",", DateOrder.DAY, "", ""),
        "fr": _locale(",", _SPACES, DateOrder.DAY, "oui o vrai", "non faux"),
        "es": _locale(",", ".", DateOrder.DAY, "s\u00ed si s verdadero", "falso"),
        "it": _locale(",", ".", DateOrder.DAY, "s\u00ec si s vero", "falso"),
        "nl": _locale(",", ".", DateOrder.DAY, "ja j waar", "nee onwaar"),
        "pl": _locale(",", _SPACES, DateOrder.DAY, "tak prawda", "nie fa\u0142sz"),
        "pt": _locale(",", ".", DateOrder.DAY, "sim s verdadeiro", "n\u00e3o nao falso"),
    }
)


def find_locale(name: str) -> CellFormat:
    """`de`, also as `de_DE.UTF-8` or `de-AT`. Raises `InvalidRequest`."""
    short = name.strip().lower().replace("_", "-").split(".")[0]
    language, _, country = short.partition("-")
    locale = LOCALES.get(country) or LOCALES.get(language) or (LOCALES["us"] if language == "en" else None)
    if locale is None:
        near = get_close_matches(language, LOCALES, 1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise InvalidRequest(what=f"--locale {name}", reason=f"known are {', '.join(LOCALES)}{hint}")
    return locale


def cell_format(
    *,
    locale: str | None = None,
    decimal: str | None = None,
    thousands: str | None = None,
    date_order: DateOrder | None = None,
    date_format: str | None = None,
    true_words: Sequence[str] = (),
    false_words: Sequence[str] = (),
    nulls: Sequence[str] = (),
) -> CellFormat:
    """A locale with what was specified besides it. Raises `InvalidRequest`."""
    base = CellFormat() if locale is None else find_locale(locale)
    if decimal is not None and thousands is None and decimal in base.thousands:
        thousands = ""
    if decimal is None and thousands == base.decimal and thousands in (".", ","):
        decimal = "," if thousands == "." else "."
    changes = {
        "decimal": decimal,
        "thousands": thousands,
        "date_order": date_order,
        "date_format": date_format,
        "true_words": (*base.true_words, *_lowered(true_words)) if true_words else None,
        "false_words": (*base.false_words, *_lowered(false_words)) if false_words else None,
        "nulls": (*base.nulls, *nulls) if nulls else None,
        "is_known": True if (locale or decimal or thousands) else None,
    }
    assert set(changes) == {f.name for f in fields(CellFormat)}
    return replace(base, **{key: value for key, value in changes.items() if value is not None})  # type: ignore[arg-type]


def _lowered(words: Iterable[str]) -> tuple[str, ...]:
    """`ja,j` is two words."""
    return tuple(w.strip().lower() for text in words for w in text.split(",") if w.strip())
