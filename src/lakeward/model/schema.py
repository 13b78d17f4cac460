# SPDX-License-Identifier: Apache-2.0
"""A table's columns at one moment, and the system columns that ride beside them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import NoneType
from typing import Any

from lakeward.errors import InvalidTable
from lakeward.model.tablepath import UNNAMED
from lakeward.model.types import DataType, RowType, parts
from lakeward.model.types.sqltype import parse_type

OFFSET = "__offset"
TIMESTAMP = "__timestamp"
CHANGE_TYPE = "__change_type"
PREV_OFFSET = "__prev_offset"
BUCKET = "__bucket"
SYSTEM_COLUMNS = frozenset({OFFSET, TIMESTAMP, CHANGE_TYPE, PREV_OFFSET, BUCKET})
CHANGE_TYPE_ID = -1
"""The column id of `__change_type`, where a lake table has it: the table's own go up from 1."""


_MOST = 2**31


def typed(kind: type | tuple[type, ...], value: Any, what: str) -> Any:
    """A field of a table's JSON. Raises `InvalidTable` for a value of another type, or a number beyond 32 bits."""
    kinds = kind if isinstance(kind, tuple) else (kind,)
    is_right = isinstance(value, kinds) and (not isinstance(value, bool) or bool in kinds)
    if not is_right or (isinstance(value, int) and not -_MOST <= value < _MOST):
        reason = f"{' or '.join(k.__name__ for k in kinds)} is expected, got {type(value).__name__}"
        raise InvalidTable(table=UNNAMED, field=what, value=str(value)[:100], reason=reason)
    return value


def count_fields(kind: DataType) -> int:
    """ROW fields inside of a type."""
    own = len(kind.fields) if isinstance(kind, RowType) else 0
    return own + sum(count_fields(part) for part in parts(kind))


@dataclass(frozen=True, kw_only=True)
class Column:
    name: str
    type: DataType
    comment: str | None = None
    column_id: int = field(default=0, compare=False)
    """Its number in the table, from 1, for as long as the table lives: a rename keeps it, a drop does not give it away.
    0: not yet in a table."""
    default: str | None = None
    """The value, as `check_default` spells it, of rows that are older than the column and of rows whose writer leaves
    the column out. It never changes."""
    field_ids: tuple[int, ...] = field(default=(), compare=False)
    """Numbers of the ROW fields inside of it, in the order in which its type spells them: column ids within the column.
    A column that was stored before fields had numbers has them from 1 on."""
    highest_field: int = field(default=0, compare=False)
    """The highest number that a field of it ever had."""

    def __post_init__(self) -> None:
        fields = count_fields(self.type)
        if len(self.field_ids) != fields:
            object.__setattr__(self, "field_ids", tuple(range(1, fields + 1)))
        object.__setattr__(self, "highest_field", max((self.highest_field, *self.field_ids)))
        if not self.name or self.name != self.name.strip() or "\x00" in self.name:
            raise InvalidTable(
                table=UNNAMED, field="column", value=self.name, reason="a name is not empty and has no outer blanks"
            )

    def to_json(self) -> dict[str, Any]:
        body: dict[str, Any] = {"id": self.column_id, "name": self.name}
        body |= {"type": str(self.type), "comment": self.comment}
        if self.default is not None:
            body["default"] = self.default
        if (self.field_ids, self.highest_field) != (tuple(range(1, len(self.field_ids) + 1)), len(self.field_ids)):
            body |= {"field_ids": list(self.field_ids), "highest_field": self.highest_field}
        return body

    @classmethod
    def from_json(cls, body: dict[str, Any]) -> Column:
        """Raises `InvalidTable` where a field has another type."""
        return cls(
            name=typed(str, body.get("name"), "column"),
            type=parse_type(typed(str, body.get("type"), "type")),
            comment=typed((str, NoneType), body.get("comment"), "comment"),
            column_id=typed(int, body.get("id", 0), "column id"),
            default=typed((str, NoneType), body.get("default"), "default"),
            field_ids=tuple(typed(int, i, "field id") for i in typed(list, body.get("field_ids", []), "field ids")),
            highest_field=typed(int, body.get("highest_field", 0), "highest field"),
        )


@dataclass(frozen=True, kw_only=True)
class Schema:
    """Columns with the schema id that log batches carry. Ids start at 1 and grow by one with each ALTER.

    Columns that come without an id get the next free ones, in order: so do those that were stored before columns had
    ids, alike in every schema of their table, as columns were only ever added last."""

    columns: tuple[Column, ...]
    schema_id: int = 1
    highest_id: int = field(default=0, compare=False)
    """The highest column id that this table ever gave away."""
    since_ms: int = field(default=0, compare=False)
    """When the table got this schema; 0: with its creation, or by a version of Lakeward that did not note it."""

    def __post_init__(self) -> None:
        if not self.columns:
            raise InvalidTable(table=UNNAMED, field="columns", value="", reason="a table has at least one column")
        seen: set[str] = set()
        for column in self.columns:
            if column.name in SYSTEM_COLUMNS and (column.name, column.column_id) != (CHANGE_TYPE, CHANGE_TYPE_ID):
                raise InvalidTable(
                    table=UNNAMED, field="column", value=column.name, reason="this name is a system column's"
                )
            if column.name in seen:
                raise InvalidTable(table=UNNAMED, field="column", value=column.name, reason="this name is there twice")
            seen.add(column.name)
        self._number_columns()

    def _number_columns(self) -> None:
        highest = max(self.highest_id, *(c.column_id for c in self.columns))
        numbered = []
        for column in self.columns:
            highest += not column.column_id
            numbered.append(column if column.column_id else replace(column, column_id=highest))
        if len({c.column_id for c in numbered}) < len(numbered):
            raise InvalidTable(table=UNNAMED, field="columns", value="", reason="a column id is there twice")
        object.__setattr__(self, "columns", tuple(numbered))
        object.__setattr__(self, "highest_id", highest)

    @cached_property
    def names(self) -> tuple[str, ...]:
        return tuple(c.name for c in self.columns)

    @cached_property
    def _by_name(self) -> dict[str, Column]:
        return {c.name: c for c in self.columns}

    @cached_property
    def by_id(self) -> dict[int, Column]:
        return {c.column_id: c for c in self.columns}

    def column(self, name: str) -> Column:
        if name in self._by_name:
            return self._by_name[name]
        raise InvalidTable(
            table=UNNAMED, field="column", value=name, reason=f"no such column; there are {', '.join(self.names)}"
        )

    def with_added(self, added: Iterable[Column]) -> Schema:
        fresh = (replace(c, column_id=0) for c in added)
        return Schema(columns=(*self.columns, *fresh), schema_id=self.schema_id + 1, highest_id=self.highest_id)

    def to_json(self) -> dict[str, Any]:
        columns = [c.to_json() for c in self.columns]
        body = {"schema_id": self.schema_id, "highest_id": self.highest_id, "columns": columns}
        return {**body, "since_ms": self.since_ms} if self.since_ms else body

    @classmethod
    def from_json(cls, body: dict[str, Any]) -> Schema:
        """Raises `InvalidTable`."""
        columns = tuple(Column.from_json(typed(dict, c, "column")) for c in typed(list, body.get("columns"), "columns"))
        schema_id = typed(int, body.get("schema_id"), "schema id")
        highest_id = typed(int, body.get("highest_id", 0), "highest id")
        since_ms = body.get("since_ms", 0)
        return cls(
            schema_id=schema_id,
            columns=columns,
            highest_id=highest_id,
            since_ms=since_ms if isinstance(since_ms, int) else 0,
        )
