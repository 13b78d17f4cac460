# SPDX-License-Identifier: Apache-2.0
"""Work for one task on an executor, of the kind that runs it there, as versioned bytes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from lakeward.model import DEFAULT_SIDE, RoundId, RoundOwner, SideName, TableInfo, WorkKind
from lakeward.protocol.codec import Packed
from lakeward.protocol.heartbeat import LeaseCheck
from lakeward.spi import Plugin


@dataclass(frozen=True, kw_only=True)
class Order(Packed):
    """`deadline_at_ms`: work stops at the next boundary of batches or row groups after it, but for the first order of
    a round (`is_first`), which works for `min_work_s` at least: a late round still moves. `flag`: a file of the
    driver's machine that says stop."""

    kind: ClassVar[WorkKind]

    round_id: RoundId
    owner: RoundOwner
    table: TableInfo
    hot: Plugin
    lake: Plugin
    handle: bytes = field(default=b"", repr=False)
    side: SideName = DEFAULT_SIDE
    deadline_at_ms: int | None = None
    flag: str | None = None
    is_first: bool = False
    min_work_s: float = 0.0

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
