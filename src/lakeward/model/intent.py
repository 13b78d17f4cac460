# SPDX-License-Identifier: Apache-2.0
"""An intent: the record, made before writing, that a round will write files under a name prefix."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from lakeward.model.ids import RoundId, TableId
from lakeward.model.side import DEFAULT_SIDE, TIER, SideName, WorkKind, parse_kind


class IntentState(StrEnum):
    OPEN = "open"
    ABANDONED = "abandoned"
    COMMITTED = "committed"


@dataclass(frozen=True, kw_only=True)
class Intent:
    """`token` and `fence` are those of the lake when the round was planned; orphans go once they have changed."""

    round_id: RoundId
    table_id: TableId
    prefix: str
    token: str | None
    fence: int
    recorded_at_ms: int
    kind: WorkKind = TIER
    state: IntentState = IntentState.OPEN
    side: SideName = DEFAULT_SIDE

    def __post_init__(self) -> None:
        object.__setattr__(self, "kind", parse_kind(self.kind))
