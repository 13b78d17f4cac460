# SPDX-License-Identifier: Apache-2.0
"""Everything the coordinator knows of one table, in one record."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from lakeward.coordinator.options import TableOptions
from lakeward.coordinator.schedule.estimate import DurationEstimate, RoundSample
from lakeward.model.ids import NO_EPOCH, Epoch, InstanceId, JobName, RoundId, TableId
from lakeward.model.offsets import OffsetMap
from lakeward.model.state import TableState
from lakeward.model.table import TableInfo
from lakeward.protocol.heartbeat import Progress
from lakeward.protocol.operate import RepairChoice
from lakeward.protocol.views import RoundStatus
from lakeward.spi.hotadmin import Waiting


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


@dataclass
class LakeFigures:
    """The lake table's totals as last reported."""

    rows: int | None = None
    bytes: int | None = None
    files: int | None = None
    delete_files: int | None = None
    snapshots: int | None = None


@dataclass
class RoundTotals:
    """What rounds of a table did since this coordinator started: counters for metrics, not stored."""

    rounds: int = 0
    rows: int = 0
    deletes: int = 0
    bytes: int = 0
    wait_s: float = 0.0
    commit_s: float = 0.0

    def add(self, ended: RoundStatus) -> None:
        self.rounds += 1
        self.rows += ended.rows
        self.deletes += ended.deletes
        self.bytes += ended.bytes_written
        self.wait_s += ended.phases.wait_s
        self.commit_s += ended.phases.commit_s


@dataclass
class TableRecord:
    """`committed` is what the ledger says, `confirmed` what the coordinator saw in the lake itself."""

    info: TableInfo
    options: TableOptions
    state: TableState | None = None
    epoch: Epoch = NO_EPOCH
    lease: Lease | None = None
    committed: OffsetMap = field(default_factory=OffsetMap)
    confirmed: OffsetMap = field(default_factory=OffsetMap)
    last_round: RoundId | None = None
    generation: int = 0
    repair: RepairChoice | None = None
    """What an operator chose; done with the first commit of the next generation."""

    repair_offsets: OffsetMap = field(default_factory=OffsetMap)
    """What the lake held when the repair was chosen."""

    broken: str | None = None
    """Why lake and log do not meet any more; the table is paused until an operator chooses."""

    estimate: DurationEstimate = field(default_factory=DurationEstimate)
    failures: int = 0
    failures_in_a_row: int = 0
    misses: int = 0
    reason: str | None = None
    error: dict[str, Any] | None = None
    retry_at_ms: int | None = None
    """For people, as `pending_since_ms`: what counts is monotonic."""

    pending_since_ms: int | None = None
    last_tiered_at_ms: int | None = None
    last_duration_ms: int | None = None
    last_finish: tuple[Epoch, InstanceId] | None = None
    lake: LakeFigures = field(default_factory=LakeFigures)

    # Not stored: found out again after a restart.
    waiting: Waiting = field(default_factory=Waiting)
    waiting_seen: float = 0.0
    """Monotonic time at which this oldest row was first seen to wait: its own time may lie in the future, once somebody
    has set the wall clock back."""

    retry_at: float | None = None
    pending_since: float | None = None
    lake_seen: bool = False
    lake_error: dict[str, Any] | None = None
    confirmed_at: float | None = None
    asked: OffsetMap | None = None
    """Somebody waits until the lake has these: start as soon as there is a slot."""

    held: int = 0
    """Orphan removal keeps the table unleased while this is above 0."""

    totals: RoundTotals = field(default_factory=RoundTotals)
    caught_up_at_ms: int = 0
    counted_oldest_ms: int | None = None
    """The oldest row whose miss was counted, so that each is counted once."""

    @property
    def table_id(self) -> TableId:
        return self.info.table_id

    @property
    def asked_now(self) -> bool:
        return self.asked is not None

    def see(self, waiting: Waiting, now: float) -> None:
        """Takes over what waits now."""
        if waiting.oldest_at_ms != self.waiting.oldest_at_ms:
            self.waiting_seen = now
        self.waiting = waiting

    def lag_ms(self, now_ms: int, now: float) -> int | None:
        """How long the oldest waiting row has waited; None when nothing waits. By its own time, and at least since it
        was seen.
        """
        if self.waiting.oldest_at_ms is None:
            return None
        return max(now_ms - self.waiting.oldest_at_ms, int(1_000 * (now - self.waiting_seen)), 0)

    def covers(self, offsets: OffsetMap) -> bool:
        return all(self.committed.get(b, 0) >= o for b, o in offsets.items())

    @property
    def name(self) -> str:
        return str(self.info.path)

    def to_json(self) -> dict[str, Any]:
        return {
            "lease": None if self.lease is None else self.lease.to_json(),
            "last_round": self.last_round,
            "generation": self.generation,
            "repair": self.repair,
            "repair_offsets": self.repair_offsets.to_json(),
            "broken": self.broken,
            "samples": [[s.duration_ms, s.backlog_bytes] for s in self.estimate.samples],
            "failures": self.failures,
            "failures_in_a_row": self.failures_in_a_row,
            "misses": self.misses,
            "reason": self.reason,
            "error": self.error,
            "retry_at_ms": self.retry_at_ms,
            "pending_since_ms": self.pending_since_ms,
            "last_tiered_at_ms": self.last_tiered_at_ms,
            "last_duration_ms": self.last_duration_ms,
            "last_finish": self.last_finish,
            "lake": vars(self.lake),
        }

    def load_json(self, body: dict[str, Any]) -> None:
        """Takes over what was stored; fields that an older version did not store keep their default."""
        for name in _PLAIN:
            setattr(self, name, body.get(name, getattr(self, name)))
        self.lease = Lease.from_json(body["lease"]) if body.get("lease") else None
        self.repair = RepairChoice(body["repair"]) if body.get("repair") else None
        if "repair_offsets" in body:
            self.repair_offsets = OffsetMap.from_json(body["repair_offsets"])
        self.estimate = DurationEstimate(
            tuple(RoundSample(duration_ms=d, backlog_bytes=b) for d, b in body.get("samples", ()))
        )
        finish = body.get("last_finish")
        self.last_finish = (Epoch(finish[0]), InstanceId(finish[1])) if finish else None
        self.lake = LakeFigures(**body.get("lake", {}))


_PLAIN = (
    "broken",
    "last_round",
    "generation",
    "failures",
    "failures_in_a_row",
    "misses",
    "reason",
    "error",
    "retry_at_ms",
    "pending_since_ms",
    "last_tiered_at_ms",
    "last_duration_ms",
)
