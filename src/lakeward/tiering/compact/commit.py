# SPDX-License-Identifier: Apache-2.0
"""The end of a compaction, on the driver: read the head -> lease check -> lake commit (design.md 13.3).

Another commit in between, of a round or of another engine, costs a second look at the head and no group whose inputs
still stand. What ends a compaction is a fence, a lease that is gone, or no group left.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from lakeward.errors import CommitConflict, CommitUnknown, LakeUnavailable, LeaseLost, RoundTooOld, Unavailable
from lakeward.model.clock import Clock
from lakeward.model.faults import fault_point
from lakeward.model.ids import RoundId
from lakeward.model.round import LakeBase
from lakeward.model.table import TableInfo
from lakeward.protocol.heartbeat import LeaseCheck
from lakeward.spi.coordinator import CoordinatorClient
from lakeward.spi.lake import (
    Committable,
    LakeCommitter,
    LakeReader,
    LakeSnapshot,
    Precondition,
    PreparedRewrite,
    RewriteResult,
)
from lakeward.tiering.job.backoff import delays, patiently
from lakeward.tiering.round.commit import CommitLimits
from lakeward.tiering.round.control import RoundControl

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class LandedRewrite:
    """`snapshot` None: no group was left to commit. `left_out`: indexes of groups that lost an input."""

    base: LakeBase
    snapshot: LakeSnapshot | None
    left_out: tuple[int, ...] = ()
    carried: int = 0


@dataclass(frozen=True, kw_only=True)
class CompactionCommit:
    """One compaction's way into the lake. `planned` is the base it was planned on; `started` the monotonic second at
    which it began."""

    table: TableInfo
    lease: LeaseCheck
    planned: LakeBase
    results: Sequence[RewriteResult]
    reader: LakeReader
    committer: LakeCommitter
    coordinator: CoordinatorClient
    control: RoundControl
    clock: Clock
    started: float
    limits: CommitLimits = field(default_factory=CommitLimits)

    def land(self) -> LandedRewrite:
        """Raises `CommitConflict` (`lost`: somebody fenced), `LeaseLost`, `RoundTooOld`, `CommitUnknown` only when the
        process must leave, and the lake's own errors."""
        for tries, delay in enumerate(delays()):
            base, prepared = self._prepare()
            if prepared.committable is None:
                return LandedRewrite(base=base, snapshot=self._find(), left_out=prepared.left_out)
            self._check_lease()
            fault_point("compact.before-lake-commit", **self._facts)
            snapshot = self._send(prepared.committable)
            if snapshot is not None:
                fault_point("compact.after-lake-commit", **self._facts)
                return LandedRewrite(base=base, snapshot=snapshot, left_out=prepared.left_out, carried=prepared.carried)
            if tries >= self.limits.foreign_commits:
                raise self._conflict(f"others committed in between {tries} times", lost=False)
            self.control.wait(delay)
        raise AssertionError("delays never end")

    def _prepare(self) -> tuple[LakeBase, PreparedRewrite]:
        for delay in delays():
            self.control.check()
            base = self._patiently(self.reader.load_base)
            breach = self._precondition.breach(base)
            if breach is not None:
                raise self._conflict(breach, lost=True)
            fault_point("compact.before-rebase", **self._facts)
            try:
                return base, self._patiently(partial(self.committer.prepare_rewrite, self.results, base, self._id))
            except CommitConflict:
                self.control.wait(delay)  # somebody committed between the two reads
        raise AssertionError("delays never end")

    def _send(self, committable: Committable) -> LakeSnapshot | None:
        """None: somebody else's commit came between. Only the identical request is ever sent again."""
        for delay in delays():
            self._check_age()
            try:
                return self.committer.commit(committable, self._precondition)
            except CommitConflict as conflict:
                landed = self._find()
                if landed is None and conflict.lost:
                    raise
                return landed
            except (CommitUnknown, LakeUnavailable) as error:
                landed = self._find()
                if landed is not None:
                    return landed
                if not self.control.pause(delay):
                    raise self._unknown(str(error)) from error
        raise AssertionError("delays never end")

    def _find(self) -> LakeSnapshot | None:
        """Looks for the own id in the lake until there is an answer. A snapshot of ours that expired meanwhile is not
        found: its inputs are gone then, and nothing is written twice."""
        fault_point("compact.before-find", **self._facts)
        for delay in delays():
            try:
                return self.committer.find(self._id)
            except (Unavailable, LakeUnavailable) as error:
                if not self.control.pause(delay):
                    raise self._unknown(str(error)) from error
        raise AssertionError("delays never end")

    def _check_lease(self) -> None:
        """No answer means: do not commit."""
        fault_point("compact.before-lease-check", **self._facts)
        try:
            verdict = self._patiently(lambda: self.coordinator.check_lease(self.lease))
        except Unavailable as error:
            raise self._lease_lost(f"the coordinator does not answer: {error}") from error
        if not verdict.held:
            raise self._lease_lost(verdict.reason)

    def _check_age(self) -> None:
        age, limit = self.clock.monotonic() - self.started, self.limits.max_age_s
        if age > limit:
            raise RoundTooOld(table=self._name, round_id=self._id, age_s=int(age), max_age_s=int(limit))

    def _patiently(self, call: Callable[[], T]) -> T:
        return patiently(call, clock=self.clock, wait=self.control.wait, server_wait_s=self.limits.server_wait_s)

    # ---- facts -----------------------------------------------------------------------------------------------------
    @property
    def _id(self) -> RoundId:
        assert self.lease.round_id is not None
        return self.lease.round_id

    @property
    def _name(self) -> str:
        return str(self.table.path)

    @property
    def _facts(self) -> dict[str, str]:
        return {"table": self._name, "round_id": self._id}

    @property
    def _precondition(self) -> Precondition:
        return Precondition(table_id=self.table.table_id, token=self.planned.token, fence=self.planned.fence)

    def _conflict(self, reason: str, *, lost: bool) -> CommitConflict:
        return CommitConflict(table=self._name, round_id=self._id, reason=reason, lost=lost)

    def _unknown(self, reason: str) -> CommitUnknown:
        return CommitUnknown(table=self._name, round_id=self._id, reason=reason)

    def _lease_lost(self, reason: str) -> LeaseLost:
        return LeaseLost(table=self._name, round_id=self._id, job=self.lease.job, reason=reason)
