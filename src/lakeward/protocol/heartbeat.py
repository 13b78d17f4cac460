# SPDX-License-Identifier: Apache-2.0
"""Messages between a tiering job and the coordinator: on every heartbeat, and with which it reports commits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from lakeward.errors import InvalidRequest
from lakeward.model import (
    DEFAULT_SIDE,
    TIER,
    Bucket,
    Epoch,
    ExpiringSnapshot,
    InstanceId,
    JobName,
    LedgerKind,
    OffsetMap,
    OffsetRange,
    RoundId,
    RoundResult,
    SideName,
    SnapshotId,
    TableId,
    TableInfo,
    TablePath,
    WorkKind,
)

MOST_SLOTS = 100_000
WAITING_PER_SLOT = 4
"""A lake that goes down is found out by each of its tables; with one for each slot, four tables on two slots held up
tables of other lakes for 16 s."""

MOST_WORDS = 1_000
"""Characters of what a job says for people."""


PLANNING = "plan"


@dataclass(frozen=True, kw_only=True)
class Progress:
    """How far the splits of a round, or the groups of a compaction, are."""

    phase: str = PLANNING
    splits_done: int = 0
    splits_total: int = 0
    rows: int = 0
    trouble: str = ""
    """Why it waits before it can continue: a lake that does not answer."""

    def __post_init__(self) -> None:
        if len(self.trouble) > MOST_WORDS:
            raise InvalidRequest(what="Progress.trouble", reason=f"at most {MOST_WORDS} characters are allowed")

    @property
    def is_planning(self) -> bool:
        return self.phase == PLANNING


def busy_slots(works: Sequence[Progress], slots: int) -> int:
    """How many of a job's slots these take. What waits for a lake takes none, or a lake that is down for hours would
    hold up tables of every other one; not more than a few for each slot, since they go on together once it answers."""
    return len(works) - min(WAITING_PER_SLOT * slots, sum(bool(w.trouble) for w in works))


@dataclass(frozen=True, kw_only=True)
class TableInWork:
    table_id: TableId
    epoch: Epoch
    round_id: RoundId | None = None
    progress: Progress = field(default_factory=Progress)
    side: SideName = DEFAULT_SIDE
    kind: WorkKind = TIER


@dataclass(frozen=True, kw_only=True)
class TableFinished:
    """`result` None: there was nothing to do. `force_finished`: the round's limit came first;
    queue it again at once.
    """

    table_id: TableId
    epoch: Epoch
    round_id: RoundId | None = None
    result: RoundResult | None = None
    force_finished: bool = False
    caught_up_at_ms: int | None = None
    """When the log ends were frozen: everything acknowledged before is in the lake now."""

    side: SideName = DEFAULT_SIDE
    kind: WorkKind = TIER


@dataclass(frozen=True, kw_only=True)
class TableFailed:
    """`error` is the wire form of a typed error. `given_back`: not a failure (shutdown, lost race); no count, no
    back-off.
    """

    table_id: TableId
    epoch: Epoch
    error: dict[str, Any]
    round_id: RoundId | None = None
    given_back: bool = False
    side: SideName = DEFAULT_SIDE
    kind: WorkKind = TIER


@dataclass(frozen=True, kw_only=True)
class HeartbeatRequest:
    """`room` is how many more tables the job would take now; 0 asks for none. `leaving`: clean shutdown."""

    job: JobName
    instance: InstanceId
    pool: str = "default"
    slots: int = 1
    room: int = 0
    host: str = ""
    version: str = ""
    coordinator_epoch: int | None = None
    tiering: tuple[TableInWork, ...] = ()
    finished: tuple[TableFinished, ...] = ()
    failed: tuple[TableFailed, ...] = ()
    leaving: bool = False
    metrics_url: str | None = None
    kinds: tuple[WorkKind, ...] = (TIER,)
    """Kinds of work that this job supports: a job of an older version gets only rounds."""

    formats: tuple[str, ...] = ()
    """Lake formats that this job can open: it is handed no table of another. A job of an older version says
    none, and is handed all."""

    now_ms: int | None = None
    """The job's clock."""

    memory_bytes: int | None = None
    """Memory of the job's driver process."""

    wait_ms: int = 0
    """The job is idle: an answer without work may be held back so long, until a round is asked for. A server that did
    says that the next beat is due at once; one of an older version answers now."""

    reads_together: bool = False
    """Rounds of several sides of a table, when handed out in one answer, read the log once."""

    def __post_init__(self) -> None:
        if self.memory_bytes is not None and not 0 <= self.memory_bytes < 1 << 50:
            raise InvalidRequest(what="HeartbeatRequest.memory_bytes", reason="no process has so much")
        for name in ("slots", "room"):
            if not 0 <= getattr(self, name) <= MOST_SLOTS:
                raise InvalidRequest(what=f"HeartbeatRequest.{name}", reason=f"0 to {MOST_SLOTS} is allowed")


class Verdict(StrEnum):
    OK = "ok"
    FENCED = "fenced"
    """The lease is gone or another instance's: stop before committing."""

    DROPPED = "dropped"
    PAUSED = "paused"
    """Stop at a boundary; commit nothing more; give the table back."""

    FORCE_FINISH = "force-finish"
    """Stop splits at a batch boundary and commit what they have."""


@dataclass(frozen=True, kw_only=True)
class TableVerdict:
    table_id: TableId
    verdict: Verdict
    reason: str = ""
    round_id: RoundId | None = None
    side: SideName = DEFAULT_SIDE
    kind: WorkKind = TIER


@dataclass(frozen=True, kw_only=True)
class HandedOut:
    """Work for this job: a kind of it, on one side of a table."""

    table_id: TableId
    path: TablePath
    epoch: Epoch
    freshness_ms: int
    deadline_at_ms: int | None = None
    limit_ms: int | None = None
    """The longest the round may take before it is force-finished."""

    waited_s: float = 0.0
    resync: bool = False
    to_compare: tuple[Bucket, ...] | None = None
    """The buckets that are left of a resync; None: all."""

    generation: int = 0
    side: SideName = DEFAULT_SIDE
    kind: WorkKind = TIER
    committed: Committed | None = None
    """The coordinator's knowledge of the lake when it handed out the work; None: the job must ask."""

    reads_with: tuple[SideName, ...] = ()
    """Other sides of the table in the same answer whose rounds should read the log with this one."""

    table: TableInfo | None = None
    """The table as the coordinator knew it; None from one of an older version."""


@dataclass(frozen=True, kw_only=True)
class HeartbeatAnswer:
    coordinator_epoch: int
    verdicts: tuple[TableVerdict, ...] = ()
    tables: tuple[HandedOut, ...] = ()
    next_beat_ms: int = 5_000
    """When to beat again at the latest; the lease is many of these long."""


@dataclass(frozen=True, kw_only=True)
class LeaseCheck:
    """`expirable`: snapshots that the commit could take out of the lake table; `token`: the round id that the commit
    demands as the lake's newest, so that a commit with those can no longer land once the lake's token is another."""

    job: JobName
    instance: InstanceId
    table_id: TableId
    epoch: Epoch
    round_id: RoundId
    expirable: tuple[ExpiringSnapshot, ...] = ()
    token: str | None = None
    side: SideName = DEFAULT_SIDE
    kind: WorkKind = TIER


@dataclass(frozen=True, kw_only=True)
class LeaseVerdict:
    """Answer to a lease check. `expire`: those of the listed snapshots that have no reader and can no longer be leased;
    the commit may remove them."""

    held: bool
    reason: str = ""
    expire: tuple[SnapshotId, ...] = ()


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


@dataclass(frozen=True, kw_only=True)
class Committed:
    """`token`: the newest round that the lake has. `resync`: an operator accepted the lake as it is, and the next round
    brings it up to date from there. `to_compare`: the buckets that are left of it; None: all."""

    table_id: TableId
    offsets: OffsetMap = field(default_factory=OffsetMap)
    token: str | None = field(default=None, metadata={"was": "round_id"})
    generation: int = 0
    side: SideName = DEFAULT_SIDE
    resync: bool = False
    to_compare: tuple[Bucket, ...] | None = None


LEASED = "lakeward-leased"
"""The field that holds a `LeasedCommit` in the body of an Iceberg commit, and the `LeasedAnswer` in its answer."""


@dataclass(frozen=True, kw_only=True)
class LeasedCommit:
    """Travels with a lake commit to a catalog that is the coordinator's own: the commit takes effect only while the
    lease is held, takes out the snapshots that the verdict names, and is reported in the same call. The catalog adds
    the new snapshot and the lake's figures to the report."""

    check: LeaseCheck
    report: CommitReport

    def __post_init__(self) -> None:
        for name in ("job", "instance", "table_id", "epoch", "round_id", "side"):
            if getattr(self.check, name) != getattr(self.report, name):
                raise InvalidRequest(what=f"LeasedCommit.report.{name}", reason="it differs from the lease check's")


@dataclass(frozen=True, kw_only=True)
class LeasedAnswer:
    """`answer` None: the commit took effect and its report failed, so the job reports it in a call of its own. The
    figures are those of the lake after it."""

    lake_rows: int
    lake_bytes: int
    lake_files: int
    lake_delete_files: int
    lake_snapshots: int
    answer: CommitAnswer | None = None
