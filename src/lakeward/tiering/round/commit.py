# SPDX-License-Identifier: Apache-2.0
"""The end of a round, on the driver: resolve -> lease check -> lake commit -> coordinator commit (design.md 6.5)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

from lakeward.errors import (
    CommitConflict,
    LakeError,
    LedgerGap,
)
from lakeward.model import (
    Bucket,
    LakeBase,
    LedgerKind,
    OffsetMap,
    OffsetRange,
    OffsetSet,
    RoundPlan,
    SnapshotId,
    SnapshotSplit,
    fault_point,
)
from lakeward.protocol.heartbeat import CommitAnswer, CommitReport, CommittedRange, LeasedCommit, TableFinished
from lakeward.spi import CommitProperties, Committable, LakeSnapshot, LakeTotals, Precondition, Renewal
from lakeward.tiering.round.plan import plan_comparison, plan_left
from lakeward.tiering.round.prefix import KeptPrefix
from lakeward.tiering.work.backoff import delays
from lakeward.tiering.work.certificate import CERTIFICATE_KEY, find_last, is_certified, plan_certificate
from lakeward.tiering.work.landing import Landing
from lakeward.tiering.work.runner import RoundEnd

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Landed:
    """The round is in the lake. `snapshot` None: its snapshot has been expired since, the ledger knows the round."""

    base: LakeBase
    snapshot: LakeSnapshot | None
    committable: Committable | None
    resolve_s: float = 0.0
    totals: LakeTotals | None = None

    @property
    def answer(self) -> CommitAnswer | None:
        """The coordinator's, where the report travelled with the commit."""
        leased = None if self.snapshot is None else self.snapshot.leased
        return None if leased is None else leased.answer

    @property
    def snapshot_id(self) -> SnapshotId | None:
        return None if self.snapshot is None else self.snapshot.snapshot_id


@dataclass(frozen=True, kw_only=True)
class RoundCommit(Landing):
    """One round's way into the lake."""

    plan: RoundPlan
    kept: KeptPrefix
    generation: int = 0
    is_resync: bool = False
    gaps: dict[Bucket, OffsetRange] = field(default_factory=dict)
    is_small: bool = False
    end: Callable[[Landed], RoundEnd]
    """The round's end, for a report that travels with the lake commit."""

    @property
    def to_compare(self) -> frozenset[Bucket]:
        """Buckets that a resync still has to compare after this round."""
        return plan_left(self.plan, self.gaps, self.kept.offsets) if self.is_resync else frozenset()

    # ---- the lake ------------------------------------------------------------------------------------------------
    def land(self) -> Landed:
        """Raises `CommitConflict` (`lost`: another round won; adopt and plan again), `LeaseLost`, `RoundTooOld`,
        `CommitUnknown` only when the process must leave, and the lake's own errors."""
        waits, began, tries = delays(), self.clock.monotonic(), 0
        while True:
            base, committable, seconds = self._prepare(self._planned_base() if tries == 0 else None)
            if committable is None:
                earlier = self._find(base)
                if earlier is not None:
                    return earlier
                raise self.conflict("another round moved offsets or token", lost=True)
            committable = self._leased(Landed(base=base, snapshot=None, committable=committable, resolve_s=seconds))
            fault_point("round.before-lake-commit", **self.facts)
            landed = self._send(base, committable)
            if landed is not None:
                fault_point("round.after-lake-commit", **self.facts)
                return replace(landed, resolve_s=seconds)
            tries += 1
            if self._is_enough(committable, tries, self.clock.monotonic() - began):
                raise self.conflict(f"other engines committed in between {tries} times", lost=False)
            self.control.wait(next(waits))

    def _leased(self, coming: Landed) -> Committable:
        """The commit after its lease check, or with it, where the catalog is the coordinator's own."""
        assert coming.committable is not None
        fault_point("round.before-lease-check", **self.facts)
        committable = coming.committable
        check = replace(self.lease, expirable=committable.expirable, token=self.plan.base.token)
        if self.patiently(self._is_apart):
            return replace(committable, expire=self.check_lease(check).expire)
        self.control.check()
        end = self.end(coming)
        report = replace(self._report(coming), finished=end if isinstance(end, TableFinished) else None)
        return replace(committable, leased=LeasedCommit(check=check, report=report))

    def _is_apart(self) -> bool:
        """Is the catalog somewhere else than the coordinator?"""
        catalog = self.committer.coordinator_id
        return catalog is None or catalog != self.coordinator.coordinator_id

    def _is_enough(self, committable: Committable, tries: int, seconds: float) -> bool:
        """The job's limit, and the table's own where it has one."""
        retries = (
            self.limits.foreign_commits
            if committable.retries is None
            else min(committable.retries, self.limits.foreign_commits)
        )
        return tries > retries or (committable.retry_s is not None and seconds >= committable.retry_s)

    def _prepare(self, planned: LakeBase | None) -> tuple[LakeBase, Committable | None, float]:
        """Reads the head, unless it is passed, and resolves on it; no committable when the head is no longer what the
        round was planned on."""
        began, waits = self.clock.monotonic(), delays()
        while True:
            self.control.check()
            base = planned or self.patiently(self.reader.load_base_as_is if self.is_resync else self.reader.load_base)
            planned = None
            if self._moved(base):
                return base, None, self.clock.monotonic() - began
            fault_point("round.before-resolve", **self.facts)
            try:
                committable = self._resolve(base)
            except CommitConflict:
                self.control.wait(next(waits))  # somebody committed between the two reads
                continue
            return base, committable, self.clock.monotonic() - began

    def _planned_base(self) -> LakeBase | None:
        """The base of the plan, for a small round: it saves a request of six and costs little where the head moved.
        A commit demands exactly that head, and one that conflicts is prepared again."""
        is_usable = self.is_small and not self.is_resync and self.plan.base.loaded is not None
        return self.plan.base if is_usable else None

    def _resolve(self, base: LakeBase) -> Committable:
        table, round_id, offsets = self.plan.table, self.round_id, self.kept.offsets
        prepared = self.patiently(lambda: self.coordinator.prepare_commit(table, round_id, offsets))
        extra = {**prepared, **self._certificate()}
        return self.patiently(
            lambda: self.committer.prepare(
                self.kept.results, self.kept.replaced, base, self._properties(extra), self._renewal()
            )
        )

    def _certificate(self) -> dict[str, str]:
        if not is_certified(self.plan.table) or not self.kept.outcomes:
            return {}
        last = find_last(self.patiently(self.reader.snapshots))
        is_log = not self.table.is_pk
        return {CERTIFICATE_KEY: plan_certificate(self.kept.outcomes, last, is_log=is_log, generation=self.generation)}

    def _renewal(self) -> Renewal | None:
        head, renewed = plan_comparison(self.plan, is_resync=self.is_resync), self.kept.renewed
        compared = {o.split.bucket for o in self.kept.outcomes if isinstance(o.split, SnapshotSplit)}
        return None if head is None else Renewal(head=head, offsets={b: renewed.get(b, OffsetSet()) for b in compared})

    def _moved(self, base: LakeBase) -> bool:
        return base.generation != self.plan.base.generation or self.precondition.breach(base) is not None

    def _send(self, base: LakeBase, committable: Committable) -> Landed | None:
        def landed(snapshot: LakeSnapshot) -> Landed:
            return Landed(base=base, snapshot=snapshot, committable=committable)

        return self.send(committable, landed, lambda: self._find(base, committable))

    def _find(self, base: LakeBase, committable: Committable | None = None) -> Landed | None:
        """Looks for the own round id in the lake, then in the ledger: expiry may have taken the snapshot."""
        fault_point("round.before-find", **self.facts)
        snapshot = self.insist(lambda: self.committer.find(self.round_id))
        known = snapshot is not None or self.insist(
            lambda: self.coordinator.knows_round(self.table.table_id, self.round_id, self.lease.side)
        )
        return Landed(base=base, snapshot=snapshot, committable=committable) if known else None

    # ---- the coordinator -------------------------------------------------------------------------------------------
    def report(self, landed: Landed, finished: TableFinished | None = None) -> CommitAnswer:
        """Tells the coordinator what the lake holds, and the round's end with it. Idempotent; insists, as the lake has
        it already.

        A ledger that does not end where the round began (an old database) adopts the lake's state instead."""
        fault_point("round.before-coordinator-commit", **self.facts)
        report = replace(self._report(landed), finished=finished)
        try:
            answer = self.insist(lambda: self.coordinator.commit(report))
        except LedgerGap:
            adopted = replace(report, ranges=(), kind=LedgerKind.ADOPTED)
            answer = self.insist(lambda: self.coordinator.commit(adopted))
        fault_point("round.after-coordinator-commit", **self.facts)
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
            table_id=self.table.table_id,
            round_id=self.round_id,
            snapshot_id=landed.snapshot_id,
            epoch=self.lease.epoch,
            job=self.lease.job,
            instance=self.lease.instance,
            offsets=self._offsets(landed),
            ranges=self._ranges(),
            generation=self.generation,
            fence=landed.base.fence,
            lake_rows=None if totals is None else totals.rows,
            lake_bytes=None if totals is None else totals.bytes,
            lake_files=None if totals is None else totals.data_files,
            lake_delete_files=None if totals is None else totals.delete_files,
            lake_snapshots=None if totals is None else totals.snapshots,
            side=self.lease.side,
            resyncing=bool(self.to_compare) if self.is_resync else landed.base.is_resyncing,
            to_compare=tuple(sorted(self.to_compare)),
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
    def _properties(self, extra: Mapping[str, str]) -> CommitProperties:
        return CommitProperties(
            round_id=self.round_id,
            epoch=self.lease.epoch,
            job=self.lease.job,
            offsets=self.kept.offsets,
            generation=self.generation,
            is_resyncing=bool(self.to_compare),
            extra=extra,
        )

    @property
    def precondition(self) -> Precondition:
        planned = self.plan.base
        starts = {b: planned.offsets.get(b) for b in self.kept.offsets}
        return Precondition(table_id=self.table.table_id, token=planned.token, starts=starts)
