# SPDX-License-Identifier: Apache-2.0
"""What a job tells the coordinator after the lake has it, and what the coordinator knows of the lake."""

from __future__ import annotations

from dataclasses import dataclass, field

from lakeward.model.bucket import Bucket
from lakeward.model.ids import Epoch, InstanceId, JobName, RoundId, SnapshotId, TableId
from lakeward.model.ledger import LedgerKind
from lakeward.model.offsets import OffsetMap, OffsetRange
from lakeward.model.side import DEFAULT_SIDE, TIER, SideName, WorkKind


@dataclass(frozen=True, kw_only=True)
class CommittedRange:
    bucket: Bucket
    range: OffsetRange
    rows: int | None = None


@dataclass(frozen=True, kw_only=True)
class CommitReport:
    """A round that landed (`kind` round), or the lake's state taken over (`adopted`), or a gap on purpose.

    `offsets` is the whole map of the snapshot; `ranges` what this round added, empty when adopting."""

    table_id: TableId
    round_id: RoundId
    snapshot_id: SnapshotId | None
    epoch: Epoch
    job: JobName
    instance: InstanceId
    offsets: OffsetMap
    ranges: tuple[CommittedRange, ...] = ()
    kind: LedgerKind = LedgerKind.ROUND
    generation: int = 0
    fence: int = 0
    lake_rows: int | None = None
    lake_bytes: int | None = None
    lake_files: int | None = None
    lake_delete_files: int | None = None
    lake_snapshots: int | None = None
    side: SideName = DEFAULT_SIDE
    work: WorkKind = TIER
    """Work of another kind adds no offsets: it is remembered as known, with the figures of the lake after it."""


@dataclass(frozen=True, kw_only=True)
class CommitAnswer:
    """`first`: false when this round had been reported before."""

    first: bool
    offsets: OffsetMap


@dataclass(frozen=True, kw_only=True)
class Committed:
    """`token`: the newest round that the lake has."""

    table_id: TableId
    offsets: OffsetMap = field(default_factory=OffsetMap)
    token: str | None = field(default=None, metadata={"was": "round_id"})
    generation: int = 0
    side: SideName = DEFAULT_SIDE
