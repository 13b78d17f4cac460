# SPDX-License-Identifier: Apache-2.0
"""The columns of a play's table, and how they change. A column keeps its first name as its id when it is renamed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from random import Random
from typing import Any

FEWEST, MOST = 4, 13
"""Columns beside the key: none is dropped below the first number, none added above the second."""

WIDER = {"TINYINT": "BIGINT", "SMALLINT": "BIGINT", "INT": "BIGINT", "FLOAT": "DOUBLE"}


class AlterationKind(StrEnum):
    ADD = "add"
    RENAME = "rename"
    DROP = "drop"
    WIDEN = "widen"


@dataclass(frozen=True, kw_only=True)
class Alteration:
    """`column`: its name before. `new`: the new name, or the type of an added or widened column."""

    kind: AlterationKind
    column: str
    new: str = ""

    def __str__(self) -> str:
        return f"{self.kind} {self.column} {self.new}".rstrip()

    @property
    def arguments(self) -> dict[str, Any]:
        """Of `Client.alter_table`."""
        arguments: dict[AlterationKind, dict[str, Any]] = {
            AlterationKind.ADD: {"add_columns": f"{self.column} {self.new}"},
            AlterationKind.RENAME: {"rename": {self.column: self.new}},
            AlterationKind.DROP: {"drop": self.column},
            AlterationKind.WIDEN: {"widen": {self.column: self.new}},
        }
        return arguments[self.kind]

    def is_made(self, types: Mapping[str, str]) -> bool:
        """In a table with these columns."""
        return {
            AlterationKind.ADD: self.column in types,
            AlterationKind.RENAME: self.new in types,
            AlterationKind.DROP: self.column not in types,
            AlterationKind.WIDEN: types.get(self.column) == self.new,
        }[self.kind]


class PlayColumns:
    """`first`: column -> type when the table was made. `names`, `kinds`: those of today's columns."""

    def __init__(self, kinds: Sequence[str]) -> None:
        self.first = {f"c{n}": kind for n, kind in enumerate(kinds)}
        self.kinds, self.names = dict(self.first), {column: column for column in self.first}
        self._count, self._free_names = len(self.first), list[str]()

    @property
    def by_name(self) -> dict[str, str]:
        return {name: self.kinds[column] for column, name in self.names.items()}

    def draw(self, chance: Random, kinds: Sequence[str], *, adds_only: bool) -> Alteration | None:
        """An added column may have the name of a dropped one, whose values it must not show."""
        kind = AlterationKind.ADD if adds_only else chance.choice(list(AlterationKind))
        name = chance.choice(list(self.names.values()))
        if kind is AlterationKind.ADD:
            reused = chance.random() < 0.5 and self._free_names
            name = chance.choice(self._free_names) if reused else f"c{self._count}"
            return None if len(self.names) >= MOST else Alteration(kind=kind, column=name, new=chance.choice(kinds))
        if kind is AlterationKind.RENAME:
            return Alteration(kind=kind, column=name, new=f"{name[:9]}_{self._count}_{chance.randrange(1_000)}")
        if kind is AlterationKind.DROP:
            return None if len(self.names) <= FEWEST else Alteration(kind=kind, column=name)
        wider = {name: WIDER[k] for name, k in self.by_name.items() if k in WIDER}
        name = chance.choice(list(wider) or [name])
        return Alteration(kind=kind, column=name, new=wider[name]) if wider else None

    def apply(self, change: Alteration) -> None:
        if change.kind is AlterationKind.ADD:
            column = f"c{self._count}"
            self._count += 1
            self._free_names = [name for name in self._free_names if name != change.column]
            self.names[column], self.kinds[column] = change.column, change.new
            return
        column = next(c for c, name in self.names.items() if name == change.column)
        if change.kind is AlterationKind.RENAME:
            self.names[column] = change.new
            self._free_names.append(change.column)
        elif change.kind is AlterationKind.WIDEN:
            self.kinds[column] = change.new
        else:
            del self.names[column], self.kinds[column]
            self._free_names.append(change.column)
