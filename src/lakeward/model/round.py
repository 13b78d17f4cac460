# SPDX-License-Identifier: Apache-2.0
"""A round as data: what it was planned on, what it will do, and how long its phases took."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from lakeward.model.ids import NO_EPOCH, Epoch, InstanceId, JobName, RoundId, SnapshotId
from lakeward.model.offsets import OffsetMap, Split
from lakeward.model.side import SideName
from lakeward.model.table import TableInfo


@dataclass(frozen=True, kw_only=True)
class LakeBase:
    """State of the lake that reconcile read and a round builds on. `token` is the round id of our newest snapshot
    (None: never tiered), `fence` the number that fencing raises, `head` the snapshot that main points to, ours or
    foreign (None: no snapshot). `loaded` is the table as the format's reader loaded it, for that format's committer,
    which need not load it again."""

    offsets: OffsetMap = field(default_factory=OffsetMap)
    token: str | None = None
    fence: int = 0
    head: SnapshotId | None = None
    epoch: Epoch = NO_EPOCH
    generation: int = 0
    is_resyncing: bool = False
    """A resync began this generation and has buckets left that it did not compare."""

    lake_rows: int | None = None
    loaded: object = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, kw_only=True)
class RoundPlan:
    """A printable plan. `splits` are in bucket order and, within a bucket, in offset order without gaps."""

    round_id: RoundId
    table: TableInfo
    base: LakeBase
    splits: tuple[Split, ...]
    planned_at_ms: int

    @property
    def is_empty(self) -> bool:
        return not self.splits


@dataclass(frozen=True, kw_only=True)
class RoundPhases:
    """Seconds spent in each phase; `slowest_split_s` explains `write_s`. `cpu_s`: processor time of the threads that
    did it, of all tasks."""

    wait_s: float = 0.0
    plan_s: float = 0.0
    write_s: float = 0.0
    slowest_split_s: float = 0.0
    resolve_s: float = 0.0
    commit_s: float = 0.0
    cpu_s: float = 0.0

    @property
    def total_s(self) -> float:
        return self.wait_s + self.plan_s + self.write_s + self.resolve_s + self.commit_s


@dataclass(frozen=True, kw_only=True)
class RoundResult:
    """Report of a finished round."""

    round_id: RoundId
    snapshot_id: SnapshotId | None
    rows: int = 0
    deletes: int = 0
    bytes_written: int = 0
    files: int = 0
    phases: RoundPhases = field(default_factory=RoundPhases)
    lake_bytes: int | None = None
    lake_rows: int | None = None
    bytes_read: int = 0
    files_replaced: int = 0
    """For a compaction: data files that it removed."""

    groups_left_out: int = 0
    """... groups that it rewrote for nothing, as another writer took an input."""

    debt_files: int | None = None
    """... files that need not have been there when it was planned, without the delete files that went with it."""

    debt_rows: int = 0
    """... deleted rows in files that it would have rewritten and left."""

    read_with: tuple[SideName, ...] = ()
    """For a round: sides whose rounds got their rows from the same read of the log."""

    log_bytes: int = 0
    """... what was read of the log for it; what was read for several rounds counts in one of them."""


@dataclass(frozen=True, kw_only=True)
class RoundOwner:
    """Who runs a round, under which epoch."""

    job: JobName
    instance: InstanceId
    epoch: Epoch


def describe_plan(plan: RoundPlan) -> list[dict[str, Any]]:
    """One plain row per split, for `lakeward explain`."""
    return [{"bucket": str(s.bucket), "split": str(s), "start": s.start, "stop": s.stop} for s in plan.splits]
