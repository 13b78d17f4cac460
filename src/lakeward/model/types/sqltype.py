# SPDX-License-Identifier: Apache-2.0
"""Reads the SQL spelling of a type back: the inverse of `str(DataType)`, plus the synonyms people write."""

from __future__ import annotations

import re
import reprlib
from typing import Any

from lakeward.errors import InvalidRequest
from lakeward.model.types import (
    ArrayType,
    DataType,
    MapType,
    RowField,
    RowType,
    StringType,
    VectorType,
)
from lakeward.model.types.typetable import TYPES, TypeRow

_TOKEN = re.compile(r"\s*(`(?:[^`]|``)*`|'(?:[^']|'')*'|[A-Za-z_][A-Za-z0-9_]*|\d+|[<>(),])")
_SYNONYMS = {synonym: r.cls.keyword for r in TYPES for synonym in r.synonyms}
_PLAIN = {r.cls.keyword: r for r in TYPES if r.cls not in (ArrayType, MapType, RowType)}
_NESTED = ("ARRAY", "MAP", "ROW")
_TEXT = "VARCHAR"
"""Its length is read and not kept."""


MOST_LEVELS = 100
"""Deepest nesting of types: functions that walk a type recurse at each level."""


def parse_type(text: str) -> DataType:
    """`"DECIMAL(10, 2) NOT NULL"` -> the type. Raises `InvalidRequest` naming the text and what was wrong in it."""
    parser = _Parser(text)
    parsed = parser.parse()
    parser.expect_end()
    return parsed


def parse_leading_type(text: str, at: int) -> tuple[DataType, int]:
    """The type that begins at this character of a statement, and where it ends. Raises `InvalidRequest`."""
    parser = _Parser(text)
    parser.at = at
    return parser.parse(), parser.at


def parse_fields(text: str) -> tuple[RowField, ...]:
    """`"id BIGINT NOT NULL, `full name` STRING"` -> names with their types."""
    parser = _Parser(text, "columns")
    fields = parser.fields()
    parser.expect_end()
    return fields


def parse_defaulted(text: str, *, has_paths: bool = False) -> tuple[tuple[RowField, str | None], ...]:
    """As `parse_fields`, of columns, which may have a default after their type: `"n INT DEFAULT 5"`. `has_paths`: a
    name may be the path of a field: `"address.zip STRING"`."""
    parser = _Parser(text, "columns", has_paths=has_paths)
    columns = [parser.column()]
    while parser.accept(","):
        columns.append(parser.column())
    parser.expect_end()
    return tuple(columns)


class _Parser:
    def __init__(self, text: str, what: str = "type", *, has_paths: bool = False) -> None:
        self.text, self.at, self.what, self.levels, self.has_paths = text, 0, what, 0, has_paths

    def fail(self, reason: str) -> InvalidRequest:
        shown = repr(self.text) if len(self.text) <= 1_000 else reprlib.repr(self.text)
        return InvalidRequest(what=f"{self.what} {shown}", reason=f"{reason} at character {self.at}")

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
        if keyword == _TEXT:
            self._sizes(1)
            return StringType()
        if keyword in _PLAIN:
            return self._plain(_PLAIN[keyword])
        if keyword in _NESTED:
            return self._nested(keyword)
        raise self.fail(f"{keyword} is no type known here")

    def _is_type(self, word: str) -> bool:
        keyword = _SYNONYMS.get(word.upper(), word.upper())
        return keyword in _PLAIN or keyword in _NESTED or keyword == _TEXT

    def _plain(self, row: TypeRow) -> DataType:
        sizes = self._sizes(len(row.parameters)) if row.parameters else []
        if row.cls is VectorType and not sizes:
            raise self.fail("VECTOR(N) was expected, with the number of its elements,")
        facts: dict[str, Any] = dict(zip(row.parameters, sizes, strict=False))
        return row.cls(**facts)

    def _sizes(self, most: int) -> list[int]:
        sizes: list[int] = []
        if self.accept("("):
            sizes.append(self.number())
            while len(sizes) < most and self.accept(","):
                sizes.append(self.number())
            self.take(")")
        return sizes

    def _nested(self, keyword: str) -> DataType:
        self.take("<")
        self.levels += 1
        if self.levels > MOST_LEVELS:
            raise self.fail(f"types are nested up to {MOST_LEVELS} levels deep; one more begins")
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
        self.levels -= 1
        return nested_type

    def fields(self) -> tuple[RowField, ...]:
        fields = [self._field()]
        while self.accept(","):
            fields.append(self._field())
        return tuple(fields)

    def column(self) -> tuple[RowField, str | None]:
        name, kind = self._named_type()
        default = self._default(name, kind)
        return RowField(name=name, type=kind, comment=self._comment()), default

    def _default(self, column: str, kind: DataType) -> str | None:
        if not self.accept("DEFAULT"):
            return None
        from lakeward.model.types.literal import parse_leading_literal

        literal, self.at = parse_leading_literal(self.text, self.at)
        return literal.value_for(kind, column)

    def _field(self) -> RowField:
        name, kind = self._named_type()
        return RowField(name=name, type=kind, comment=self._comment())

    def _named_type(self) -> tuple[str, DataType]:
        name, is_quoted = self._name()
        while self.has_paths and not self.levels and self.text[self.at : self.at + 1] == ".":
            self.at += 1
            name += f".{self._name()[0]}"
        if not is_quoted and not self._is_type(self.peek()):
            more = self.text[self.at :].strip()[:40].split(",")[0].split(" ")[0]
            example = f" (a name that is not one word stands in backticks: `{name} {more}`)" if more else ""
            raise self.fail(f"{more or 'nothing'} is no type known here{example}")
        return name, self.parse()

    def _name(self) -> tuple[str, bool]:
        """And whether it was in backticks."""
        name = self.take()
        return (name[1:-1].replace("``", "`"), True) if name.startswith("`") else (name, False)

    def _comment(self) -> str | None:
        return self.take()[1:-1].replace("''", "'") if self.accept("COMMENT") else None
