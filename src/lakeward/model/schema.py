# SPDX-License-Identifier: Apache-2.0
"""A table's columns at one moment, and the system columns that ride beside them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from lakeward.errors import InvalidTable
from lakeward.model.sqltype import parse_type
from lakeward.model.types import DataType

OFFSET = "__offset"
TIMESTAMP = "__timestamp"
CHANGE_TYPE = "__change_type"
PREV_OFFSET = "__prev_offset"
BUCKET = "__bucket"
SYSTEM_COLUMNS = frozenset({OFFSET, TIMESTAMP, CHANGE_TYPE, PREV_OFFSET, BUCKET})


@dataclass(frozen=True, kw_only=True)
class Column:
    name: str
    type: DataType
    comment: str | None = None

    def __post_init__(self) -> None:
        if not self.name or self.name != self.name.strip() or "\x00" in self.name:
            raise InvalidTable(
                table="?", field="column", value=self.name, reason="a name is not empty and has no outer blanks"
            )

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name, "type": str(self.type), "comment": self.comment}

    @classmethod
    def from_json(cls, body: dict[str, Any]) -> Column:
        return cls(name=body["name"], type=parse_type(body["type"]), comment=body.get("comment"))


@dataclass(frozen=True, kw_only=True)
class Schema:
    """Columns with the schema id that log batches carry. Ids start at 1 and grow by one with each ALTER."""

    columns: tuple[Column, ...]
    schema_id: int = 1

    def __post_init__(self) -> None:
        if not self.columns:
            raise InvalidTable(table="?", field="columns", value="", reason="a table has at least one column")
        seen: set[str] = set()
        for column in self.columns:
            if column.name in SYSTEM_COLUMNS:
                raise InvalidTable(
                    table="?", field="column", value=column.name, reason="this name is a system column's"
                )
            if column.name in seen:
                raise InvalidTable(table="?", field="column", value=column.name, reason="this name is there twice")
            seen.add(column.name)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(c.name for c in self.columns)

    def column(self, name: str) -> Column:
        for column in self.columns:
            if column.name == name:
                return column
        raise InvalidTable(
            table="?", field="column", value=name, reason=f"no such column; there are {', '.join(self.names)}"
        )

    def with_added(self, added: Iterable[Column]) -> Schema:
        return Schema(columns=(*self.columns, *added), schema_id=self.schema_id + 1)

    def to_json(self) -> dict[str, Any]:
        return {"schema_id": self.schema_id, "columns": [c.to_json() for c in self.columns]}

    @classmethod
    def from_json(cls, body: dict[str, Any]) -> Schema:
        return cls(schema_id=body["schema_id"], columns=tuple(Column.from_json(c) for c in body["columns"]))
