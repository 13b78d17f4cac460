# SPDX-License-Identifier: Apache-2.0
"""Reads the SQL spelling of a type back: the inverse of `str(DataType)`, plus the synonyms people write."""

from __future__ import annotations

import re

from lakeward.errors import InvalidRequest
from lakeward.model.types import (
    ArrayType,
    BinaryType,
    CharType,
    DataType,
    DecimalType,
    MapType,
    RowField,
    RowType,
    StringType,
    TimestampLtzType,
    TimestampType,
    TimeType,
    VectorType,
)
from lakeward.model.typetable import TYPES

_TOKEN = re.compile(r"\s*(`(?:[^`]|``)*`|'(?:[^']|'')*'|[A-Za-z_][A-Za-z0-9_]*|\d+|[<>(),])")
_SYNONYMS = {synonym: r.cls.keyword for r in TYPES for synonym in r.synonyms}
_ATOMIC = {r.cls.keyword: r.cls for r in TYPES if not set(vars(r.example)) - {"nullable"}}
_PRECISE: dict[str, type[TimeType] | type[TimestampType] | type[TimestampLtzType]] = {
    t.keyword: t for t in (TimeType, TimestampType, TimestampLtzType)
}

_SIZED, _NESTED = ("DECIMAL", "CHAR", "VARCHAR", "BINARY", "VECTOR"), ("ARRAY", "MAP", "ROW")


def parse_type(text: str) -> DataType:
    """`"DECIMAL(10, 2) NOT NULL"` -> the type. Raises `InvalidRequest` naming the text and what was wrong in it."""
    parser = _Parser(text)
    parsed = parser.parse()
    parser.expect_end()
    return parsed


def parse_fields(text: str) -> tuple[RowField, ...]:
    """`"id BIGINT NOT NULL, `full name` STRING"` -> names with their types."""
    parser = _Parser(text, "columns")
    fields = parser.fields()
    parser.expect_end()
    return fields


class _Parser:
    def __init__(self, text: str, what: str = "type") -> None:
        self.text, self.at, self.what = text, 0, what

    def fail(self, reason: str) -> InvalidRequest:
        return InvalidRequest(what=f"{self.what} {self.text!r}", reason=f"{reason} at character {self.at}")

    def peek(self) -> str:
        match = _TOKEN.match(self.text, self.at)
        return match.group(1) if match else ""

    def take(self, wanted: str | None = None) -> str:
        match = _TOKEN.match(self.text, self.at)
        if not match or (wanted is not None and match.group(1).upper() != wanted):
            raise self.fail(f"{wanted or 'a word'} was expected")
        self.at = match.end()
        return match.group(1)

    def accept(self, wanted: str) -> bool:
        if self.peek().upper() != wanted:
            return False
        self.take()
        return True

    def expect_end(self) -> None:
        if self.text[self.at :].strip():
            raise self.fail("nothing more was expected")

    def number(self) -> int:
        word = self.take()
        if not word.isdigit():
            raise self.fail("a number was expected")
        return int(word)

    def parse(self) -> DataType:
        base = self._bare()
        if self.accept("NOT"):
            self.take("NULL")
            return base.with_nullable(False)
        self.accept("NULL")
        return base

    def _bare(self) -> DataType:
        keyword = self.take().upper()
        keyword = _SYNONYMS.get(keyword, keyword)
        if keyword in _ATOMIC:
            return _ATOMIC[keyword]()
        if keyword in _PRECISE:
            return self._precise(_PRECISE[keyword])
        if keyword in _SIZED:
            return self._sized(keyword)
        if keyword in _NESTED:
            return self._nested(keyword)
        raise self.fail(f"{keyword} is no type known here")

    def _is_type(self, word: str) -> bool:
        keyword = _SYNONYMS.get(word.upper(), word.upper())
        return keyword in _ATOMIC or keyword in _PRECISE or keyword in _SIZED or keyword in _NESTED

    def _precise(self, cls: type[TimeType] | type[TimestampType] | type[TimestampLtzType]) -> DataType:
        sizes = self._sizes(1)
        return cls(precision=sizes[0]) if sizes else cls()

    def _sizes(self, most: int) -> list[int]:
        sizes: list[int] = []
        if self.accept("("):
            sizes.append(self.number())
            while len(sizes) < most and self.accept(","):
                sizes.append(self.number())
            self.take(")")
        return sizes

    def _sized(self, keyword: str) -> DataType:
        sizes = self._sizes(2 if keyword == "DECIMAL" else 1)
        if keyword == "DECIMAL":
            precision, scale = (*sizes, 10, 0)[:2] if not sizes else (*sizes, 0)[:2]
            return DecimalType(precision=precision, scale=scale)
        if keyword == "VARCHAR":
            return StringType()
        if keyword == "VECTOR":
            if not sizes:
                raise self.fail("VECTOR(N) was expected, with the number of its elements,")
            return VectorType(length=sizes[0])
        length = sizes[0] if sizes else 1
        return CharType(length=length) if keyword == "CHAR" else BinaryType(length=length)

    def _nested(self, keyword: str) -> DataType:
        self.take("<")
        nested_type: DataType
        if keyword == "ARRAY":
            nested_type = ArrayType(element=self.parse())
        elif keyword == "MAP":
            key = self.parse()
            self.take(",")
            nested_type = MapType(key=key, value=self.parse())
        else:
            nested_type = RowType(fields=self.fields())
        self.take(">")
        return nested_type

    def fields(self) -> tuple[RowField, ...]:
        fields = [self._field()]
        while self.accept(","):
            fields.append(self._field())
        return tuple(fields)

    def _field(self) -> RowField:
        name = self.take()
        if name.startswith("`"):
            name = name[1:-1].replace("``", "`")
        elif not self._is_type(self.peek()):
            more = self.text[self.at :].strip()[:40].split(",")[0].split(" ")[0]
            example = f" (a name that is not one word stands in backticks: `{name} {more}`)" if more else ""
            raise self.fail(f"{more or 'nothing'} is no type known here{example}")
        kind = self.parse()
        if self.accept("COMMENT"):
            return RowField(name=name, type=kind, comment=self.take()[1:-1].replace("''", "'"))
        return RowField(name=name, type=kind)
