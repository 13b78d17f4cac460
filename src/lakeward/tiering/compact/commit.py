# SPDX-License-Identifier: Apache-2.0
"""The end of a compaction, on the driver: read the head -> lease check -> lake commit (design.md 13.3).

Another commit in between, of a round or of another engine, costs a second look at the head and no group whose inputs
still stand. What ends a compaction is a fence, a lease that is gone, or no group left.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from lakeward.errors import CommitConflict
from lakeward.model import LakeBase, fault_point
from lakeward.spi import JOB_KEY, LakeSnapshot, Precondition, PreparedRewrite, RewriteResult, SupportsRewriteCommit
from lakeward.tiering.work.backoff import delays
from lakeward.tiering.work.landing import Landing


@dataclass(frozen=True, kw_only=True)
class LandedRewrite:
    """`snapshot` None: no group was left to commit. `left_out`: indexes of groups that lost an input."""

    base: LakeBase
    snapshot: LakeSnapshot | None
    left_out: tuple[int, ...] = ()
    carried: int = 0


@dataclass(frozen=True, kw_only=True)
class CompactionCommit(Landing):
    """One compaction's way into the lake. `planned` is the base it was planned on."""

    planned: LakeBase
    results: Sequence[RewriteResult]
    is_leased: bool = True

    def land(self) -> LandedRewrite:
        """Raises `CommitConflict` (`lost`: somebody fenced), `LeaseLost`, `RoundTooOld`, `CommitUnknown` only when the
        process must leave, and the lake's own errors."""
        for tries, delay in enumerate(delays()):
            base, prepared = self._prepare()
            if prepared.committable is None:
                return LandedRewrite(base=base, snapshot=self._find(), left_out=prepared.left_out)
            fault_point("compact.before-lease-check", **self.facts)
            if self.is_leased:
                self.check_lease(self.lease)
            fault_point("compact.before-lake-commit", **self.facts)
            snapshot = self.send(prepared.committable, lambda landed: landed, self._find)
            if snapshot is not None:
                fault_point("compact.after-lake-commit", **self.facts)
                return LandedRewrite(base=base, snapshot=snapshot, left_out=prepared.left_out, carried=prepared.carried)
            if tries >= self.limits.foreign_commits:
                raise self.conflict(f"others committed in between {tries} times", lost=False)
            self.control.wait(delay)
        raise AssertionError("delays never end")

    def _prepare(self) -> tuple[LakeBase, PreparedRewrite]:
        assert isinstance(self.committer, SupportsRewriteCommit), f"{self.table.path} is in a lake without rewrites"
        for delay in delays():
            self.control.check()
            base = self.patiently(self.reader.load_base)
            breach = self.precondition.breach(base)
            if breach is not None:
                raise self.conflict(breach, lost=True)
            fault_point("compact.before-rebase", **self.facts)
            ask = partial(self.coordinator.prepare_rewrite, self.table, self.round_id, base.offsets)
            extra = {**self.patiently(ask), JOB_KEY: self.lease.job}
            prepare = partial(self.committer.prepare_rewrite, self.results, base, self.round_id, extra)
            try:
                return base, self.patiently(prepare)
            except CommitConflict:
                self.control.wait(delay)  # somebody committed between the two reads
        raise AssertionError("delays never end")

    def _find(self) -> LakeSnapshot | None:
        """Looks for its own id in the lake until there is an answer. A snapshot that expired meanwhile is not found:
        its inputs are deleted then, and nothing is written twice."""
        fault_point("compact.before-find", **self.facts)
        return self.insist(lambda: self.committer.find(self.round_id))

    @property
    def precondition(self) -> Precondition:
        return Precondition(table_id=self.table.table_id, token=self.planned.token, fence=self.planned.fence)
