# SPDX-License-Identifier: Apache-2.0
"""The ledger: which offset range of which bucket each lake snapshot added. The proof of exactly-once."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from lakeward.model.bucket import Bucket
from lakeward.model.ids import Epoch, JobName, RoundId, SnapshotId, TableId
from lakeward.model.offsets import OffsetRange
from lakeward.model.side import DEFAULT_SIDE, SideName


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
"""What the round ids of gaps begin with that no row ever had: the log went on above them."""


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
