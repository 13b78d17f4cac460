# SPDX-License-Identifier: Apache-2.0
"""What the coordinator knows of the lake."""

from __future__ import annotations

from dataclasses import dataclass, field

from lakeward.model.ids import NO_EPOCH, Epoch, RoundId, TableId
from lakeward.model.offsets import OffsetMap


@dataclass(frozen=True, kw_only=True)
class Committed:
    table_id: TableId
    offsets: OffsetMap = field(default_factory=OffsetMap)
    round_id: RoundId | None = None
    generation: int = 0
    epoch: Epoch = NO_EPOCH
    resync: bool = False
