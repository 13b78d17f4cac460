# SPDX-License-Identifier: Apache-2.0
"""Records about a lake table: the ledger (which offset range of which bucket each snapshot added, the proof of
exactly-once), intents (made before a round writes files under a name prefix), and snapshots that expire."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from lakeward.model.ids import Epoch, JobName, RoundId, SnapshotId, TableId
from lakeward.model.offsets import Bucket, OffsetRange
from lakeward.model.side import DEFAULT_SIDE, TIER, SideName, WorkKind, parse_kind


class LedgerKind(StrEnum):
    ROUND = "round"
    ADOPTED = "adopted"
    """Taken over from the lake; may cover several rounds whose snapshots are gone."""

    GAP = "gap"
    """Offsets that the lake will never hold, recorded on purpose by an operator or a restore."""

    DROPPED = "dropped"
    """Offsets whose rows were in a changelog longer than it keeps them. Lies over entries of rounds; recorded before
    the lake lets the rows go."""


SKIPPED = "gap-"
"""Prefix of the round ids of offset gaps: the log continued above offsets that no row ever had."""


@dataclass(frozen=True, kw_only=True)
class LedgerEntry:
    """`rows` is None where rows were not counted (adopted ranges). `generation` grows with each resync."""

    table_id: TableId
    bucket: Bucket
    range: OffsetRange
    round_id: RoundId
    snapshot_id: SnapshotId | None
    epoch: Epoch
    job: JobName
    kind: LedgerKind = LedgerKind.ROUND
    rows: int | None = None
    generation: int = 0
    committed_at_ms: int = 0
    side: SideName = DEFAULT_SIDE


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


@dataclass(frozen=True, kw_only=True)
class ExpiringSnapshot:
    """A snapshot that its table's retention lets go. `trace` is its plugin's own: enough to find the snapshot's files
    once the table has forgotten it, and kept until they are deleted."""

    snapshot_id: SnapshotId
    trace: str = ""
