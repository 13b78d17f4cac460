# SPDX-License-Identifier: Apache-2.0
"""A table's history in its log: snapshots, our own commits among them, and how long snapshots are retained."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from lakeward.model import SnapshotId
from lakeward.spi import LakeTotals


@dataclass(frozen=True, kw_only=True)
class LogSnapshot:
    """One snapshot. `keys`: metadata that our commit wrote; empty for a foreign snapshot. `facts`: other facts, for
    people. `operation`: append, overwrite, replace or delete. `adds_rows`, `removes_rows`: whether a foreign snapshot
    may have added or removed rows other than by moving them between files. `is_snapshot`: false for a version that
    changes only columns or properties and has the rows of the version before. `restores`: the snapshot that this one
    went back to."""

    snapshot_id: SnapshotId
    parent_id: SnapshotId | None
    committed_at_ms: int
    operation: str
    sequence: int
    keys: Mapping[str, str] = field(default_factory=dict)
    facts: Mapping[str, str] = field(default_factory=dict)
    totals: LakeTotals | None = None
    """Figures of the table with this snapshot as its head, if they are available at no cost."""

    adds_rows: bool = True
    removes_rows: bool = False
    is_snapshot: bool = True
    restores: SnapshotId | None = None


@dataclass(frozen=True)
class OwnCommit:
    """One of our commits and its keys. Its snapshot may no longer be in the log."""

    snapshot_id: SnapshotId
    keys: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class OwnHistory:
    """Our commits as seen from the head. `newest`: the last one that landed, wherever the head is now. `stands_on`: the
    last one whose rows the head has. `counted`: keys of every commit whose fence and generation count; neither number
    decreases when someone rolls the table back."""

    newest: OwnCommit | None = None
    stands_on: OwnCommit | None = None
    is_rolled_back: bool = False
    counted: tuple[Mapping[str, str], ...] = ()


MAX_AGE_KEY = "history.expire.max-snapshot-age-ms"
MIN_KEPT_KEY = "history.expire.min-snapshots-to-keep"
MAX_AGE_MS = 30 * 60 * 1000
"""The default history of every format: half an hour, which is 180 snapshots with a round every 10 s. In every format,
each commit reads or writes something for each retained snapshot; a reader without a lease has half an hour for its
query. The value is written to each new table, so that a later change of this default does not affect it."""

_OLD_MAX_AGE_MS = 5 * 24 * 3600 * 1000
"""For tables without the property, created before 0.2.0: an upgrade does not shorten their history."""


@dataclass(frozen=True)
class HistoryLimit:
    """Limits of a table's history. `max_age_ms` counts from the moment when the next snapshot replaced a snapshot."""

    max_age_ms: int = MAX_AGE_MS
    min_kept: int = 1

    @classmethod
    def of(cls, properties: Mapping[str, str], prefix: str = "lakeward.") -> HistoryLimit:
        """`prefix`: the prefix of the two properties in this format."""
        age, kept = properties.get(prefix + MAX_AGE_KEY, ""), properties.get(prefix + MIN_KEPT_KEY, "")
        return cls(int(age) if age.isdigit() else _OLD_MAX_AGE_MS, int(kept) if kept.isdigit() else 1)


def new_history(prefix: str = "lakeward.") -> dict[str, str]:
    """Returns the history properties of a new table."""
    return {f"{prefix}{MAX_AGE_KEY}": str(MAX_AGE_MS)}
