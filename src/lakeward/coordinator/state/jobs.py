# SPDX-License-Identifier: Apache-2.0
"""The tiering jobs that registered: which instance of a name is current, what it serves, whether it lives."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from lakeward.coordinator.options import DEFAULT_POOL
from lakeward.errors import Superseded
from lakeward.model import TIER, InstanceId, JobName, LeftOut, SideId, WorkKind
from lakeward.protocol.heartbeat import HeartbeatRequest

BEATS_COMPARED, LEAST_BEATS_COMPARED = 12, 3
"""A minute of beats, and those that say something."""

PAST_KEPT = 32
"""Instances of one name that are still answered with `superseded`; older zombies would be taken for new ones."""


@dataclass
class JobRecord:
    """`seen` is monotonic time of the last beat; it is not stored, a restart grants a full period."""

    name: JobName
    instance: InstanceId
    pool: str = DEFAULT_POOL
    slots: int = 1
    host: str = ""
    version: str = ""
    metrics_url: str | None = None
    last_beat_at_ms: int = 0
    past: list[InstanceId] = field(default_factory=list)
    left: bool = False
    kinds: tuple[WorkKind, ...] = (TIER,)
    seen: float = 0.0
    memory_bytes: int | None = None
    clock_apart_ms: int | None = None
    formats: tuple[str, ...] = ()
    reads_together: bool = False
    working: frozenset[tuple[SideId, WorkKind]] = frozenset()
    _apart_ms: list[int] = field(default_factory=list)
    """These as of its last beat, not stored."""

    def is_live(self, now: float, lease_s: float) -> bool:
        return not self.left and now < self.seen + lease_s

    @property
    def takes_rounds(self) -> bool:
        return TIER in self.kinds

    def has_format(self, format: str | None) -> bool:
        """Whether it can open tables of that lake format; a job that does not say is taken to open all."""
        return not self.formats or format in self.formats

    def may_take(self, side: SideId, kind: WorkKind, format: str | None) -> bool:
        """Not while it has older work of that kind on that side: one whose lease ended while the job was silent, and
        which goes on until the job has stopped it. It takes no slot where it waits for a lake."""
        return self.has_format(format) and (side, kind) not in self.working

    def check_current(self, instance: InstanceId) -> None:
        """Raises `Superseded` for an instance that a newer one replaced."""
        if instance != self.instance and instance in self.past:
            raise Superseded(job=self.name, instance=instance, by=self.instance)

    def take(self, request: HeartbeatRequest, now: float, now_ms: int) -> bool:
        """Takes over what the beat says; true if something durable changed."""
        before = self.durable()
        if request.instance != self.instance:
            self.past = [*self.past[-(PAST_KEPT - 1) :], self.instance]
            self.instance = request.instance
        self.pool, self.slots, self.host = request.pool, max(0, request.slots), request.host
        self.version, self.metrics_url, self.left = request.version, request.metrics_url, request.leaving
        self.kinds, self.formats, self.memory_bytes = request.kinds, request.formats, request.memory_bytes
        self.reads_together = request.reads_together
        self.working = frozenset((SideId(w.table_id, w.side), w.kind) for w in request.tiering)
        self._take_clock(None if request.now_ms is None else request.now_ms - now_ms)
        self.seen, self.last_beat_at_ms = now, now_ms
        return before != self.durable()

    def _take_clock(self, apart_ms: int | None) -> None:
        """A beat that is long on its way, as on a busy machine, looks like a clock that is behind; none looks like one
        ahead. So the beat that was quickest of the last ones says it."""
        self._apart_ms = [] if apart_ms is None else [*self._apart_ms[-(BEATS_COMPARED - 1) :], apart_ms]
        is_known = len(self._apart_ms) >= LEAST_BEATS_COMPARED
        self.clock_apart_ms = max(self._apart_ms) if is_known else None

    def durable(self) -> dict[str, Any]:
        return {
            "instance": self.instance,
            "pool": self.pool,
            "slots": self.slots,
            "host": self.host,
            "version": self.version,
            "metrics_url": self.metrics_url,
            "past": list(self.past),
            "left": self.left,
            "kinds": list(self.kinds),
        }

    def to_json(self) -> dict[str, Any]:
        return {**self.durable(), "last_beat_at_ms": self.last_beat_at_ms}

    @classmethod
    def from_json(cls, name: JobName, body: dict[str, Any], now: float) -> JobRecord:
        """Raises `InvalidRequest`, `TypeError` for what no job can have said."""
        job = cls(name=name, seen=now, **{**body, "kinds": tuple(body.get("kinds", (TIER,)))})
        HeartbeatRequest(job=name, instance=InstanceId(job.instance), slots=job.slots)
        return job


def load_jobs(stored: dict[JobName, dict[str, Any]], now: float, left_out: LeftOut) -> dict[JobName, JobRecord]:
    """A job whose record is nonsense is left out and named: it registers again with its next beat."""
    jobs = left_out.sensible("job", stored.items(), lambda item: JobRecord.from_json(*item, now))
    return {job.name: job for job in jobs}
