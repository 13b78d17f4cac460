# SPDX-License-Identifier: Apache-2.0
"""A write order: everything an executor needs to write one or more splits of a round, as versioned bytes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from lakeward.model.ids import RoundId, SnapshotId
from lakeward.model.round import RoundOwner
from lakeward.model.side import DEFAULT_SIDE, TIER, SideName, WorkKind
from lakeward.model.split import Split
from lakeward.model.table import TableInfo
from lakeward.protocol.heartbeat import LeaseCheck
from lakeward.protocol.packed import Packed
from lakeward.spi.plugins import Plugin


@dataclass(frozen=True, kw_only=True)
class WriteOrder(Packed):
    """What a round sends to executors.

    `deadline_at_ms`: log splits stop at the next batch boundary after it, unstarted splits are skipped, but for the
    round's first order (`is_first`), which works for `min_work_s` at least: a late round still moves. `flag`: a file of
    the driver's machine that says stop. `compare_with`: the lake snapshot whose rows a KV snapshot is compared with,
    where the bucket was tiered before."""

    packed_as: ClassVar = ("write-order", 2)
    kind: ClassVar[WorkKind] = TIER

    round_id: RoundId
    owner: RoundOwner
    table: TableInfo
    side: SideName = DEFAULT_SIDE
    handle: bytes
    hot: Plugin
    lake: Plugin
    splits: tuple[Split, ...] = ()
    deadline_at_ms: int | None = None
    flag: str | None = None
    is_first: bool = False
    compare_with: SnapshotId | None = None
    server_wait_s: float = 300.0
    min_work_s: float = 0.0
    held_rows: int = 0
    """A PK range of at most so many offsets is read once and folded in memory; longer ones are read twice."""

    def with_splits(self, splits: tuple[Split, ...], *, is_first: bool = False) -> WriteOrder:
        return replace(self, splits=splits, is_first=is_first)

    @property
    def lease(self) -> LeaseCheck:
        owner = self.owner
        return LeaseCheck(
            job=owner.job,
            instance=owner.instance,
            table_id=self.table.table_id,
            epoch=owner.epoch,
            round_id=self.round_id,
            side=self.side,
            kind=self.kind,
        )
