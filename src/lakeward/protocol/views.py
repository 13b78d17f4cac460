# SPDX-License-Identifier: Apache-2.0
"""The coordinator's views of tables, jobs, rounds and the queue, for the dashboard, the command line and the client."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from lakeward.model import (
    DEFAULT_SIDE,
    TIER,
    Epoch,
    InstanceId,
    JobName,
    OffsetMap,
    RoundId,
    RoundPhases,
    SideName,
    SnapshotId,
    TableId,
    TablePath,
    TableState,
    WorkKind,
)
from lakeward.protocol.heartbeat import Progress


@dataclass(frozen=True, kw_only=True)
class WorkStatus:
    """One kind of work on a side. `job` has it now; None: no job does."""

    kind: WorkKind
    epoch: Epoch
    job: JobName | None = None
    round_id: RoundId | None = None
    since_ms: int | None = None
    progress: Progress | None = None
    failures: int = 0
    failures_in_a_row: int = 0
    last_duration_ms: int | None = None
    retry_at_ms: int | None = None
    debt_files: int | None = None
    """For compactions: superfluous files left by the last one. None: none has run."""

    debt_rows: int = 0
    """... and deleted rows in such files, which every reader reads and drops."""


@dataclass(frozen=True, kw_only=True)
class TableStatus:
    """One side of a table now. State, epoch, job, failures and durations are those of its rounds; `work` has every
    kind. `lag_ms`: how long the oldest waiting row has waited; 0 when nothing waits."""

    path: TablePath
    table_id: TableId
    state: TableState
    epoch: Epoch
    freshness_ms: int
    pool: str = "default"
    priority: int = 0
    lag_ms: int = 0
    waiting_rows: int = 0
    deadline_at_ms: int | None = None
    slack_ms: int | None = None
    job: JobName | None = None
    token: str | None = field(default=None, metadata={"was": "last_round"})
    """The newest round that the lake has."""

    last_tiered_at_ms: int | None = None
    last_duration_ms: int | None = None
    failures: int = 0
    failures_in_a_row: int = 0
    misses: int = 0
    reason: str | None = None
    feasible: bool = True
    served: bool = True
    lake_rows: int | None = None
    lake_bytes: int | None = None
    lake_files: int | None = None
    lake_delete_files: int | None = None
    lake_snapshots: int | None = None
    generation: int = 0
    side: SideName = DEFAULT_SIDE
    work: tuple[WorkStatus, ...] = ()
    stopped_buckets: int = 0
    """Buckets that take no writes; `reason` says why one of them does not, unless there is another reason."""

    blocked: str = ""
    """Why its rows do not reach the lake until somebody does something; empty where they do, or are not meant to."""

    @property
    def debt_files(self) -> int:
        """Files that need not be there, as far as a compaction has looked."""
        return sum(w.debt_files or 0 for w in self.work)

    @property
    def debt_rows(self) -> int:
        """Deleted rows in files that a compaction would rewrite, as far as one has looked."""
        return sum(w.debt_rows for w in self.work)


@dataclass(frozen=True, kw_only=True)
class JobStatus:
    name: JobName
    instance: InstanceId
    pool: str
    slots: int | None
    """None: not known, as of a job that another process runs on a Fluss cluster."""

    live: bool
    last_beat_at_ms: int
    host: str = ""
    version: str = ""
    working_on: tuple[TablePath, ...] = ()
    progress: dict[str, Progress] = field(default_factory=dict)
    expected: bool = False
    kinds: tuple[WorkKind, ...] = (TIER,)
    memory_bytes: int | None = None
    clock_apart_ms: int | None = None
    """How far its clock was ahead of the server's at its last beat."""

    beats_missed: int = 0
    """Heartbeats since the last one that should have come; its lease ends much later."""

    state: str = ""
    """For people: live, late, silent, left, or never seen."""


@dataclass(frozen=True, kw_only=True)
class RoundStatus:
    """A round that ended, with its phases; of any kind of work."""

    round_id: RoundId
    path: TablePath
    epoch: Epoch
    job: JobName
    outcome: str
    started_at_ms: int
    ended_at_ms: int
    phases: RoundPhases
    snapshot_id: SnapshotId | None = None
    rows: int = 0
    deletes: int = 0
    bytes_written: int = 0
    files: int = 0
    error: dict[str, Any] | None = None
    side: SideName = DEFAULT_SIDE
    kind: WorkKind = TIER
    bytes_read: int = 0
    """Size of the files that a compaction rewrote."""

    files_replaced: int = 0
    groups_left_out: int = 0
    """Groups of files that were rewritten for nothing: one of them was gone when it came to the commit."""

    read_with: tuple[SideName, ...] = ()
    """Sides whose rounds got their rows from the same read of the log."""

    log_bytes: int = 0
    """Bytes of the log read for this round; a read shared by several rounds is counted in one of them."""


@dataclass(frozen=True, kw_only=True)
class LagExplanation:
    """Which part of a table's lag is what, with a sentence for people."""

    path: TablePath
    lag_ms: int
    parts_ms: dict[str, int]
    words: str
    committed: OffsetMap = field(default_factory=OffsetMap)
    side: SideName = DEFAULT_SIDE
