# SPDX-License-Identifier: Apache-2.0
"""Changes of rows by key on their way into a group: in order per key, in few steps.

Changes of one key within a transaction become one. Changes of a key in later transactions of the same group go into
later waves; within a wave every key occurs once, so its changes can be stored by kind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from lakeward.model import TablePath
from lakeward.protocol.sources import Frame, FrameKind
from lakeward.spi.source import Step

MOST_WAVES = 64
"""A group with more changes of one key than this is due."""


class _Unset:
    def __repr__(self) -> str:
        return "UNSET"

    def __reduce__(self) -> str:
        return "UNSET"


UNSET = _Unset()
"""A value that a change does not carry, as it stays what it is."""


@dataclass(frozen=True, slots=True)
class Stored:
    """A value that was read from the table: it has the column's type already."""

    value: Any


Key = tuple[Any, ...]
Row = Sequence[Any]


@dataclass(eq=False)
class ChangedTable:
    """A table that changes arrive for. `to_arrow` converts rows of raw values of the named columns."""

    path: TablePath
    columns: tuple[str, ...]
    key: tuple[str, ...]
    to_arrow: Callable[[tuple[str, ...], Sequence[Row]], pa.Table]
    places: tuple[int, ...] = field(init=False)

    def __post_init__(self) -> None:
        self.places = tuple(self.columns.index(name) for name in self.key)

    def key_of(self, row: Row) -> Key:
        return tuple(row[place] for place in self.places)


_Op = Row | None
"""A row, perhaps with unset values; None: the key is deleted."""

_Batch = tuple[FrameKind, tuple[str, ...] | None]


class ChangeSet:
    """The changes of one group. Not thread-safe."""

    def __init__(self) -> None:
        self.rows = self.bytes = self._waves_used = 0
        self._open: dict[tuple[ChangedTable, Key], _Op] = {}
        self._counts: dict[tuple[ChangedTable, Key], int] = {}
        self._latest: dict[tuple[ChangedTable, Key], _Op] = {}
        self._waves: list[dict[ChangedTable, dict[_Batch, list[Row]]]] = []
        self._steps: list[Step] = []

    @property
    def is_empty(self) -> bool:
        return not (self._open or self._waves or self._steps)

    @property
    def is_due(self) -> bool:
        return self._waves_used >= MOST_WAVES

    def upsert(self, table: ChangedTable, row: Row, size: int = 0) -> None:
        """`row` has a value for each column of the table, or `UNSET`."""
        place = table, table.key_of(row)
        before = self._open.get(place)
        if before is not None and UNSET in row:
            row = [old if new is UNSET else new for old, new in zip(before, row, strict=True)]
        self._open[place] = row
        self.bytes += size

    def delete(self, table: ChangedTable, key: Key) -> None:
        self._open[table, key] = None
        self.bytes += 16

    def find(self, table: ChangedTable, key: Key) -> tuple[bool, _Op]:
        """Whether this group has changed the key, and the newest row."""
        place = table, key
        if place in self._open:
            return True, self._open[place]
        return place in self._latest, self._latest.get(place)

    def truncate(self, table: ChangedTable) -> None:
        """Everything before it, of the open transaction too, comes first."""
        self.end_transaction()
        self._close_waves()
        self._steps.append(Step(frame=Frame(table=table.path, kind=FrameKind.TRUNCATE), rows=pa.table({})))
        for place in [place for place in self._latest if place[0] is table]:
            self._latest[place] = None

    def end_transaction(self) -> None:
        for place, op in self._open.items():
            wave = self._counts.get(place, 0)
            self._counts[place] = wave + 1
            self._waves_used = max(self._waves_used, wave + 1)
            while len(self._waves) <= wave:
                self._waves.append({})
            table, key = place
            batches = self._waves[wave].setdefault(table, {})
            kind, values = _batch_of(table, key, op)
            batches.setdefault(kind, []).append(values)
            self._latest[place] = self._merged(place, op)
            self.rows += 1
        self._open.clear()

    def steps(self) -> Iterator[Step]:
        """All steps in order; the set is empty afterwards."""
        self.end_transaction()
        self._close_waves()
        steps = self._steps
        self.__init__()  # type: ignore[misc]
        yield from steps

    def _merged(self, place: tuple[ChangedTable, Key], op: _Op) -> _Op:
        before = self._latest.get(place)
        if op is None or before is None or UNSET not in op:
            return op
        return [old if new is UNSET else new for old, new in zip(before, op, strict=True)]

    def _close_waves(self) -> None:
        for wave in self._waves:
            for table, batches in wave.items():
                for (kind, columns), rows in batches.items():
                    names = table.key if kind is FrameKind.DELETE else columns or table.columns
                    frame = Frame(table=table.path, kind=kind, columns=columns)
                    self._steps.append(Step(frame=frame, rows=table.to_arrow(names, rows)))
        self._waves.clear()
        self._counts.clear()
        self._waves_used = 0


def _batch_of(table: ChangedTable, key: Key, op: _Op) -> tuple[_Batch, Row]:
    if op is None:
        return (FrameKind.DELETE, None), key
    if UNSET not in op:
        return (FrameKind.UPSERT, None), op
    columns = tuple(name for name, value in zip(table.columns, op, strict=True) if value is not UNSET)
    return (FrameKind.UPDATE, columns), [value for value in op if value is not UNSET]
