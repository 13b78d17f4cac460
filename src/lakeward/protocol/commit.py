# SPDX-License-Identifier: Apache-2.0
"""Messages with which a job reports a commit to the coordinator."""

from __future__ import annotations

from dataclasses import dataclass

from lakeward.model import (
    DEFAULT_SIDE,
    TIER,
    Bucket,
    Epoch,
    InstanceId,
    JobName,
    LedgerKind,
    OffsetMap,
    OffsetRange,
    RoundId,
    SideName,
    SnapshotId,
    TableId,
    WorkKind,
)
from lakeward.protocol.committed import Committed as Committed
from lakeward.protocol.heartbeat import TableFinished


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

    resyncing: bool | None = None
    """Whether a resync has buckets left to compare after this commit; None from a job that does not say."""

    to_compare: tuple[Bucket, ...] = ()
    """Those buckets; empty where they are not known."""

    finished: TableFinished | None = None
    """The round's end, where its commit was the last thing to tell: recorded after the commit, in the same call."""


@dataclass(frozen=True, kw_only=True)
class CommitAnswer:
    """`first`: false when this round had been reported before. `is_finished`: the report's end is recorded too, and
    no heartbeat need tell it; false from a peer that takes none with a commit. `next_beat_ms`: how soon this job may be
    handed something."""

    first: bool
    offsets: OffsetMap
    is_finished: bool = False
    next_beat_ms: int = 0
