# SPDX-License-Identifier: Apache-2.0
"""One round of one table on the driver: reconcile, plan, write, resolve, commit; and how it ended, for the
coordinator.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeVar

from lakeward.errors import (
    CommitConflict,
    FencedEpoch,
    LakewardError,
    LeaseLost,
    SchemaChanged,
    SplitFailed,
    Superseded,
    Unavailable,
    to_wire,
)
from lakeward.model.faults import fault_point
from lakeward.model.ids import RoundId
from lakeward.model.intent import Intent
from lakeward.model.naming import of_table
from lakeward.model.round import RoundOwner, RoundPhases, RoundPlan, RoundResult
from lakeward.model.split import Split
from lakeward.model.table import TableInfo
from lakeward.protocol.heartbeat import HandedOut, TableFailed, TableFinished
from lakeward.spi.lake import LakeCommitter, LakeStorage
from lakeward.spi.plugins import Plugin
from lakeward.tiering.job.backoff import delays, patiently
from lakeward.tiering.round.commit import Landed, RoundCommit
from lakeward.tiering.round.control import RoundControl
from lakeward.tiering.round.order import WriteOrder
from lakeward.tiering.round.outcome import WriteOutcome
from lakeward.tiering.round.plan import plan_comparison, plan_turns
from lakeward.tiering.round.planning import Ground, Planner
from lakeward.tiering.round.prefix import KeptPrefix, keep_prefix
from lakeward.tiering.round.reconcile import adoption
from lakeward.tiering.work import JobWorld, RoundEnd

T = TypeVar("T")

NOT_A_FAILURE = (LeaseLost, FencedEpoch, Superseded)
"""Ends of a round that say nothing about its table: it goes back to the queue without a count."""


@dataclass(kw_only=True)
class Round:
    """One attempt. `run` never raises: the end goes to the coordinator as a message."""

    world: JobWorld
    handed: HandedOut
    owner: RoundOwner
    control: RoundControl
    round_id: RoundId
    phases: RoundPhases = field(default_factory=RoundPhases)

    def run(self) -> RoundEnd:
        try:
            with of_table(str(self.handed.path)):
                return self._run()
        except LakewardError as error:
            return self._failed(error)
        except Exception as error:  # noqa: BLE001 - one table's trouble, of whatever kind, fails this round only
            text = str(error)[:2000]
            return self._failed(
                SplitFailed(table=str(self.handed.path), split="on the driver", kind=type(error).__name__, text=text)
            )
        finally:
            self.control.clear()

    # ---- the phases ------------------------------------------------------------------------------------------------
    def _run(self) -> RoundEnd:
        clock = self.world.clock
        started = clock.monotonic()
        self.phases = replace(self.phases, wait_s=self.handed.waited_s)
        planner = Planner(
            world_hot=self.world.hot, handed=self.handed, owner=self.owner, round_id=self.round_id, clock=clock
        )
        try:
            ground = self._patiently(lambda: planner.prepare(self._lake, self.world.options.target_bytes))
            self.phases = replace(self.phases, plan_s=clock.monotonic() - started)
            fault_point("round.planned", table=str(self.handed.path), round_id=self.round_id)
            if ground.plan.is_empty:
                return self._finished(None, caught_up_at_ms=ground.frozen_at_ms)
            return self._write_and_commit(ground, started)
        finally:
            planner.release()

    def _write_and_commit(self, ground: Ground, started: float) -> RoundEnd:
        self.control.check()
        self.control.show(phase="write", splits_total=len(ground.plan.splits))
        committer = self._patiently(lambda: self._lake(ground.plan.table).open_committer(ground.plan.table))
        order = self._patiently(lambda: self._order(ground, committer, started))
        self._patiently(lambda: self._record_intent(ground.plan, committer))
        is_committed = False
        try:
            kept = self._write(ground, order, committer)
            if not kept.outcomes:
                return self._nothing_kept(kept)
            commit, landed = self._commit(ground, kept, order, committer, started)
            is_committed = True
            return self._tell(commit, landed, self._landed(ground, kept, landed))
        finally:
            if not is_committed:
                self._abandon()

    def _write(self, ground: Ground, order: WriteOrder, committer: LakeCommitter) -> KeptPrefix:
        """Sends the splits; those whose failure may heal are sent again. A newer schema is loaded in between."""
        began, options = self.world.clock.monotonic(), self.world.options
        pending = ground.plan.splits
        outcomes: dict[Split, WriteOutcome] = {}
        fault_point("round.before-write", table=str(self.handed.path), round_id=self.round_id)
        for attempt, delay in zip(range(options.split_attempts), delays(), strict=False):
            if attempt:
                self.control.wait(delay)
                order = self._patiently(partial(self._refreshed, order, committer, dict(outcomes)))
            outcomes |= self._dispatch(order, pending, ground)
            pending = tuple(s for s in pending if _may_heal(outcomes.get(s)))
            if not pending or self._is_due(order):
                break
        self._note_write(began, outcomes)
        fault_point("round.written", table=str(self.handed.path), round_id=self.round_id)
        self.control.check()
        return keep_prefix(ground.plan.splits, outcomes.values())

    def _commit(
        self, ground: Ground, kept: KeptPrefix, order: WriteOrder, committer: LakeCommitter, started: float
    ) -> tuple[RoundCommit, Landed]:
        self.control.show(phase="commit")
        clock = self.world.clock
        began = clock.monotonic()
        table = ground.plan.table
        commit = RoundCommit(
            table=table,
            lease=order.lease,
            plan=ground.plan,
            kept=kept,
            reader=self._lake(table).open_reader(table),
            committer=committer,
            coordinator=self.world.hot.coordinator(),
            control=self.control,
            clock=clock,
            started=started,
            limits=self.world.options.commit,
            generation=self._generation(ground),
            is_resync=ground.is_resync,
            gaps=ground.gaps,
        )
        try:
            landed = commit.land()
        except CommitConflict as conflict:
            if conflict.lost:
                self._adopt(ground)
            raise
        landed = commit.with_totals(landed)
        seconds = clock.monotonic() - began
        self.phases = replace(self.phases, resolve_s=landed.resolve_s, commit_s=max(0.0, seconds - landed.resolve_s))
        return commit, landed

    def _tell(self, commit: RoundCommit, landed: Landed, end: RoundEnd) -> RoundEnd:
        """The coordinator's part of the commit, with the round's end where there is nothing more to say."""
        answer = commit.report(landed, end if isinstance(end, TableFinished) else None)
        if answer.is_finished:
            self.control.note_told(answer.next_beat_ms)
        return end

    def _patiently(self, call: Callable[[], T]) -> T:
        """A server that restarts costs a pause, not the round; calls before the commit are all safe to repeat."""
        return patiently(
            call, clock=self.world.clock, wait=self.control.wait, server_wait_s=self.world.options.server_wait_s
        )

    # ---- pieces ----------------------------------------------------------------------------------------------------
    def _lake(self, table: TableInfo) -> LakeStorage:
        return self.world.plugins.lake(self._lake_plugin(table))

    def _lake_plugin(self, table: TableInfo) -> Plugin:
        name, lake_options = self.world.hot.lake_options(table)
        return Plugin(name=name, options=dict(lake_options))

    def _generation(self, ground: Ground) -> int:
        return self.handed.generation if ground.is_resync else ground.plan.base.generation

    def _record_intent(self, plan: RoundPlan, committer: LakeCommitter) -> None:
        intent = Intent(
            round_id=self.round_id,
            table_id=plan.table.table_id,
            prefix=committer.prefix(self.round_id),
            token=plan.base.token,
            fence=plan.base.fence,
            recorded_at_ms=plan.planned_at_ms,
            side=self.handed.side,
        )
        self.world.hot.coordinator().record_intent(intent)

    def _order(self, ground: Ground, committer: LakeCommitter, started: float) -> WriteOrder:
        limit, hot, lake = self.handed.limit_ms, self.world.hot, self._lake_plugin(ground.plan.table)
        handle = committer.begin(self.round_id, ground.plan.base)
        self.world.check_location(lake.name, committer.prefix(self.round_id))
        spent_ms = int((self.world.clock.monotonic() - started) * 1000)
        return WriteOrder(
            round_id=self.round_id,
            owner=self.owner,
            table=ground.plan.table,
            side=self.handed.side,
            handle=handle,
            hot=Plugin(name=hot.name, options=dict(hot.options)),
            lake=lake,
            deadline_at_ms=None if limit is None else self.world.clock.now_ms() - spent_ms + limit,
            flag=self.control.flag,
            compare_with=plan_comparison(ground.plan),
            server_wait_s=self.world.options.server_wait_s,
            min_work_s=self.world.options.min_work_s,
            held_rows=self.world.options.held_rows,
        )

    def _refreshed(
        self, order: WriteOrder, committer: LakeCommitter, outcomes: Mapping[Split, WriteOutcome]
    ) -> WriteOrder:
        if not any(isinstance(o.error, SchemaChanged) for o in outcomes.values()):
            return order
        table = self.world.hot.store().load_table(self.handed.path)
        return replace(order, table=table, handle=committer.begin(self.round_id))

    def _dispatch(self, order: WriteOrder, splits: Sequence[Split], ground: Ground) -> dict[Split, WriteOutcome]:
        is_small = ground.bytes_waiting <= self.world.options.small_round_bytes
        turns = plan_turns(splits, self.round_id)
        groups = [turns] if is_small else [(s,) for s in turns]
        orders = [order.with_splits(g, is_first=n == 0) for n, g in enumerate(groups)]
        done = len(ground.plan.splits) - len(splits)
        outcomes = self.world.dispatcher.run(
            orders, self.control, is_small=is_small, progressed=lambda n: self.control.show(splits_done=done + n)
        )
        return {o.split: o for o in map(WriteOutcome.from_bytes, outcomes)}

    def _is_due(self, order: WriteOrder) -> bool:
        deadline = order.deadline_at_ms
        return self.control.forced or (deadline is not None and self.world.clock.now_ms() >= deadline)

    def _note_write(self, began: float, outcomes: Mapping[Split, WriteOutcome]) -> None:
        slowest = max((o.seconds for o in outcomes.values()), default=0.0)
        self.phases = replace(self.phases, write_s=self.world.clock.monotonic() - began, slowest_split_s=slowest)
        self.control.show(splits_done=len(outcomes), rows=sum(o.rows for o in outcomes.values()))

    def _adopt(self, ground: Ground) -> None:
        """The loser takes over what the winner committed. Best effort: the next round reconciles anyway."""
        try:
            base = self._lake(ground.plan.table).open_reader(ground.plan.table).load_base()
            if base.token is not None:
                self.world.hot.coordinator().commit(adoption(ground.plan.table, base, self.owner, self.handed.side))
        except LakewardError:
            return

    def _abandon(self) -> None:
        """Deletes nothing. An intent that stays open is orphan removal's too, only later."""
        try:
            self.world.hot.coordinator().abandon_intent(self.round_id)
        except Unavailable:
            return

    # ---- ends ------------------------------------------------------------------------------------------------------
    def _nothing_kept(self, kept: KeptPrefix) -> RoundEnd:
        if kept.error is not None:
            return self._failed(kept.error)
        return self._finished(None, force_finished=True)

    def _landed(self, ground: Ground, kept: KeptPrefix, landed: Landed) -> RoundEnd:
        """What landed counts; a split that failed beside it is reported as the round's failure all the same."""
        if kept.error is not None:
            return self._failed(kept.error)
        committable = landed.committable
        result = RoundResult(
            round_id=self.round_id,
            snapshot_id=landed.snapshot_id,
            rows=kept.rows,
            deletes=committable.deletes if committable else 0,
            bytes_written=committable.bytes_written if committable else 0,
            files=committable.files if committable else 0,
            phases=self.phases,
            lake_bytes=None if landed.totals is None else landed.totals.bytes,
            lake_rows=None if landed.snapshot is None else landed.snapshot.lake_rows,
        )
        if not kept.is_whole:
            return self._finished(result, force_finished=True)
        return self._finished(result, caught_up_at_ms=ground.frozen_at_ms)

    def _finished(
        self, result: RoundResult | None, *, force_finished: bool = False, caught_up_at_ms: int | None = None
    ) -> TableFinished:
        return TableFinished(
            table_id=self.handed.table_id,
            epoch=self.handed.epoch,
            round_id=self.round_id,
            result=result,
            force_finished=force_finished,
            caught_up_at_ms=caught_up_at_ms,
            side=self.handed.side,
            kind=self.handed.kind,
        )

    def _failed(self, error: LakewardError) -> TableFailed:
        stopped = self.control.stopped_by
        given_back = (
            isinstance(error, NOT_A_FAILURE)
            or (isinstance(error, CommitConflict) and error.lost)
            or (stopped is not None and self.control.is_given_back)
        )
        return TableFailed(
            table_id=self.handed.table_id,
            epoch=self.handed.epoch,
            round_id=self.round_id,
            error=to_wire(stopped if stopped is not None and given_back else error),
            given_back=given_back,
            side=self.handed.side,
            kind=self.handed.kind,
        )


def _may_heal(outcome: WriteOutcome | None) -> bool:
    """No outcome: the task died with it, for as often as Spark retries."""
    return outcome is None or (outcome.error is not None and outcome.error.retryable)
