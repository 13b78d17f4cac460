# SPDX-License-Identifier: Apache-2.0
"""The way of every kind of work into the lake: patience, a checked lease, one request per commit. A commit ends in one
of three ways. Done. Conflict: look for the own id; if it is missing, either the race is lost, or the commit in between
was foreign and the work is prepared again on the new head. Unknown: look; if it is missing, send the identical request
again until it is answered."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from lakeward.errors import (
    CommitConflict,
    CommitUnknown,
    LakeUnavailable,
    LakewardError,
    LeaseLost,
    RoundTooOld,
    Unavailable,
)
from lakeward.model import Clock, RoundId, TableInfo
from lakeward.protocol.heartbeat import LeaseCheck, LeaseVerdict
from lakeward.spi import Committable, CoordinatorClient, LakeCommitter, LakeReader, LakeSnapshot, Precondition
from lakeward.tiering.work.backoff import delays, patiently
from lakeward.tiering.work.control import RoundControl

T = TypeVar("T")

log = logging.getLogger("lakeward.tiering")


@dataclass(frozen=True, kw_only=True)
class CommitLimits:
    """`foreign_commits`: how often a round is prepared again because another engine committed in between."""

    max_age_s: float = 24 * 3600.0
    server_wait_s: float = 300.0
    foreign_commits: int = 20


@dataclass(frozen=True, kw_only=True)
class Landing(ABC):
    """One piece of work's way into the lake. `started` is the monotonic second at which it began."""

    table: TableInfo
    lease: LeaseCheck
    reader: LakeReader
    committer: LakeCommitter
    coordinator: CoordinatorClient
    control: RoundControl
    clock: Clock
    started: float
    limits: CommitLimits = field(default_factory=CommitLimits)

    @property
    @abstractmethod
    def precondition(self) -> Precondition:
        """Conditions on the head."""

    def send(
        self, committable: Committable, landed: Callable[[LakeSnapshot], T], find: Callable[[], T | None]
    ) -> T | None:
        """None: a foreign commit came between. Only the identical request is ever sent again. Raises `LeaseLost` where
        the catalog checked the lease: no copy of the request can take effect then."""
        is_sent = False
        for delay in delays():
            self._check_age()  # right before each request: the process may have slept since anything else was checked
            try:
                snapshot = self.committer.commit(committable, self.precondition)
                self.control.show_trouble("")
                return landed(snapshot)
            except CommitConflict as conflict:
                earlier = find()
                if earlier is None and conflict.lost:
                    raise
                return earlier
            except LeaseLost:
                earlier = find() if is_sent else None
                if earlier is None:
                    raise
                return earlier
            except (CommitUnknown, LakeUnavailable) as error:
                earlier = find()
                if earlier is not None:
                    return earlier
                is_sent = True
                self._wait(delay, error)
        raise AssertionError("delays never end")

    def insist(self, call: Callable[[], T]) -> T:
        """Asks until there is an answer: without one a commit's outcome is not known. Gives up when the process
        leaves.
        """
        before = self.control.progress.trouble
        for delay in delays():
            try:
                answer = call()
                self.control.show_trouble(before)
                return answer
            except (Unavailable, LakeUnavailable) as error:
                self._wait(delay, error)
        raise AssertionError("delays never end")

    def _wait(self, delay: float, error: LakewardError) -> None:
        """Until the next try; what is wrong shows meanwhile, since it may last for hours. Raises `CommitUnknown` when
        the process leaves."""
        if self.control.show_trouble(str(error)):
            log.warning("a commit is asked for again until it is answered: %s", error)
        if not self.control.pause(delay):
            raise self._unknown(str(error)) from error

    def patiently(self, call: Callable[[], T]) -> T:
        return patiently(call, clock=self.clock, control=self.control, server_wait_s=self.limits.server_wait_s)

    def check_lease(self, check: LeaseCheck) -> LeaseVerdict:
        """No answer means: do not commit. Asks again for a while, since a server restart keeps leases."""
        self.control.check()
        try:
            verdict = self.patiently(lambda: self.coordinator.check_lease(check))
        except Unavailable as error:
            raise self._lease_lost(f"the coordinator does not answer: {error}") from error
        if not verdict.held:
            raise self._lease_lost(verdict.reason)
        return verdict

    def conflict(self, reason: str, *, lost: bool) -> CommitConflict:
        return CommitConflict(table=self.name, round_id=self.round_id, reason=reason, lost=lost)

    @property
    def round_id(self) -> RoundId:
        assert self.lease.round_id is not None
        return self.lease.round_id

    @property
    def name(self) -> str:
        return str(self.table.path)

    @property
    def facts(self) -> dict[str, str]:
        """For fault points."""
        return {"table": self.name, "round_id": self.round_id}

    def _check_age(self) -> None:
        age, limit = self.clock.monotonic() - self.started, self.limits.max_age_s
        if age > limit:
            raise RoundTooOld(table=self.name, round_id=self.round_id, age_s=int(age), max_age_s=int(limit))

    def _unknown(self, reason: str) -> CommitUnknown:
        return CommitUnknown(table=self.name, round_id=self.round_id, reason=reason)

    def _lease_lost(self, reason: str) -> LeaseLost:
        return LeaseLost(table=self.name, round_id=self.round_id, job=self.lease.job, reason=reason)
