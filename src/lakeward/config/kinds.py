# SPDX-License-Identifier: Apache-2.0
"""Kinds of option values: how each is parsed, strictly, and spelled back. `parse(render(v)) == v` for every value."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from pathlib import Path
from typing import Generic, TypeVar

T = TypeVar("T")
E = TypeVar("E", bound=StrEnum)


@dataclass(frozen=True)
class OptionKind(Generic[T]):
    """`parse` raises `ValueError` with the reason; `allowed` describes the valid values."""

    name: str
    allowed: str
    parse: Callable[[str], T]
    render: Callable[[T], str]


_MICROSECOND = timedelta(microseconds=1)
_DURATIONS: dict[str, timedelta] = {
    "d": timedelta(days=1),
    "h": timedelta(hours=1),
    "min": timedelta(minutes=1),
    "s": timedelta(seconds=1),
    "ms": timedelta(milliseconds=1),
    "us": _MICROSECOND,
}
_DURATION_WORDS: dict[str, str] = {
    **{unit: unit for unit in _DURATIONS},
    **dict.fromkeys(("day", "days"), "d"),
    **dict.fromkeys(("hour", "hours"), "h"),
    **dict.fromkeys(("m", "minute", "minutes"), "min"),
    **dict.fromkeys(("sec", "secs", "second", "seconds"), "s"),
    **dict.fromkeys(("milli", "millis", "millisecond", "milliseconds"), "ms"),
    **dict.fromkeys(("µs", "micro", "micros", "microsecond", "microseconds"), "us"),
}
# Powers of 1024, as in Fluss: 64mb and 64 MiB are the same.
_SIZES: dict[str, int] = {"tb": 1 << 40, "gb": 1 << 30, "mb": 1 << 20, "kb": 1 << 10, "b": 1}
_SIZE_WORDS: dict[str, str] = {
    **{unit: unit for unit in _SIZES},
    **{
        word: f"{word[0]}b"
        for word in ("k", "kib", "kibibytes", "m", "mib", "mebibytes", "g", "gib", "gibibytes", "t", "tib", "tebibytes")
    },
    **dict.fromkeys(("byte", "bytes"), "b"),
}
_QUANTITY = re.compile(r"([0-9]{1,18})\s*([A-Za-zµ]*)")


def duration(*, minimum: timedelta = timedelta(0), maximum: timedelta | None = None) -> OptionKind[timedelta]:
    """A length of time with its unit: `30 s`, `3min`, `500ms`. Zero needs no unit."""

    def parse(text: str) -> timedelta:
        number, unit = _quantity(text, _DURATION_WORDS)
        try:
            value = number * _DURATIONS.get(unit, timedelta(0))
        except OverflowError:
            raise ValueError("it is too long") from None
        _check_bounds(value, minimum, maximum, render_duration)
        return value

    return OptionKind(
        "duration",
        _bounds("a number and d, h, min, s, ms or us", minimum, maximum, render_duration),
        parse,
        render_duration,
    )


def size(*, minimum: int = 0, maximum: int | None = None) -> OptionKind[int]:
    """A number of bytes with its unit: `64mb`, `64 MiB`. Zero needs no unit."""

    def parse(text: str) -> int:
        number, unit = _quantity(text, _SIZE_WORDS)
        value = number * _SIZES.get(unit, 0)
        _check_bounds(value, minimum, maximum, render_size)
        return value

    return OptionKind(
        "size",
        _bounds("a number and b, kb, mb, gb or tb (powers of 1024)", minimum, maximum, render_size),
        parse,
        render_size,
    )


def integer(*, minimum: int | None = None, maximum: int | None = None) -> OptionKind[int]:
    def parse(text: str) -> int:
        if not re.fullmatch(r"-?[0-9]{1,18}", text.strip()):
            raise ValueError("it is no whole number of at most 18 digits")
        value = int(text)
        _check_bounds(value, minimum, maximum, str)
        return value

    return OptionKind("integer", _bounds("a whole number", minimum, maximum, str), parse, str)


def ratio(*, minimum: float = 0.0, maximum: float = 1.0) -> OptionKind[float]:
    def parse(text: str) -> float:
        if not re.fullmatch(r"-?[0-9]+(\.[0-9]+)?(e-?[0-9]+)?", text.strip()):
            raise ValueError("it is no number")
        value = float(text)
        _check_bounds(value, minimum, maximum, repr)
        return value

    return OptionKind("number", _bounds("a number", minimum, maximum, repr), parse, repr)


def boolean() -> OptionKind[bool]:
    words = {"true": True, "false": False}

    def parse(text: str) -> bool:
        try:
            return words[text.strip().lower()]
        except KeyError:
            raise ValueError("it is neither true nor false") from None

    return OptionKind("boolean", "true or false", parse, lambda value: "true" if value else "false")


def text() -> OptionKind[str]:
    return OptionKind("text", "any text but an empty one", _not_empty, str)


def lake_or_none() -> OptionKind[str]:
    return OptionKind("text", "a lake's name, or none", lambda given: given.strip() or "none", str)


def path() -> OptionKind[Path]:
    return OptionKind("path", "a path on this machine", lambda given: Path(_not_empty(given)), str)


def word_list() -> OptionKind[tuple[str, ...]]:
    """Words between commas; in a file also an array of strings. Empty is the empty list."""

    def parse(given: str) -> tuple[str, ...]:
        if not given.strip():
            return ()
        words = tuple(word.strip() for word in given.split(","))
        if not all(words):
            raise ValueError("there is nothing between two commas")
        return words

    return OptionKind("list", "words between commas", parse, ",".join)


def choice(kind: type[E]) -> OptionKind[E]:
    """One of an enum's values, upper or lower case."""
    allowed = ", ".join(kind)

    def parse(given: str) -> E:
        try:
            return kind(given.strip().lower())
        except ValueError:
            raise ValueError("it is none of them") from None

    return OptionKind("choice", allowed, parse, str)


def render_duration(value: timedelta) -> str:
    """The biggest unit that gives a whole number."""
    for unit, length in _DURATIONS.items():
        if value and value % length == timedelta(0):
            return f"{value // length} {unit}"
    return "0 s"


def render_size(value: int) -> str:
    for unit, length in _SIZES.items():
        if value and value % length == 0:
            return f"{value // length} {unit}"
    return "0 b"


def _quantity(given: str, words: Mapping[str, str]) -> tuple[int, str]:
    match = _QUANTITY.fullmatch(given.strip())
    if not match:
        raise ValueError("it is not a whole number and a unit")
    number, word = int(match[1]), match[2].lower()
    if not word and number:
        raise ValueError("the unit is missing")
    if word and word not in words:
        raise ValueError(f"{match[2]!r} is no unit")
    return number, words.get(word, "")


def _not_empty(given: str) -> str:
    if not given.strip():
        raise ValueError("it is empty")
    return given


B = TypeVar("B", timedelta, int, float)


def _check_bounds(value: B, minimum: B | None, maximum: B | None, spell: Callable[[B], str]) -> None:
    if minimum is not None and value < minimum:
        raise ValueError(f"it is below {spell(minimum)}")
    if maximum is not None and value > maximum:
        raise ValueError(f"it is above {spell(maximum)}")


def _bounds(what: str, minimum: B | None, maximum: B | None, spell: Callable[[B], str]) -> str:
    low = f", at least {spell(minimum)}" if minimum else ""
    high = f", at most {spell(maximum)}" if maximum is not None else ""
    return f"{what}{low}{high}"
