# SPDX-License-Identifier: Apache-2.0
"""What a compaction sends to executors and gets back, as versioned bytes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from lakeward.errors import LakewardError
from lakeward.model.ids import RoundId
from lakeward.model.round import RoundOwner
from lakeward.model.side import COMPACT, DEFAULT_SIDE, SideName, WorkKind
from lakeward.model.table import TableInfo
from lakeward.protocol.heartbeat import LeaseCheck
from lakeward.protocol.packed import Packed
from lakeward.spi.lake import RewriteGroup, RewriteResult
from lakeward.spi.plugins import Plugin


@dataclass(frozen=True, kw_only=True)
class RewriteOrder(Packed):
    """`deadline_at_ms`: a group ends at the next row-group boundary after it, and does not count. `flag`: a file of the
    driver's machine that says stop."""

    packed_as: ClassVar = ("rewrite-order", 2)
    kind: ClassVar[WorkKind] = COMPACT
    is_first: ClassVar[bool] = False
    min_work_s: ClassVar[float] = 0.0

    round_id: RoundId
    owner: RoundOwner
    table: TableInfo
    hot: Plugin
    lake: Plugin
    groups: tuple[RewriteGroup, ...]
    side: SideName = DEFAULT_SIDE
    deadline_at_ms: int | None = None
    flag: str | None = None
    handle: bytes = field(default=b"", repr=False)

    @property
    def lease(self) -> LeaseCheck:
        return LeaseCheck(
            job=self.owner.job,
            instance=self.owner.instance,
            table_id=self.table.table_id,
            epoch=self.owner.epoch,
            round_id=self.round_id,
            side=self.side,
            kind=self.kind,
        )


@dataclass(frozen=True, kw_only=True)
class RewriteOutcome(Packed):
    """What became of a group, by its index. Neither `payload` nor `error`: it came due before it was done."""

    packed_as: ClassVar = ("rewrite-outcome", 2)

    index: int
    payload: bytes | None = None
    rows: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    seconds: float = 0.0
    error: LakewardError | None = None

    def result(self, group: RewriteGroup) -> RewriteResult | None:
        if self.payload is None:
            return None
        return RewriteResult(
            group=group,
            payload=self.payload,
            rows=self.rows,
            bytes_read=self.bytes_read,
            bytes_written=self.bytes_written,
        )
