# SPDX-License-Identifier: Apache-2.0
"""What was written, in a dict and a list: what every reader must show."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.oracle.values import spelled

Row = dict[str, Any]
Key = tuple[str, int]


@dataclass
class Truth:
    """`state` is the PK table, `events` the log table. A column that a writer did not know stays as it was."""

    state: dict[Key, Row] = field(default_factory=dict)
    events: list[Row] = field(default_factory=list)

    def upsert(self, rows: Iterable[Row]) -> None:
        for row in rows:
            key = row["p"], row["k"]
            self.state[key] = {**self.state.get(key, {}), **row}

    def delete(self, keys: Iterable[Key]) -> None:
        for key in keys:
            self.state.pop(key, None)

    def append(self, rows: Iterable[Row]) -> None:
        self.events += rows


def difference(expected: Iterable[Mapping[str, Any]], shown: Iterable[Mapping[str, Any]], names: Sequence[str]) -> str:
    """Empty when both are the same rows, each as often; else the first rows that are missing or too many."""
    want, got = (Counter(tuple(spelled(row.get(n)) for n in names) for row in rows) for rows in (expected, shown))
    told = [
        f"{count} x {what}: {dict(zip(names, row, strict=True))}"
        for what, rows in (("missing", want - got), ("too many", got - want))
        for row, count in sorted(rows.items())[:2]
    ]
    return "\n".join(told)
