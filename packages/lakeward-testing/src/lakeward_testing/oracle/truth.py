# SPDX-License-Identifier: Apache-2.0
"""What was written, in a dict and a list: what every reader must show."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lakeward_testing.oracle.values import spelled

Row = dict[str, Any]
Key = tuple[str, int]


@dataclass
class Truth:
    """`state` is the PK table, `events` the log table. A column that a writer did not know stays as it was."""

    state: dict[Key, Row] = field(default_factory=dict)
    events: list[Row] = field(default_factory=list)
    deleted_events: list[Row] = field(default_factory=list)
    """Rows of the log table that another engine deleted."""

    def upsert(self, rows: Iterable[Row]) -> None:
        for row in rows:
            key = row["p"], row["k"]
            self.state[key] = {**self.state.get(key, {}), **row}

    def delete(self, keys: Iterable[Key]) -> None:
        for key in keys:
            self.state.pop(key, None)

    def forget(self, numbers: Iterable[Any]) -> None:
        """Rows of the log table that another engine deleted."""
        deleted = set(numbers)
        self.deleted_events += [row for row in self.events if row["r"] in deleted]
        self.events = [row for row in self.events if row["r"] not in deleted]

    def append(self, rows: Iterable[Row]) -> None:
        self.events += rows


class Expected:
    """Rows that every reader must show, spelled once for all readers. `columns`: what the truth calls the columns that
    readers show as `names`."""

    def __init__(
        self, rows: Iterable[Mapping[str, Any]], names: Sequence[str], columns: Sequence[str] | None = None
    ) -> None:
        self.names, self._columns = tuple(names), tuple(names if columns is None else columns)
        self._rows = Counter(tuple(spelled(row.get(c)) for c in self._columns) for row in rows)

    def __len__(self) -> int:
        return self._rows.total()

    def of(self, rows: Iterable[Mapping[str, Any]]) -> Expected:
        """Other rows of the same table."""
        return Expected(rows, self.names, self._columns)

    def difference(self, shown: Iterable[Mapping[str, Any]]) -> str:
        """Empty when both are the same rows, each as often; else the columns that a row lacks, or the first rows that
        are missing or too many."""
        rows = list(shown)
        lacking = sorted({name for row in rows for name in self.names if name not in row})
        if lacking:
            return f"rows without the columns {', '.join(lacking)}"
        have = Counter(tuple(spelled(row[n]) for n in self.names) for row in rows)
        parts = [
            f"{difference.total()} rows {what}, as {count} x {dict(zip(self.names, row, strict=True))}"
            for what, difference in (("missing", self._rows - have), ("too many", have - self._rows))
            for row, count in sorted(difference.items(), key=str)[:2]
        ]
        return "\n".join(parts)


def difference(expected: Iterable[Mapping[str, Any]], shown: Iterable[Mapping[str, Any]], names: Sequence[str]) -> str:
    return Expected(expected, names).difference(shown)
