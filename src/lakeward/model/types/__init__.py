# SPDX-License-Identifier: Apache-2.0
"""Column types: what a table's column may be, with its SQL spelling, and the visitor that turns a type into another
system's. Parsing the spelling lives in `sqltype`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Generic, Self, TypeVar

from lakeward.errors import InvalidRequest


@dataclass(frozen=True, kw_only=True)
class DataType:
    """A type and whether null is allowed. `str()` gives the SQL spelling, which `parse_type` reads back."""

    keyword: ClassVar[str]
    nullable: bool = True

    @property
    def sql(self) -> str:
        """The spelling without nullability."""
        return self.keyword

    def __str__(self) -> str:
        return self.sql if self.nullable else f"{self.sql} NOT NULL"

    def with_nullable(self, nullable: bool) -> Self:
        return replace(self, nullable=nullable)


@dataclass(frozen=True, kw_only=True)
class BooleanType(DataType):
    keyword = "BOOLEAN"


@dataclass(frozen=True, kw_only=True)
class Int8Type(DataType):
    keyword = "TINYINT"


@dataclass(frozen=True, kw_only=True)
class Int16Type(DataType):
    keyword = "SMALLINT"


@dataclass(frozen=True, kw_only=True)
class Int32Type(DataType):
    keyword = "INT"


@dataclass(frozen=True, kw_only=True)
class Int64Type(DataType):
    keyword = "BIGINT"


@dataclass(frozen=True, kw_only=True)
class Float32Type(DataType):
    keyword = "FLOAT"


@dataclass(frozen=True, kw_only=True)
class Float64Type(DataType):
    keyword = "DOUBLE"


@dataclass(frozen=True, kw_only=True)
class DecimalType(DataType):
    keyword = "DECIMAL"
    precision: int = 10
    scale: int = 0

    def __post_init__(self) -> None:
        if not (1 <= self.precision <= 38 and 0 <= self.scale <= self.precision):
            raise InvalidRequest(what=self.sql, reason="precision is 1 to 38, scale 0 to the precision")

    @property
    def sql(self) -> str:
        return f"DECIMAL({self.precision}, {self.scale})"


@dataclass(frozen=True, kw_only=True)
class FixedLengthType(DataType):
    length: int = 1

    def __post_init__(self) -> None:
        if self.length < 1:
            raise InvalidRequest(what=self.sql, reason="the length is 1 or more")

    @property
    def sql(self) -> str:
        return f"{self.keyword}({self.length})"


@dataclass(frozen=True, kw_only=True)
class CharType(FixedLengthType):
    keyword = "CHAR"


@dataclass(frozen=True, kw_only=True)
class StringType(DataType):
    keyword = "STRING"


@dataclass(frozen=True, kw_only=True)
class BinaryType(FixedLengthType):
    """A fixed number of bytes."""

    keyword = "BINARY"


@dataclass(frozen=True, kw_only=True)
class BytesType(DataType):
    keyword = "BYTES"


@dataclass(frozen=True, kw_only=True)
class DateType(DataType):
    keyword = "DATE"


@dataclass(frozen=True, kw_only=True)
class _PreciseType(DataType):
    """Fractional seconds of 0 to 9 digits."""

    precision: int = 6

    def __post_init__(self) -> None:
        if not 0 <= self.precision <= 9:
            raise InvalidRequest(what=self.sql, reason="the precision is 0 to 9")

    @property
    def sql(self) -> str:
        return f"{self.keyword}({self.precision})"


@dataclass(frozen=True, kw_only=True)
class TimeType(_PreciseType):
    keyword = "TIME"
    precision: int = 0


@dataclass(frozen=True, kw_only=True)
class TimestampType(_PreciseType):
    """A wall-clock time without a zone."""

    keyword = "TIMESTAMP"


@dataclass(frozen=True, kw_only=True)
class TimestampLtzType(_PreciseType):
    """An instant; stored in UTC."""

    keyword = "TIMESTAMP_LTZ"


@dataclass(frozen=True, kw_only=True)
class ArrayType(DataType):
    keyword = "ARRAY"
    element: DataType

    @property
    def sql(self) -> str:
        return f"ARRAY<{self.element}>"


@dataclass(frozen=True, kw_only=True)
class VectorType(FixedLengthType):
    """A fixed number of 32-bit floats, none of them null: an embedding."""

    keyword = "VECTOR"

    @property
    def as_array(self) -> ArrayType:
        """How it is stored where there are no vectors."""
        return ArrayType(element=Float32Type(), nullable=self.nullable)


@dataclass(frozen=True, kw_only=True)
class MapType(DataType):
    """A map's key is never null, whatever was written: Arrow and every lake format demand it."""

    keyword = "MAP"
    key: DataType
    value: DataType

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", self.key.with_nullable(False))

    @property
    def sql(self) -> str:
        return f"MAP<{self.key.sql}, {self.value}>"


@dataclass(frozen=True, kw_only=True)
class RowField:
    name: str
    type: DataType
    comment: str | None = None

    def __str__(self) -> str:
        text = f"{quote_name(self.name)} {self.type}"
        return f"{text} COMMENT {quote_text(self.comment)}" if self.comment is not None else text


@dataclass(frozen=True, kw_only=True)
class RowType(DataType):
    keyword = "ROW"
    fields: tuple[RowField, ...]

    def __post_init__(self) -> None:
        names = [f.name for f in self.fields]
        if not names or len(set(names)) < len(names):
            raise InvalidRequest(what=self.sql, reason="a row has one field or more, each with a name of its own")

    @property
    def sql(self) -> str:
        return f"ROW<{', '.join(map(str, self.fields))}>"


def quote_name(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def quote_text(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


R = TypeVar("R")


def parts(kind: DataType) -> tuple[DataType, ...]:
    """The types inside a nested one; none of a plain one."""
    match kind:
        case ArrayType():
            return (kind.element,)
        case MapType():
            return kind.key, kind.value
        case RowType():
            return tuple(f.type for f in kind.fields)
    return ()


def leaves(kind: DataType) -> Iterator[DataType]:
    """The plain types that hold a column's values."""
    inner = parts(kind)
    if not inner:
        yield kind
    for part in inner:
        yield from leaves(part)


class TypeVisitor(ABC, Generic[R]):
    """`plain` reads the system's column of `typetable`; the others are given what the parts of a type became. `path`
    leads to the column, or to a part of it."""

    parts: ClassVar[tuple[str, str, str]] = ("element", "key", "value")
    """Path segments of an array's elements and a map's keys and values."""

    @abstractmethod
    def plain(self, kind: DataType, path: str) -> R:
        """Raises `UnsupportedType`."""

    @abstractmethod
    def array(self, kind: ArrayType, element: R) -> R: ...

    @abstractmethod
    def map(self, kind: MapType, key: R, value: R) -> R: ...

    @abstractmethod
    def row(self, kind: RowType, fields: Sequence[R], path: str) -> R: ...

    def vector(self, kind: VectorType, path: str) -> R:
        """Where there are no vectors: an array."""
        return self.visit(kind.as_array, path)

    def field(self, field: RowField, path: str) -> R:
        """Called with a row's field before the next field is visited."""
        return self.visit(field.type, path)

    def visit(self, kind: DataType, path: str) -> R:
        element, key, value = self.parts
        match kind:
            case ArrayType():
                return self.array(kind, self.visit(kind.element, f"{path}.{element}"))
            case VectorType():
                return self.vector(kind, path)
            case MapType():
                key_part = self.visit(kind.key, f"{path}.{key}")
                return self.map(kind, key_part, self.visit(kind.value, f"{path}.{value}"))
            case RowType():
                return self.row(kind, [self.field(f, f"{path}.{f.name}") for f in kind.fields], path)
        return self.plain(kind, path)
