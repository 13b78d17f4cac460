# SPDX-License-Identifier: Apache-2.0
"""A table's past as its log tells it: snapshots, and which commits of ours the head stands on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from lakeward.model import SnapshotId
from lakeward.spi import LakeTotals


@dataclass(frozen=True, kw_only=True)
class LogSnapshot:
    """One snapshot. `keys`: what our commit wrote about itself; empty for a foreign snapshot. `facts`: what else it
    says, for people. `operation`: append, overwrite, replace or delete. `adds_rows`, `removes_rows`: whether a foreign
    snapshot may have done that other than by moving rows between files."""

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
