# SPDX-License-Identifier: Apache-2.0
"""Default values of columns: literals, checked against the column's type, and spelled in one way per value."""

from __future__ import annotations

import datetime as dt
import math
import re
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from lakeward.errors import InvalidRequest
from lakeward.model.types import (
    BinaryType,
    BooleanType,
    BytesType,
    CharType,
    DataType,
    DateType,
    DecimalType,
    Float32Type,
    Float64Type,
    StringType,
    TimestampLtzType,
    TimestampType,
    TimeType,
    VectorType,
    parts,
    quote_text,
)

_LITERAL = re.compile(
    r"\s*(?:(?P<word>DATE|TIMESTAMP|TIMESTAMP_LTZ|TIME|X)\s*)?(?P<text>'(?:[^']|'')*')"
    r"|\s*(?P<number>[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?)(?!\w)|\s*(?P<plain>TRUE|FALSE|NULL)\b",
    re.IGNORECASE,
)
_WORDS = {"DATE": DateType, "TIMESTAMP": TimestampType, "TIMESTAMP_LTZ": TimestampLtzType, "TIME": TimeType}
_TEXTS = (StringType, CharType)
_BYTES = (BinaryType, BytesType)
MOST_LITERAL = 10_000
"""Characters of a default: every schema has it."""


@dataclass(frozen=True)
class SqlLiteral:
    """A literal as SQL has it. `text` None: NULL."""

    text: str | None
    is_quoted: bool = False
    word: str = ""

    def value_for(self, kind: DataType, column: str) -> str | None:
        """The spelling that `Column.default` has. Raises `InvalidRequest` for a literal of another kind."""
        if self.text is None:
            return None
        is_text = isinstance(kind, _TEXTS)
        if self.word and not isinstance(kind, _BYTES if self.word == "X" else _WORDS[self.word]):
            raise _misfit(column, kind, f"{self.word} '{self.text}'")
        if (is_text and (not self.is_quoted or self.word)) or (isinstance(kind, _BYTES) and self.word != "X"):
            advice = "put the text into single quotes" if is_text else "write the bytes as X'0A1B'"
            raise _misfit(column, kind, self.text, advice)
        return check_default(self.text, kind, column)


def parse_leading_literal(text: str, at: int) -> tuple[SqlLiteral, int]:
    """The literal that begins at this character of a statement, and where it ends. Raises `InvalidRequest`."""
    match = _LITERAL.match(text, at)
    if match is None:
        reason = "a default is a literal: a number, a text in single quotes, TRUE, FALSE, DATE '...', TIMESTAMP '...'"
        raise InvalidRequest(what=f"default {text[at:].strip()[:40]!r}", reason=reason)
    if match["text"] is not None:
        return SqlLiteral(match["text"][1:-1].replace("''", "'"), True, (match["word"] or "").upper()), match.end()
    plain = match["plain"]
    return SqlLiteral(match["number"] if plain is None else None if plain.upper() == "NULL" else plain), match.end()


def check_default(text: str, kind: DataType, column: str) -> str:
    """The one spelling of this value. Raises `InvalidRequest` for a value that is none of the type."""
    if parts(kind) or isinstance(kind, VectorType):
        reason = "a column of this type has no default; add it without one"
        raise InvalidRequest(what=f"default of column {column} {kind.sql}", reason=reason)
    if len(text) > MOST_LITERAL:
        raise _misfit(column, kind, f"{text[:40]}...", f"a default has up to {MOST_LITERAL:,} characters")
    try:
        return spell_value(default_value(text, kind))
    except (ValueError, ArithmeticError, pa.ArrowException) as error:
        raise _misfit(column, kind, text) from error


def default_value(text: str, kind: DataType) -> Any:
    """The value of a spelling, as Python has it. Raises `ValueError`, `pa.ArrowException`."""
    match kind:
        case StringType():
            return text
        case CharType() if len(text) <= kind.length:
            return text
        case BytesType():
            return bytes.fromhex(text)
        case BinaryType() if len(raw := bytes.fromhex(text)) == kind.length:
            return raw
        case BooleanType() if text.lower() in ("true", "false"):
            return text.lower() == "true"
        case TimeType():
            return _of_precision(dt.time.fromisoformat(text), kind.precision)
        case TimestampType():
            return _of_precision(_moment(text), kind.precision)
        case TimestampLtzType():
            at = dt.datetime.fromisoformat(text)
            utc = at.replace(tzinfo=dt.UTC) if at.tzinfo is None else at.astimezone(dt.UTC)
            return _of_precision(utc, kind.precision)
        case DateType():
            moment = dt.datetime.fromisoformat(text)
            if moment.time() == dt.time():
                return moment.date()
        case DecimalType():
            return pa.scalar(text).cast(pa.decimal128(kind.precision, kind.scale)).as_py()
        case Float32Type() | Float64Type():
            arrow = pa.float32() if isinstance(kind, Float32Type) else pa.float64()
            number = pa.scalar(text).cast(arrow).as_py()
            if math.isfinite(number):
                return number
        case _:
            from lakeward.model.arrow import to_arrow_type

            if re.fullmatch(r"[+-]?\d+", text):
                return pa.scalar(int(text), to_arrow_type(kind)).as_py()
    raise ValueError(text)


def spell_default(text: str, kind: DataType) -> str:
    """As SQL has it: `'x'`, `5`, `DATE '2024-01-31'`."""
    word = next((w for w, cls in _WORDS.items() if isinstance(kind, cls)), "X" if isinstance(kind, _BYTES) else "")
    if word or isinstance(kind, _TEXTS):
        return f"{word} {quote_text(text)}".removeprefix(" ").replace("X ", "X", 1 if word == "X" else 0)
    return text.upper() if isinstance(kind, BooleanType) else text


def spell_value(value: Any) -> str:
    """A default as `Column.default` has it."""
    match value:
        case bool():
            return str(value).lower()
        case bytes():
            return value.hex()
        case dt.datetime():
            return value.isoformat(sep=" ")
        case dt.date() | dt.time():
            return value.isoformat()
        case float():
            return repr(value)
    return str(value)


def _moment(text: str) -> dt.datetime:
    at = dt.datetime.fromisoformat(text)
    if at.tzinfo is not None:
        raise ValueError(text)
    return at


def _of_precision(value: Any, digits: int) -> Any:
    """Raises `ValueError` for fractional digits that the type has no place for."""
    if value.microsecond % 10 ** max(6 - digits, 0):
        raise ValueError(value)
    return value


def _misfit(column: str, kind: DataType, text: str, advice: str = "") -> InvalidRequest:
    reason = f"it is not a value of {kind.sql}" + (f"; {advice}" if advice else "")
    return InvalidRequest(what=f"default {text!r} of column {column}", reason=reason)
