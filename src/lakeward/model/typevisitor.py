# SPDX-License-Identifier: Apache-2.0
"""One way through a column type: a visitor turns it into what another system has for it, part by part."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import ClassVar, Generic, TypeVar

from lakeward.model.types import ArrayType, DataType, MapType, RowField, RowType, VectorType

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
    """What a path says of an array's elements, and a map's keys and values."""

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
