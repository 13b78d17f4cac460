# SPDX-License-Identifier: Apache-2.0
"""One compaction of one side on the driver: plan, rewrite, commit; and how it ended, for the coordinator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from lakeward.errors import LakewardError
from lakeward.model import LedgerKind, RoundResult, fault_point, side_table
from lakeward.model.side import COMPACT
from lakeward.protocol.heartbeat import CommittedRange, LeaseCheck, TableFinished
from lakeward.spi import LakeCommitter, Plugin, RewriteResult
from lakeward.tiering.compact.commit import CompactionCommit, LandedRewrite
from lakeward.tiering.compact.ground import CompactionGround, load_compaction
from lakeward.tiering.compact.order import RewriteOrder, RewriteOutcome
from lakeward.tiering.compact.plan import CompactionPlan
from lakeward.tiering.round.reconcile import adoption
from lakeward.tiering.work.attempt import Attempt
from lakeward.tiering.work.runner import RoundEnd


@dataclass(kw_only=True)
class Compaction(Attempt):
    """One attempt at a compaction. `is_leased` False: it stands under the lake's fence alone."""

    is_leased: bool = True

    def _run(self) -> RoundEnd:
        ground = self.patiently(self._prepare)
        self.phases = replace(self.phases, wait_s=self.handed.waited_s, plan_s=self._seconds())
        fault_point("compact.planned", table=self.name, round_id=self.round_id)
        if not ground.groups:
            return self.finished(None)
        committer = self.patiently(lambda: self.lake(ground.table).open_committer(ground.table))
        order = self.patiently(lambda: self._order(ground, committer))
        self.patiently(lambda: self.record_intent(ground.table, ground.base, committer, self.world.clock.now_ms()))
        is_committed = False
        try:
            results, error = self._rewrite(ground, order)
            if results and ground.dropped:
                self.patiently(lambda: self._say_dropped(ground))
            landed = self._commit(ground, committer, order.lease, results) if results else None
            is_committed = landed is not None and landed.snapshot is not None
            if error is not None:
                return self.failed(error)
            return self._ended(ground, results, landed)
        finally:
            if not is_committed:
                self.abandon()

    # ---- plan ------------------------------------------------------------------------------------------------------
    def _prepare(self) -> CompactionGround:
        table = side_table(self.world.hot.store().load_table(self.handed.path), self.handed.side)
        return load_compaction(table, self.lake(table), self.world.options, self.world.clock)

    # ---- write -----------------------------------------------------------------------------------------------------
    def _order(self, ground: CompactionGround, committer: LakeCommitter) -> RewriteOrder:
        limit, hot, lake = self.handed.limit_ms, self.world.hot, self.lake_plugin(ground.table)
        handle = committer.begin(self.round_id)
        self.world.check_location(lake.name, committer.prefix(self.round_id))
        return RewriteOrder(
            round_id=self.round_id,
            owner=self.owner,
            table=ground.table,
            hot=Plugin(name=hot.name, options=dict(hot.options)),
            lake=lake,
            groups=(),
            side=self.handed.side,
            deadline_at_ms=None if limit is None else self.world.clock.now_ms() + limit,
            flag=self.control.flag,
            handle=handle,
        )

    def _rewrite(
        self, ground: CompactionGround, order: RewriteOrder
    ) -> tuple[list[RewriteResult], LakewardError | None]:
        """Rewritten groups, and the first error. A group that reached its deadline waits for the next compaction."""
        began, control = self.world.clock.monotonic(), self.control
        control.show(phase="write", splits_total=len(ground.groups))
        fault_point("compact.before-write", table=self.name, round_id=self.round_id)
        sent = self.world.dispatcher.run(
            [replace(order, groups=(group,)) for group in ground.groups],
            control,
            is_small=sum(f.size_bytes for g in ground.groups for f in g.files) <= self.world.options.small_round_bytes,
            progressed=lambda n: control.show(splits_done=n),
        )
        outcomes = [RewriteOutcome.from_bytes(o) for o in sent]
        self.phases = replace(
            self.phases,
            write_s=self.world.clock.monotonic() - began,
            slowest_split_s=max((o.seconds for o in outcomes), default=0.0),
            cpu_s=sum(o.cpu_s for o in outcomes),
        )
        fault_point("compact.written", table=self.name, round_id=self.round_id)
        control.check()
        results = [r for o in outcomes if (r := o.result(ground.groups[o.index])) is not None]
        return results, next((o.error for o in outcomes if o.error is not None), None)

    # ---- commit ----------------------------------------------------------------------------------------------------
    def _commit(
        self, ground: CompactionGround, committer: LakeCommitter, lease: LeaseCheck, results: Sequence[RewriteResult]
    ) -> LandedRewrite:
        self.control.show(phase="commit")
        began = self.world.clock.monotonic()
        commit = CompactionCommit(
            table=ground.table,
            lease=lease,
            planned=ground.base,
            results=results,
            is_leased=self.is_leased,
            reader=self.lake(ground.table).open_reader(ground.table),
            committer=committer,
            coordinator=self.world.hot.coordinator(),
            control=self.control,
            clock=self.world.clock,
            started=self.started,
            limits=self.world.options.commit,
        )
        landed = commit.land()
        self._report(ground, landed)
        self.phases = replace(self.phases, commit_s=self.world.clock.monotonic() - began)
        return landed

    def _say_dropped(self, ground: CompactionGround) -> None:
        """Reports the dropped ranges before the lake removes them, so that readers do not take them for changes that
        never happened."""
        fault_point("compact.before-dropped", table=self.name, round_id=self.round_id)
        ranges = tuple(CommittedRange(bucket=b, range=r) for b, r in ground.dropped.items())
        report = adoption(ground.table, ground.base, self.owner, self.handed.side)
        dropped = replace(report, round_id=self.round_id, work=COMPACT, kind=LedgerKind.DROPPED, ranges=ranges)
        self.world.hot.coordinator().commit(dropped)

    def _report(self, ground: CompactionGround, landed: LandedRewrite) -> None:
        """The lake's new figures, and that the intent has done its work. Best effort: rounds tell them too, and an
        intent that stays open is orphan removal's."""
        if landed.snapshot is None:
            return
        try:
            totals = self.lake(ground.table).open_reader(ground.table).totals()
            report = replace(
                adoption(ground.table, landed.base, self.owner, self.handed.side),
                round_id=self.round_id,
                work=COMPACT,
                snapshot_id=landed.snapshot.snapshot_id,
                lake_rows=totals.rows,
                lake_bytes=totals.bytes,
                lake_files=totals.data_files,
                lake_delete_files=totals.delete_files,
                lake_snapshots=totals.snapshots,
            )
            self.patiently(lambda: self.world.hot.coordinator().commit(report))
        except LakewardError:
            return

    def _seconds(self) -> float:
        return self.world.clock.monotonic() - self.started

    # ---- ends ------------------------------------------------------------------------------------------------------
    def _ended(
        self, ground: CompactionGround, results: Sequence[RewriteResult], landed: LandedRewrite | None
    ) -> TableFinished:
        """`force_finished`: there is more to do, of this plan or of groups that did not fit into it."""
        left_out = () if landed is None else landed.left_out
        kept_results = [r for r in results if r.group.index not in left_out]
        is_landed = landed is not None and landed.snapshot is not None
        rewritten = kept_results if is_landed else []
        replaced = {f.path for r in rewritten for f in r.group.files}
        remaining_plan = CompactionPlan(
            groups=tuple(g for g in ground.plan.groups if g.files[0].file.path not in replaced)
        )
        result = RoundResult(
            round_id=self.round_id,
            snapshot_id=landed.snapshot.snapshot_id if landed is not None and landed.snapshot is not None else None,
            rows=sum(r.rows for r in rewritten),
            deletes=0 if landed is None else landed.carried,
            bytes_written=sum(r.bytes_written for r in rewritten),
            files=len(rewritten),
            phases=self.phases,
            bytes_read=sum(r.bytes_read for r in results),
            files_replaced=len(replaced),
            groups_left_out=len(results) - len(rewritten),
            debt_files=remaining_plan.saved_files + len(replaced) - len(rewritten),
            debt_rows=sum(g.deleted for g in remaining_plan.groups),
        )
        is_more = len(rewritten) < len(ground.plan.groups) or bool(rewritten and ground.dropped)
        return self.finished(result, force_finished=is_more)
