# SPDX-License-Identifier: Apache-2.0
"""A write order: everything an executor needs to write one or more splits of a round, as versioned bytes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from lakeward.model import TIER, SnapshotId, Split, TableInfo, WorkKind, side_table
from lakeward.tiering.work.order import Order


@dataclass(frozen=True, kw_only=True)
class WriteOrder(Order):
    """Order of a round to executors. Splits that were not begun by the deadline are skipped. `compare_with`: the lake
    snapshot whose rows a KV snapshot is compared with, if the bucket was tiered before."""

    packed_as: ClassVar = ("write-order", 3)
    kind: ClassVar[WorkKind] = TIER

    splits: tuple[Split, ...] = ()
    compare_with: SnapshotId | None = None
    server_wait_s: float = 300.0
    held_rows: int = 0
    """A PK range of at most so many offsets is read once and folded in memory; longer ones are read twice."""

    beside: tuple[WriteOrder, ...] = ()
    """Orders of other sides' rounds whose splits lie in the same part of the log: the task reads that once."""

    patience_s: float = 15.0
    """How long a writer beside others may take nothing before they go on without it."""

    @property
    def lake_table(self) -> TableInfo:
        """As the side's lake has it."""
        return side_table(self.table, self.side)

    def with_splits(self, splits: tuple[Split, ...], *, is_first: bool = False) -> WriteOrder:
        return replace(self, splits=splits, is_first=is_first)
