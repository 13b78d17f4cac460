# SPDX-License-Identifier: Apache-2.0
"""One compaction of one side on the driver: plan, rewrite, commit; and how it ended, for the coordinator."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from lakeward.errors import CommitConflict, LakewardError, SplitFailed, Unavailable, to_wire
from lakeward.model.faults import fault_point
from lakeward.model.intent import Intent
from lakeward.model.round import RoundPhases, RoundResult
from lakeward.model.side import COMPACT
from lakeward.model.table import TableInfo
from lakeward.protocol.heartbeat import LeaseCheck, TableFailed, TableFinished
from lakeward.spi.lake import LakeCommitter, LakeStorage, RewriteResult
from lakeward.spi.plugins import Plugin
from lakeward.tiering.compact.commit import CompactionCommit, LandedRewrite
from lakeward.tiering.compact.ground import CompactionGround, load_compaction
from lakeward.tiering.compact.order import RewriteOrder, RewriteOutcome
from lakeward.tiering.job.backoff import patiently
from lakeward.tiering.round.reconcile import adoption
from lakeward.tiering.round.round import NOT_A_FAILURE
from lakeward.tiering.work import JobWorld, LeasedWork, RoundEnd

T = TypeVar("T")


@dataclass(kw_only=True)
class Compaction:
    """One attempt. `run` never raises: the end goes to the coordinator as a message."""

    world: JobWorld
    work: LeasedWork
    started: float = 0.0
    phases: RoundPhases = field(default_factory=RoundPhases)

    def run(self) -> RoundEnd:
        self.started = self.world.clock.monotonic()
        try:
            return self._run()
        except LakewardError as error:
            return self._failed(error)
        except Exception as error:  # noqa: BLE001 - one table's trouble, of whatever kind, fails this work only
            kind, text = type(error).__name__, str(error)[:2000]
            return self._failed(SplitFailed(table=self._name, split="on the driver", kind=kind, text=text))
        finally:
            self.work.control.clear()

    def _run(self) -> RoundEnd:
        ground = self._patiently(self._prepare)
        self.phases = replace(self.phases, wait_s=self.work.handed.waited_s, plan_s=self._seconds())
        fault_point("compact.planned", table=self._name, round_id=self.work.round_id)
        if not ground.groups:
            return self._finished(None)
        committer = self._patiently(lambda: self._lake(ground.table).open_committer(ground.table))
        order = self._patiently(lambda: self._order(ground, committer))
        self._patiently(lambda: self._record_intent(ground, committer))
        is_committed = False
        try:
            results, error = self._rewrite(ground, order)
            landed = self._commit(ground, committer, order.lease, results) if results else None
            is_committed = landed is not None and landed.snapshot is not None
            if error is not None:
                return self._failed(error)
            return self._ended(ground, results, landed)
        finally:
            if not is_committed:
                self._abandon()

    # ---- plan ------------------------------------------------------------------------------------------------------
    def _prepare(self) -> CompactionGround:
        table = self.world.hot.store().load_table(self.work.handed.path)
        return load_compaction(table, self._lake(table), self.world.options, self.world.clock)

    # ---- write -----------------------------------------------------------------------------------------------------
    def _order(self, ground: CompactionGround, committer: LakeCommitter) -> RewriteOrder:
        limit, hot, lake = self.work.handed.limit_ms, self.world.hot, self._lake_plugin(ground.table)
        handle = committer.begin(self.work.round_id)
        self.world.check_location(lake.name, committer.prefix(self.work.round_id))
        return RewriteOrder(
            round_id=self.work.round_id,
            owner=self.work.owner,
            table=ground.table,
            hot=Plugin(name=hot.name, options=dict(hot.options)),
            lake=lake,
            groups=(),
            side=self.work.handed.side,
            deadline_at_ms=None if limit is None else self.world.clock.now_ms() + limit,
            flag=self.work.control.flag,
            handle=handle,
        )

    def _rewrite(
        self, ground: CompactionGround, order: RewriteOrder
    ) -> tuple[list[RewriteResult], LakewardError | None]:
        """What was rewritten, and the first error beside it. A group that came due is left for the next compaction."""
        began, control = self.world.clock.monotonic(), self.work.control
        control.show(phase="write", splits_total=len(ground.groups))
        fault_point("compact.before-write", table=self._name, round_id=self.work.round_id)
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
        )
        fault_point("compact.written", table=self._name, round_id=self.work.round_id)
        control.check()
        results = [r for o in outcomes if (r := o.result(ground.groups[o.index])) is not None]
        return results, next((o.error for o in outcomes if o.error is not None), None)

    # ---- commit ----------------------------------------------------------------------------------------------------
    def _commit(
        self, ground: CompactionGround, committer: LakeCommitter, lease: LeaseCheck, results: Sequence[RewriteResult]
    ) -> LandedRewrite:
        self.work.control.show(phase="commit")
        began = self.world.clock.monotonic()
        commit = CompactionCommit(
            table=ground.table,
            lease=lease,
            planned=ground.base,
            results=results,
            reader=self._lake(ground.table).open_reader(ground.table),
            committer=committer,
            coordinator=self.world.hot.coordinator(),
            control=self.work.control,
            clock=self.world.clock,
            started=self.started,
            limits=self.world.options.commit,
        )
        landed = commit.land()
        self._report(ground, landed)
        self.phases = replace(self.phases, commit_s=self.world.clock.monotonic() - began)
        return landed

    def _report(self, ground: CompactionGround, landed: LandedRewrite) -> None:
        """The lake's new figures, and that the intent has done its work. Best effort: rounds tell them too, and an
        intent that stays open is orphan removal's."""
        if landed.snapshot is None:
            return
        try:
            totals = self._lake(ground.table).open_reader(ground.table).totals()
            report = replace(
                adoption(ground.table, landed.base, self.work.owner, self.work.handed.side),
                round_id=self.work.round_id,
                work=COMPACT,
                snapshot_id=landed.snapshot.snapshot_id,
                lake_rows=totals.rows,
                lake_bytes=totals.bytes,
                lake_files=totals.data_files,
                lake_delete_files=totals.delete_files,
                lake_snapshots=totals.snapshots,
            )
            self._patiently(lambda: self.world.hot.coordinator().commit(report))
        except LakewardError:
            return

    def _record_intent(self, ground: CompactionGround, committer: LakeCommitter) -> None:
        self.world.hot.coordinator().record_intent(
            Intent(
                round_id=self.work.round_id,
                table_id=ground.table.table_id,
                prefix=committer.prefix(self.work.round_id),
                token=ground.base.token,
                fence=ground.base.fence,
                recorded_at_ms=self.world.clock.now_ms(),
                kind=COMPACT,
                side=self.work.handed.side,
            )
        )

    def _abandon(self) -> None:
        """Deletes nothing. An intent that stays open is orphan removal's too, only later."""
        try:
            self.world.hot.coordinator().abandon_intent(self.work.round_id)
        except Unavailable:
            return

    # ---- pieces ----------------------------------------------------------------------------------------------------
    def _lake(self, table: TableInfo) -> LakeStorage:
        return self.world.plugins.lake(self._lake_plugin(table))

    def _lake_plugin(self, table: TableInfo) -> Plugin:
        name, lake_options = self.world.hot.lake_options(table)
        return Plugin(name=name, options=dict(lake_options))

    def _patiently(self, call: Callable[[], T]) -> T:
        wait, limit = self.work.control.wait, self.world.options.server_wait_s
        return patiently(call, clock=self.world.clock, wait=wait, server_wait_s=limit)

    def _seconds(self) -> float:
        return self.world.clock.monotonic() - self.started

    @property
    def _name(self) -> str:
        return str(self.work.handed.path)

    # ---- ends ------------------------------------------------------------------------------------------------------
    def _ended(
        self, ground: CompactionGround, results: Sequence[RewriteResult], landed: LandedRewrite | None
    ) -> TableFinished:
        """`force_finished`: there is more to do, of this plan or of groups that did not fit into it."""
        left_out = () if landed is None else landed.left_out
        kept = [r for r in results if r.group.index not in left_out]
        is_landed = landed is not None and landed.snapshot is not None
        rewritten = kept if is_landed else []
        result = RoundResult(
            round_id=self.work.round_id,
            snapshot_id=landed.snapshot.snapshot_id if landed is not None and landed.snapshot is not None else None,
            rows=sum(r.rows for r in rewritten),
            deletes=0 if landed is None else landed.carried,
            bytes_written=sum(r.bytes_written for r in rewritten),
            files=len(rewritten),
            phases=self.phases,
            bytes_read=sum(r.bytes_read for r in results),
            files_replaced=sum(len(r.group.files) for r in rewritten),
            groups_left_out=len(results) - len(rewritten),
            debt_files=ground.plan.saved_files,
        )
        return self._finished(result, force_finished=len(rewritten) < len(ground.plan.groups))

    def _finished(self, result: RoundResult | None, *, force_finished: bool = False) -> TableFinished:
        handed = self.work.handed
        return TableFinished(
            table_id=handed.table_id,
            epoch=handed.epoch,
            round_id=self.work.round_id,
            result=result,
            force_finished=force_finished,
            side=handed.side,
            kind=handed.kind,
        )

    def _failed(self, error: LakewardError) -> TableFailed:
        handed, stopped = self.work.handed, self.work.control.stopped_by
        lost = isinstance(error, NOT_A_FAILURE) or (isinstance(error, CommitConflict) and error.lost)
        given_back = lost or (stopped is not None and self.work.control.is_given_back)
        return TableFailed(
            table_id=handed.table_id,
            epoch=handed.epoch,
            round_id=self.work.round_id,
            error=to_wire(stopped if stopped is not None and given_back else error),
            given_back=given_back,
            side=handed.side,
            kind=handed.kind,
        )
