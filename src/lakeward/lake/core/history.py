# SPDX-License-Identifier: Apache-2.0
"""A table's past in its log: snapshots, our own commits among them, and how long snapshots are kept."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from lakeward.model import SnapshotId
from lakeward.spi import LakeTotals


@dataclass(frozen=True, kw_only=True)
class LogSnapshot:
    """One snapshot. `keys`: what our commit wrote about itself; empty for a foreign snapshot. `facts`: what else it
    says, for people. `operation`: append, overwrite, replace or delete. `adds_rows`, `removes_rows`: whether a foreign
    snapshot may have done that other than by moving rows between files. `is_snapshot`: false for a version that changes
    columns or properties alone, and has the rows of the one before. `restores`: the snapshot that this one went back
    to."""

    snapshot_id: SnapshotId
    parent_id: SnapshotId | None
    committed_at_ms: int
    operation: str
    sequence: int
    keys: Mapping[str, str] = field(default_factory=dict)
    facts: Mapping[str, str] = field(default_factory=dict)
    totals: LakeTotals | None = None
    """Of the table with this snapshot as its head, where they cost nothing."""

    adds_rows: bool = True
    removes_rows: bool = False
    is_snapshot: bool = True
    restores: SnapshotId | None = None


@dataclass(frozen=True)
class OwnCommit:
    """A commit of ours and its keys. Its snapshot may have left the log meanwhile."""

    snapshot_id: SnapshotId
    keys: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class OwnHistory:
    """Our commits as seen from the head. `newest`: the last one that landed, wherever the head is now. `stands_on`: the
    last one whose rows the head has. `counted`: keys of every commit whose fence and generation count; neither number
    goes back when somebody rolls the table back."""

    newest: OwnCommit | None = None
    stands_on: OwnCommit | None = None
    is_rolled_back: bool = False
    counted: tuple[Mapping[str, str], ...] = ()


MAX_AGE_KEY = "history.expire.max-snapshot-age-ms"
MIN_KEPT_KEY = "history.expire.min-snapshots-to-keep"
MAX_AGE_MS = 30 * 60 * 1000
"""The default history of every format: half an hour, which is 180 snapshots with a round every 10 s. Each commit reads
or writes something for each snapshot that is kept, in every format; a reader without a lease has half an hour for its
query. Written to a table when it is made, so that it stays what it was when this default changes."""

_OLD_MAX_AGE_MS = 5 * 24 * 3600 * 1000
"""Of tables without the property, which versions before 0.2.0 made: nobody's history ends by an upgrade."""


@dataclass(frozen=True)
class HistoryLimit:
    """`max_age_ms` counts from the moment when the next snapshot took a snapshot's place."""

    max_age_ms: int = MAX_AGE_MS
    min_kept: int = 1

    @classmethod
    def of(cls, properties: Mapping[str, str], prefix: str = "lakeward.") -> HistoryLimit:
        """`prefix`: of the names under which a format keeps the two properties."""
        age, kept = properties.get(prefix + MAX_AGE_KEY, ""), properties.get(prefix + MIN_KEPT_KEY, "")
        return cls(int(age) if age.isdigit() else _OLD_MAX_AGE_MS, int(kept) if kept.isdigit() else 1)


def new_history(prefix: str = "lakeward.") -> dict[str, str]:
    """What a new table is given."""
    return {f"{prefix}{MAX_AGE_KEY}": str(MAX_AGE_MS)}
