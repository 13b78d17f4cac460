# SPDX-License-Identifier: Apache-2.0
"""Fields inside of a column: each ROW field has an id within its column, so that values are found after it was renamed,
moved or dropped. Pure.

A column's `field_ids` are those of its ROW fields, in the order in which its type spells them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Protocol

from lakeward.errors import InvalidAlter
from lakeward.model.types import ArrayType, DataType, MapType, RowField, RowType

FIRST = ""
"""In place of the column or field that another one is to stand after."""

ELEMENT, KEY, VALUE = "element", "key", "value"


class NestedColumn(Protocol):
    """A column, or one that is added."""

    @property
    def name(self) -> str: ...
    @property
    def type(self) -> DataType: ...
    @property
    def comment(self) -> str | None: ...
    @property
    def default(self) -> str | None: ...
    @property
    def field_ids(self) -> tuple[int, ...]: ...
    @property
    def highest_field(self) -> int: ...


@dataclass(frozen=True, kw_only=True)
class TypeNode:
    """A type with its parts: fields of a ROW, which have ids; the element of an ARRAY; key and value of a MAP."""

    kind: DataType
    parts: tuple[FieldNode, ...] = ()

    def build(self) -> DataType:
        types = [part.node.build() for part in self.parts]
        match self.kind:
            case ArrayType():
                return replace(self.kind, element=types[0])
            case MapType():
                return replace(self.kind, key=types[0], value=types[1])
            case RowType():
                fields = zip(self.parts, types, strict=True)
                return replace(
                    self.kind, fields=tuple(RowField(name=p.name, type=t, comment=p.comment) for p, t in fields)
                )
        return self.kind

    def field_ids(self) -> Iterator[int]:
        for part in self.parts:
            yield from (part.field_id,) if part.field_id else ()
            yield from part.node.field_ids()

    def by_id(self) -> dict[int, FieldNode]:
        return {part.field_id: part for part in self.parts}


@dataclass(frozen=True, kw_only=True)
class FieldNode:
    name: str
    node: TypeNode
    field_id: int = 0
    """0: the element of an ARRAY, the key or value of a MAP."""
    comment: str | None = None


@dataclass(frozen=True, kw_only=True)
class FieldChanges:
    """Changes of one column's fields, by their paths within it."""

    add: Mapping[str, NestedColumn]
    rename: Mapping[str, str]
    drop: Sequence[str]
    widen: Mapping[str, DataType]
    nullable: Sequence[str]
    comments: Mapping[str, str | None]
    after: Mapping[str, str]


def type_node(column: NestedColumn) -> TypeNode:
    return _node(column.type, iter(column.field_ids))


def change_fields(
    table: str, column: NestedColumn, changes: FieldChanges, may_widen: Callable[[DataType, DataType], bool]
) -> tuple[DataType, tuple[int, ...], int]:
    """The column's type with these changes, the ids of its fields, and the highest that was ever given. Raises
    `InvalidAlter`."""
    change = _Change(table, column, changes, may_widen)
    node = change.apply(type_node(column), "")
    change.check_all_done()
    return node.build(), tuple(node.field_ids()), change.highest


def find_broken(old: TypeNode, new: TypeNode, may_widen: Callable[[DataType, DataType], bool]) -> str | None:
    """Why values of the one type cannot be read as the other, found by field ids; None: they can."""
    if not old.parts or not new.parts:
        return None if not (old.parts or new.parts) and may_widen(old.kind, new.kind) else "values may not fit"
    if type(old.kind) is not type(new.kind):
        return "values may not fit"
    before = old.by_id() if isinstance(old.kind, RowType) else dict(enumerate(old.parts))
    after = new.by_id() if isinstance(new.kind, RowType) else dict(enumerate(new.parts))
    for number, part in after.items():
        old_part = before.get(number)
        if old_part is None:
            if not part.node.kind.nullable:
                return f"field {part.name} must be nullable: older rows have no value for it"
            continue
        if old_part.node.kind.nullable and not part.node.kind.nullable:
            return f"field {part.name}: older rows may have nulls"
        if isinstance(new.kind, MapType) and part.name == KEY and old_part.node != part.node:
            return "the keys of a map stay as they are"
        if reason := find_broken(old_part.node, part.node, may_widen):
            return reason
    return None


class _Change:
    def __init__(
        self, table: str, column: NestedColumn, changes: FieldChanges, may_widen: Callable[[DataType, DataType], bool]
    ) -> None:
        self._table, self._column, self._changes, self._may_widen = table, column, changes, may_widen
        self.highest = column.highest_field
        named = (changes.add, changes.rename, changes.drop, changes.widen, changes.nullable, changes.comments)
        self._waiting = {path for paths in named for path in paths}

    def check_all_done(self) -> None:
        for path in self._waiting:
            raise self._wrong(path, "there is no such field")

    def apply(self, node: TypeNode, path: str) -> TypeNode:
        changes = self._changes
        parts = [self._changed(part, node.kind, f"{path}{part.name}") for part in node.parts]
        if not isinstance(node.kind, RowType):
            return replace(node, parts=tuple(p for p in parts if p is not None))
        fields = [p for p in parts if p is not None]
        for name, column in changes.add.items():
            if name.rpartition(".")[0] == path.removesuffix("."):
                fields.append(self._added(name, column))
        return replace(node, parts=self._ordered(path, fields))

    def _added(self, path: str, column: NestedColumn) -> FieldNode:
        self._waiting.discard(path)
        if not column.type.nullable or column.default is not None:
            raise self._wrong(path, "an added field is nullable, and has no default: older rows have no value for it")
        self.highest += 1
        field_id = self.highest
        ids = count(self.highest + 1)
        node = _node(column.type, ids)
        self.highest = next(ids) - 1
        return FieldNode(name=path.rpartition(".")[2], node=node, field_id=field_id, comment=column.comment)

    def _changed(self, part: FieldNode, inside: DataType, path: str) -> FieldNode | None:
        changes, is_field = self._changes, part.field_id > 0
        for named in (changes.rename, changes.drop, changes.comments):
            if path in named and not is_field:
                raise self._wrong(path, f"it is not a field but the {part.name} of {inside.keyword}")
        self._waiting.discard(path)
        if path in changes.drop:
            return None
        node = self.apply(part.node, f"{path}.")
        if path in changes.widen:
            new = changes.widen[path].with_nullable(node.kind.nullable)
            if node.parts or not self._may_widen(node.kind, new) or (part.name == KEY and not is_field):
                raise self._wrong(path, f"values of {node.kind.sql} may not fit into {new.sql}")
            node = replace(node, kind=new)
        if path in changes.nullable:
            if part.name == KEY and not is_field:
                raise self._wrong(path, "keys of a map are never null")
            node = replace(node, kind=node.kind.with_nullable(True))
        name, comment = changes.rename.get(path, part.name), changes.comments.get(path, part.comment)
        return replace(part, name=name, comment=comment, node=node)

    def _ordered(self, path: str, fields: list[FieldNode]) -> tuple[FieldNode, ...]:
        names = [f.name for f in fields]
        if not names or len(set(names)) < len(names):
            raise self._wrong(path.removesuffix("."), "a row has one field or more, each with a name of its own")
        by_name = {f.name: f for f in fields}
        for moved, before in self._changes.after.items():
            parent, _, name = moved.rpartition(".")
            if parent != path.removesuffix("."):
                continue
            if name not in by_name or (before != FIRST and before not in by_name) or name == before:
                raise self._wrong(moved, f"there is no such place after the change; there are {', '.join(names)}")
            fields.remove(by_name[name])
            fields.insert(0 if before == FIRST else fields.index(by_name[before]) + 1, by_name[name])
        return tuple(fields)

    def _wrong(self, path: str, reason: str) -> InvalidAlter:
        change = f"change field {self._column.name}.{path}"
        return InvalidAlter(table=self._table, change=change, reason=reason)


def _node(kind: DataType, ids: Iterator[int]) -> TypeNode:
    match kind:
        case ArrayType():
            return TypeNode(kind=kind, parts=(FieldNode(name=ELEMENT, node=_node(kind.element, ids)),))
        case MapType():
            key = FieldNode(name=KEY, node=_node(kind.key, ids))
            return TypeNode(kind=kind, parts=(key, FieldNode(name=VALUE, node=_node(kind.value, ids))))
        case RowType():
            return TypeNode(kind=kind, parts=tuple(_field(f, ids) for f in kind.fields))
    return TypeNode(kind=kind)


def _field(field: RowField, ids: Iterator[int]) -> FieldNode:
    field_id = next(ids)
    return FieldNode(name=field.name, field_id=field_id, comment=field.comment, node=_node(field.type, ids))
