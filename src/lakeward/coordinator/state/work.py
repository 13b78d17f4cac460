# SPDX-License-Identifier: Apache-2.0
"""One kind of work on one side: who holds it, how long it takes, how it went."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from lakeward.coordinator.state.estimate import DurationEstimate, RoundSample
from lakeward.model import NO_EPOCH, Epoch, InstanceId, JobName, RoundId, WorkKind
from lakeward.protocol.heartbeat import Progress
from lakeward.protocol.views import RoundStatus


@dataclass
class Lease:
    """A job's right to a round. `until` is monotonic time, so it is not stored: after a restart each gets a full
    period.
    """

    job: JobName
    instance: InstanceId
    granted_at_ms: int
    waited_ms: int = 0
    backlog_bytes: int = 0
    round_id: RoundId | None = None
    past_rounds: list[RoundId] = field(default_factory=list)
    until: float = 0.0
    granted_at: float = 0.0
    writing_at: float | None = None
    """When it was first reported to be past planning: its limit counts from here. Not stored."""

    progress: Progress = field(default_factory=Progress)

    def to_json(self) -> dict[str, Any]:
        return {
            "job": self.job,
            "instance": self.instance,
            "granted_at_ms": self.granted_at_ms,
            "waited_ms": self.waited_ms,
            "backlog_bytes": self.backlog_bytes,
            "round_id": self.round_id,
            "past_rounds": self.past_rounds[-8:],
        }

    @classmethod
    def from_json(cls, body: dict[str, Any]) -> Lease:
        return cls(**body)

    def bind(self, round_id: RoundId | None) -> bool:
        """A lease may go on with a new round (after a lost race), never back to an older one: false then."""
        if round_id is None or round_id == self.round_id:
            return True
        if round_id in self.past_rounds:
            return False
        if self.round_id is not None:
            self.past_rounds.append(self.round_id)
        self.round_id = round_id
        return True


@dataclass
class RoundTotals:
    """Totals of rounds since this coordinator started: counters for metrics, not stored."""

    rounds: int = 0
    rows: int = 0
    deletes: int = 0
    bytes: int = 0
    wait_s: float = 0.0
    commit_s: float = 0.0
    work_s: float = 0.0
    bytes_read: int = 0
    files_replaced: int = 0
    groups_left_out: int = 0
    sharing_read: int = 0
    log_bytes: int = 0

    def add(self, ended: RoundStatus) -> None:
        self.rounds += 1
        self.rows += ended.rows
        self.deletes += ended.deletes
        self.bytes += ended.bytes_written
        self.wait_s += ended.phases.wait_s
        self.commit_s += ended.phases.commit_s
        self.work_s += (ended.ended_at_ms - ended.started_at_ms) / 1_000
        self.bytes_read += ended.bytes_read
        self.files_replaced += ended.files_replaced
        self.groups_left_out += ended.groups_left_out
        self.sharing_read += bool(ended.read_with)
        self.log_bytes += ended.log_bytes


@dataclass
class Work:
    """`epoch` grows with each time the work is handed out, or queued, and never goes back."""

    kind: WorkKind
    epoch: Epoch = NO_EPOCH
    lease: Lease | None = None
    estimate: DurationEstimate = field(default_factory=DurationEstimate)
    failures: int = 0
    failures_in_a_row: int = 0
    error: dict[str, Any] | None = None
    retry_at_ms: int | None = None
    """For people: what counts is monotonic."""

    last_duration_ms: int | None = None
    last_finish: tuple[Epoch, InstanceId] | None = None
    due_files: int = 0
    """For a compaction: the number of data files at which the lake is checked again ..."""

    due_delete_files: int = 0
    """... or how many delete files."""

    looked_at_ms: int | None = None
    debt_files: int | None = None
    """... how many files need not have been there when it was looked at last, less those that it took out."""

    debt_rows: int = 0
    """... how many deleted rows are in the files that it left."""

    asked: bool = False
    """Somebody wants it now."""

    # Not stored.
    retry_at: float | None = None
    totals: RoundTotals = field(default_factory=RoundTotals)

    def next_epoch(self) -> None:
        self.epoch = Epoch(self.epoch + 1)

    def forgive(self) -> None:
        """Resets the count of failures."""
        self.failures_in_a_row, self.error = 0, None

    def to_json(self) -> dict[str, Any]:
        return {
            **{name: getattr(self, name) for name in _PLAIN},
            "lease": None if self.lease is None else self.lease.to_json(),
            "samples": [[s.duration_ms, s.backlog_bytes] for s in self.estimate.samples],
            "last_finish": self.last_finish,
        }

    @classmethod
    def from_json(cls, kind: WorkKind, body: dict[str, Any]) -> Work:
        """Fields that an older version did not store keep their default."""
        work = cls(kind, **{name: body[name] for name in _PLAIN if body.get(name) is not None})
        work.lease = Lease.from_json(body["lease"]) if body.get("lease") else None
        samples = [pair for pair in body.get("samples") or () if None not in pair]
        work.estimate = DurationEstimate(tuple(RoundSample(duration_ms=d, backlog_bytes=b) for d, b in samples))
        finish = body.get("last_finish")
        work.last_finish = (Epoch(finish[0]), InstanceId(finish[1])) if finish else None
        return work


_PLAIN = (
    "epoch",
    "failures",
    "failures_in_a_row",
    "error",
    "retry_at_ms",
    "last_duration_ms",
    "due_files",
    "due_delete_files",
    "looked_at_ms",
    "debt_files",
    "debt_rows",
    "asked",
)
