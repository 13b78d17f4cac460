# SPDX-License-Identifier: Apache-2.0
"""The end of a round, on the driver: resolve -> lease check -> lake commit -> coordinator commit (design.md 6.5).

A commit ends in one of three ways. Done. Conflict: look for the own round id; not there, then either the race is lost,
or the commit in between was foreign and the round is prepared again on the new head. Unknown: look; not there, then
send the identical request again until it is answered.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

from lakeward.errors import (
    CommitConflict,
    CommitUnknown,
    LakeError,
    LakeUnavailable,
    LeaseLost,
    LedgerGap,
    RoundTooOld,
    Unavailable,
)
from lakeward.model.bucket import Bucket
from lakeward.model.clock import Clock
from lakeward.model.expiry import ExpiringSnapshot
from lakeward.model.faults import fault_point
from lakeward.model.ids import SnapshotId
from lakeward.model.ledger import LedgerKind
from lakeward.model.offsets import OffsetMap, OffsetRange
from lakeward.model.offsetset import OffsetSet
from lakeward.model.round import LakeBase, RoundOwner, RoundPlan
from lakeward.model.side import DEFAULT_SIDE, SideName
from lakeward.model.split import SnapshotSplit
from lakeward.protocol.commit import CommitAnswer, CommitReport, CommittedRange
from lakeward.protocol.heartbeat import LeaseCheck, TableFinished
from lakeward.spi.coordinator import CoordinatorClient
from lakeward.spi.lake import (
    CommitProperties,
    Committable,
    LakeCommitter,
    LakeReader,
    LakeSnapshot,
    LakeTotals,
    Precondition,
    Renewal,
)
from lakeward.tiering.job.backoff import delays, patiently
from lakeward.tiering.round.control import RoundControl
from lakeward.tiering.round.plan import plan_comparison
from lakeward.tiering.round.prefix import KeptPrefix

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class CommitLimits:
    """`foreign_commits`: how often a round is prepared again because another engine committed in between."""

    max_age_s: float = 24 * 3600.0
    server_wait_s: float = 300.0
    foreign_commits: int = 20


@dataclass(frozen=True, kw_only=True)
class Landed:
    """The round is in the lake. `snapshot` None: its snapshot has been expired since, the ledger knows the round."""

    base: LakeBase
    snapshot: LakeSnapshot | None
    committable: Committable | None
    resolve_s: float = 0.0
    totals: LakeTotals | None = None

    @property
    def snapshot_id(self) -> SnapshotId | None:
        return None if self.snapshot is None else self.snapshot.snapshot_id


@dataclass(frozen=True, kw_only=True)
class RoundCommit:
    """One round's way into the lake. `started` is the monotonic second at which the round began."""

    plan: RoundPlan
    kept: KeptPrefix
    owner: RoundOwner
    reader: LakeReader
    committer: LakeCommitter
    coordinator: CoordinatorClient
    control: RoundControl
    clock: Clock
    started: float
    limits: CommitLimits = field(default_factory=CommitLimits)
    generation: int = 0
    is_resync: bool = False
    gaps: dict[Bucket, OffsetRange] = field(default_factory=dict)
    side: SideName = DEFAULT_SIDE

    # ---- the lake ------------------------------------------------------------------------------------------------
    def land(self) -> Landed:
        """Raises `CommitConflict` (`lost`: another round won; adopt and plan again), `LeaseLost`, `RoundTooOld`,
        `CommitUnknown` only when the process must leave, and the lake's own errors."""
        waits, began, tries = delays(), self.clock.monotonic(), 0
        while True:
            base, committable, seconds = self._prepare()
            if committable is None:
                earlier = self._find(base)
                if earlier is not None:
                    return earlier
                raise self._conflict("another round moved offsets or token", lost=True)
            committable = replace(committable, expire=self._check_lease(committable.expirable))
            fault_point("round.before-lake-commit", table=self._table, round_id=self.plan.round_id)
            landed = self._send(base, committable)
            if landed is not None:
                fault_point("round.after-lake-commit", table=self._table, round_id=self.plan.round_id)
                return replace(landed, resolve_s=seconds)
            tries += 1
            if self._is_enough(committable, tries, self.clock.monotonic() - began):
                raise self._conflict(f"other engines committed in between {tries} times", lost=False)
            self.control.wait(next(waits))

    def _is_enough(self, committable: Committable, tries: int, seconds: float) -> bool:
        """The job's limit, and the table's own where it has one."""
        retries = (
            self.limits.foreign_commits
            if committable.retries is None
            else min(committable.retries, self.limits.foreign_commits)
        )
        return tries > retries or (committable.retry_s is not None and seconds >= committable.retry_s)

    def _prepare(self) -> tuple[LakeBase, Committable | None, float]:
        """Reads the head and resolves on it; no committable when the head is no longer what the round was
        planned on.
        """
        began, waits = self.clock.monotonic(), delays()
        while True:
            self.control.check()
            base = self._patiently(self.reader.load_base_as_is if self.is_resync else self.reader.load_base)
            if self._moved(base):
                return base, None, self.clock.monotonic() - began
            fault_point("round.before-resolve", table=self._table, round_id=self.plan.round_id)
            try:
                committable = self._resolve(base)
            except CommitConflict:
                self.control.wait(next(waits))  # somebody committed between the two reads
                continue
            return base, committable, self.clock.monotonic() - began

    def _resolve(self, base: LakeBase) -> Committable:
        table, round_id, offsets = self.plan.table, self.plan.round_id, self.kept.offsets
        extra = self._patiently(lambda: self.coordinator.prepare_commit(table, round_id, offsets))
        return self._patiently(
            lambda: self.committer.prepare(
                self.kept.results, self.kept.replaced, base, self._properties(extra), self._renewal()
            )
        )

    def _renewal(self) -> Renewal | None:
        head, renewed = plan_comparison(self.plan), self.kept.renewed
        compared = {o.split.bucket for o in self.kept.outcomes if isinstance(o.split, SnapshotSplit)}
        return None if head is None else Renewal(head=head, offsets={b: renewed.get(b, OffsetSet()) for b in compared})

    def _patiently(self, call: Callable[[], T]) -> T:
        return patiently(call, clock=self.clock, wait=self.control.wait, server_wait_s=self.limits.server_wait_s)

    def _moved(self, base: LakeBase) -> bool:
        return base.generation != self.plan.base.generation or self._precondition().breach(base) is not None

    def _send(self, base: LakeBase, committable: Committable) -> Landed | None:
        """None: a foreign commit came between. Only the identical request is ever sent again."""
        waits = delays()
        while True:
            self._check_age()  # right before each request: the round may have slept since anything else was checked
            try:
                snapshot = self.committer.commit(committable, self._precondition())
                return Landed(base=base, snapshot=snapshot, committable=committable)
            except CommitConflict as conflict:
                landed = self._find(base, committable)
                if landed is None and conflict.lost:
                    raise
                return landed
            except (CommitUnknown, LakeUnavailable) as error:
                landed = self._find(base, committable)
                if landed is not None:
                    return landed
                if not self.control.pause(next(waits)):
                    raise self._unknown(str(error)) from error

    def _find(self, base: LakeBase, committable: Committable | None = None) -> Landed | None:
        """Looks for the own round id in the lake, then in the ledger: expiry may have taken the snapshot."""
        fault_point("round.before-find", table=self._table, round_id=self.plan.round_id)
        snapshot = self._insist(lambda: self.committer.find(self.plan.round_id))
        known = snapshot is not None or self._insist(
            lambda: self.coordinator.knows_round(self.plan.table.table_id, self.plan.round_id, self.side)
        )
        return Landed(base=base, snapshot=snapshot, committable=committable) if known else None

    def _insist(self, call: Callable[[], T]) -> T:
        """Asks until there is an answer: without one a commit's outcome is not known. Gives up
        when the process leaves.
        """
        for delay in delays():
            try:
                return call()
            except (Unavailable, LakeUnavailable) as error:
                if not self.control.pause(delay):
                    raise self._unknown(str(error)) from error
        raise AssertionError("delays never end")

    def _check_lease(self, expirable: tuple[ExpiringSnapshot, ...]) -> tuple[SnapshotId, ...]:
        """No answer means: do not commit. Asks again for a while, since a server restart keeps leases. Returns those
        snapshots that the coordinator has marked: nobody reads them or can begin to, so the commit takes them out."""
        fault_point("round.before-lease-check", table=self._table, round_id=self.plan.round_id)
        owner, until = self.owner, self.clock.monotonic() + self.limits.server_wait_s
        check = LeaseCheck(
            job=owner.job,
            instance=owner.instance,
            table_id=self.plan.table.table_id,
            epoch=owner.epoch,
            round_id=self.plan.round_id,
            expirable=expirable,
            token=self.plan.base.token,
            side=self.side,
        )
        for delay in delays():
            self.control.check()
            try:
                verdict = self.coordinator.check_lease(check)
            except Unavailable as error:
                if self.clock.monotonic() > until:
                    raise self._lease_lost(f"the coordinator does not answer: {error}") from error
                self.control.wait(delay)
                continue
            if not verdict.held:
                raise self._lease_lost(verdict.reason)
            return verdict.expire
        raise AssertionError("delays never end")

    def _check_age(self) -> None:
        age = self.clock.monotonic() - self.started
        if age > self.limits.max_age_s:
            raise RoundTooOld(
                table=self._table, round_id=self.plan.round_id, age_s=int(age), max_age_s=int(self.limits.max_age_s)
            )

    # ---- the coordinator -------------------------------------------------------------------------------------------
    def report(self, landed: Landed, finished: TableFinished | None = None) -> CommitAnswer:
        """Tells the coordinator what the lake holds, and the round's end with it. Idempotent; insists, as the lake has
        it already.

        A ledger that does not end where the round began (an old database) adopts the lake's state instead."""
        fault_point("round.before-coordinator-commit", table=self._table, round_id=self.plan.round_id)
        report = replace(self._report(landed), finished=finished)
        try:
            answer = self._insist(lambda: self.coordinator.commit(report))
        except LedgerGap:
            adopted = replace(report, ranges=(), kind=LedgerKind.ADOPTED)
            answer = self._insist(lambda: self.coordinator.commit(adopted))
        fault_point("round.after-coordinator-commit", table=self._table, round_id=self.plan.round_id)
        return answer

    def with_totals(self, landed: Landed) -> Landed:
        """Figures for metrics, from the commit's answer where it told them; a lake that fails to give them fails
        nothing.
        """
        if landed.snapshot is not None and landed.snapshot.totals is not None:
            return replace(landed, totals=landed.snapshot.totals)
        try:
            return replace(landed, totals=self.reader.totals())
        except LakeError:
            return landed

    def _report(self, landed: Landed) -> CommitReport:
        totals = landed.totals
        return CommitReport(
            table_id=self.plan.table.table_id,
            round_id=self.plan.round_id,
            snapshot_id=landed.snapshot_id,
            epoch=self.owner.epoch,
            job=self.owner.job,
            instance=self.owner.instance,
            offsets=self._offsets(landed),
            ranges=self._ranges(),
            generation=self.generation,
            fence=landed.base.fence,
            lake_rows=None if totals is None else totals.rows,
            lake_bytes=None if totals is None else totals.bytes,
            lake_files=None if totals is None else totals.data_files,
            lake_delete_files=None if totals is None else totals.delete_files,
            lake_snapshots=None if totals is None else totals.snapshots,
            side=self.side,
        )

    def _offsets(self, landed: Landed) -> OffsetMap:
        if landed.snapshot is not None and landed.snapshot.offsets is not None:
            return landed.snapshot.offsets
        return landed.base.offsets.overlaid(self.kept.offsets)

    def _ranges(self) -> tuple[CommittedRange, ...]:
        """From the committed offset on, also where a KV snapshot stood in for the log; above a
        gap where there is one.
        """
        committed_ranges = []
        for bucket, (range_, rows) in self.kept.ranges().items():
            committed = None if self.is_resync or bucket in self.gaps else self.plan.base.offsets.get(bucket)
            start = range_.start if committed is None else committed
            committed_ranges.append(CommittedRange(bucket=bucket, range=OffsetRange(start, range_.stop), rows=rows))
        return tuple(committed_ranges)

    # ---- facts -----------------------------------------------------------------------------------------------------
    @property
    def _table(self) -> str:
        return str(self.plan.table.path)

    def _properties(self, extra: Mapping[str, str]) -> CommitProperties:
        return CommitProperties(
            round_id=self.plan.round_id,
            epoch=self.owner.epoch,
            job=self.owner.job,
            offsets=self.kept.offsets,
            generation=self.generation,
            extra=extra,
        )

    def _precondition(self) -> Precondition:
        planned = self.plan.base
        starts = {b: planned.offsets.get(b) for b in self.kept.offsets}
        return Precondition(table_id=self.plan.table.table_id, token=planned.token, starts=starts)

    def _conflict(self, reason: str, *, lost: bool) -> CommitConflict:
        return CommitConflict(table=self._table, round_id=self.plan.round_id, reason=reason, lost=lost)

    def _unknown(self, reason: str) -> CommitUnknown:
        return CommitUnknown(table=self._table, round_id=self.plan.round_id, reason=reason)

    def _lease_lost(self, reason: str) -> LeaseLost:
        return LeaseLost(table=self._table, round_id=self.plan.round_id, job=self.owner.job, reason=reason)
