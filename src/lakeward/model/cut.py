# SPDX-License-Identifier: Apache-2.0
"""A cut: one moment across tables, and the lake snapshots that show each of them as it was then."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum

from lakeward.errors import InvalidRequest
from lakeward.model.ids import SnapshotId, TableId
from lakeward.model.offsets import Bucket, OffsetMap
from lakeward.model.side import SideName
from lakeward.model.tablepath import TablePath

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}")
_LONGEST = 63
LEAST_EVERY_MS = 10_000
MOST_KEPT = 10_000


@dataclass(frozen=True, kw_only=True)
class CutEnds:
    """Where a table's logs ended. `gone`: those of partitions that had been dropped before, which no longer move."""

    ends: OffsetMap
    gone: OffsetMap = field(default_factory=OffsetMap)

    def is_reached(self, offsets: Mapping[Bucket, int]) -> bool:
        """True if these offsets include every row of the cut."""
        return all(offsets.get(bucket, 0) >= end for bucket, end in self.ends.items())

    def covers(self, offsets: Mapping[Bucket, int]) -> bool:
        """Every row below these offsets is in the cut, or went with its partition."""
        return all(o <= self.ends.get(b, self.gone.get(b, 0)) for b, o in offsets.items())

    def is_passed(self, offsets: Mapping[Bucket, int]) -> bool:
        """... has rows that came after it."""
        return not self.covers(offsets)

    def is_at(self, offsets: Mapping[Bucket, int]) -> bool:
        return self.is_reached(offsets) and not self.is_passed(offsets)


class CutState(StrEnum):
    OPEN = "open"
    """Sides are on their way to it."""

    READY = "ready"
    """Every table can be read at it."""

    LOST = "lost"
    """A table never will be."""


@dataclass(frozen=True, kw_only=True)
class CutSide:
    """`snapshot_id` is the side's at exactly the cut; there is none where the table had no rows (`is_empty`), and where
    `lost` says why."""

    name: SideName
    snapshot_id: SnapshotId | None = None
    is_empty: bool = False
    lost: str = ""

    @property
    def is_readable(self) -> bool:
        return self.snapshot_id is not None or self.is_empty

    @property
    def is_settled(self) -> bool:
        return self.is_readable or bool(self.lost)


@dataclass(frozen=True, kw_only=True)
class CutTable:
    path: TablePath
    table_id: TableId
    ends: CutEnds
    sides: tuple[CutSide, ...]

    @property
    def state(self) -> CutState:
        if not all(side.is_settled for side in self.sides):
            return CutState.OPEN
        return CutState.READY if any(side.is_readable for side in self.sides) else CutState.LOST


@dataclass(frozen=True, kw_only=True)
class Cut:
    name: str
    created_at_ms: int
    tables: tuple[CutTable, ...]
    schedule: str = ""
    """The schedule that made it; empty: a person did."""

    @property
    def state(self) -> CutState:
        states = {table.state for table in self.tables}
        return next((s for s in (CutState.LOST, CutState.OPEN) if s in states), CutState.READY)

    @property
    def tag(self) -> str:
        """Name of its snapshots in lakes that support named snapshots."""
        return f"lakeward-cut-{self.name}"

    def find(self, path: TablePath) -> CutTable | None:
        return next((table for table in self.tables if table.path == path), None)


@dataclass(frozen=True, kw_only=True)
class CutSchedule:
    """A cut of these tables every so often, of which the newest are kept. `made_at_ms`: when the last one was made."""

    name: str
    tables: tuple[TablePath, ...]
    every_ms: int
    keep: int
    made_at_ms: int = 0

    @property
    def due_at_ms(self) -> int:
        return self.made_at_ms + self.every_ms if self.made_at_ms else 0

    def cut_name(self, at_ms: int) -> str:
        return f"{self.name}-{datetime.fromtimestamp(at_ms / 1000, UTC):%Y%m%dT%H%M%SZ}"


def check_schedule(schedule: CutSchedule) -> None:
    """Raises `InvalidRequest` for what cannot be a schedule of cuts."""
    what = f"cut schedule {schedule.name[:80]!r}"
    check_cut(schedule.name, schedule.tables)
    if len(schedule.cut_name(0)) > _LONGEST:
        reason = f"its cuts are called {schedule.cut_name(0)}, and a name is up to {_LONGEST} long"
        raise InvalidRequest(what=what, reason=reason)
    if schedule.every_ms < LEAST_EVERY_MS:
        raise InvalidRequest(what=what, reason=f"every {schedule.every_ms} ms is too often: 10 s at least")
    if not 1 <= schedule.keep <= MOST_KEPT:
        raise InvalidRequest(what=what, reason=f"it keeps from 1 to {MOST_KEPT:,} cuts, not {schedule.keep}")


def check_cut(name: str, paths: Sequence[TablePath]) -> None:
    """Raises `InvalidRequest` for what cannot be a cut."""
    if _NAME.fullmatch(name) is None:
        reason = "a name has letters, digits, - and _, begins with a letter or digit, and is up to 63 long"
        raise InvalidRequest(what=f"cut {name[:80]!r}", reason=reason)
    if not paths:
        raise InvalidRequest(what=f"cut {name}", reason="name at least one table")
    twice = [str(path) for at, path in enumerate(paths) if path in paths[:at]]
    if twice:
        raise InvalidRequest(what=f"cut {name}", reason=f"{twice[0]} is named twice")
