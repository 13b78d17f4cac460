# SPDX-License-Identifier: Apache-2.0
"""One round of one table on the driver: reconcile, plan, write, resolve, commit; and how it ended, for the
coordinator.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from lakeward.errors import (
    CommitConflict,
    LakewardError,
    SchemaChanged,
)
from lakeward.model import LogSplit, RoundResult, SideName, Split, fault_point
from lakeward.protocol.heartbeat import TableFinished
from lakeward.spi import LakeCommitter, Plugin
from lakeward.tiering.round.commit import Landed, RoundCommit
from lakeward.tiering.round.plan import plan_comparison, plan_turns
from lakeward.tiering.round.planning import Ground, Planner
from lakeward.tiering.round.prefix import KeptPrefix, keep_prefix
from lakeward.tiering.round.reconcile import adoption
from lakeward.tiering.work.attempt import Attempt
from lakeward.tiering.work.backoff import delays
from lakeward.tiering.work.meeting import Offer, wait_for_others_s
from lakeward.tiering.work.outcome import WriteOutcome
from lakeward.tiering.work.runner import RoundEnd
from lakeward.tiering.work.writeorder import WriteOrder


@dataclass(kw_only=True)
class Round(Attempt):
    """One attempt at a round."""

    _read_with: frozenset[SideName] = frozenset()
    _log_bytes: int = 0
    _has_written: bool = False
    """It may have: tasks were about to be sent."""

    _is_committed: bool = False

    def _run(self) -> RoundEnd:
        clock = self.world.clock
        self.phases = replace(self.phases, wait_s=self.handed.waited_s)
        planner = Planner(
            world_hot=self.world.hot,
            handed=self.handed,
            owner=self.owner,
            round_id=self.round_id,
            clock=clock,
            check_prefix=self.world.check_location,
        )
        try:
            ground = self.patiently(lambda: planner.prepare(self.lake, self.world.options.target_bytes))
            self.phases = replace(self.phases, plan_s=clock.monotonic() - self.started)
            fault_point("round.planned", table=self.name, round_id=self.round_id)
            if ground.plan.is_empty and not ground.is_resync:  # the commit of a resync begins the new generation
                return self.finished(None, caught_up_at_ms=ground.frozen_at_ms)
            self._has_written = True
            return self._write_and_commit(ground, planner)
        finally:
            planner.release()
            if not self._is_committed:
                planner.abandon_intent(unused=not self._has_written)

    def _write_and_commit(self, ground: Ground, planner: Planner) -> RoundEnd:
        self.control.check()
        self.control.show(phase="write", splits_total=len(ground.plan.splits))
        committer = self.patiently(lambda: self.lake(ground.plan.table).open_committer(ground.plan.table))
        order = self.patiently(lambda: self._order(ground))
        self.patiently(planner.record_intent)
        kept = KeptPrefix() if ground.plan.is_empty else self._write(ground, order, committer)
        if not kept.outcomes and not ground.plan.is_empty:
            return self._nothing_kept(kept)
        kept = replace(kept, offsets={**ground.passed, **kept.offsets})
        commit, landed = self._commit(ground, kept, order, committer)
        self._is_committed = True
        return self._tell(commit, landed, self._landed(ground, kept, landed))

    def _write(self, ground: Ground, order: WriteOrder, committer: LakeCommitter) -> KeptPrefix:
        """Sends the splits; those whose failure may heal are sent again. A newer schema is loaded in between."""
        began, options = self.world.clock.monotonic(), self.world.options
        pending = ground.plan.splits
        outcomes: dict[Split, WriteOutcome] = {}
        fault_point("round.before-write", table=self.name, round_id=self.round_id)
        for attempt, delay in zip(range(options.split_attempts), delays(), strict=False):
            if attempt:
                self.control.wait(delay)
                order = self.patiently(partial(self._refreshed, order, committer, dict(outcomes)))
            told = self._dispatch_together(order, ground) if not attempt else None
            outcomes |= self._dispatch(order, pending, ground) if told is None else told
            pending = tuple(s for s in pending if _may_heal(outcomes.get(s)))
            if not pending or self._is_due(order):
                break
        self._note_write(began, outcomes)
        fault_point("round.written", table=self.name, round_id=self.round_id)
        self.control.check()
        return keep_prefix(ground.plan.splits, outcomes.values())

    def _commit(
        self, ground: Ground, kept: KeptPrefix, order: WriteOrder, committer: LakeCommitter
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
            reader=self.lake(table).open_reader(table),
            committer=committer,
            coordinator=self.world.hot.coordinator(),
            control=self.control,
            clock=clock,
            started=self.started,
            limits=self.world.options.commit,
            generation=ground.generation,
            is_resync=ground.is_resync,
            gaps=ground.gaps,
            is_small=ground.bytes_waiting <= self.world.options.small_round_bytes,
            end=lambda landed: self._landed(ground, kept, landed),
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
        answer = landed.answer or commit.report(landed, end if isinstance(end, TableFinished) else None)
        if answer.is_finished:
            self.control.note_told(answer.next_beat_ms)
        return end

    # ---- pieces ----------------------------------------------------------------------------------------------------
    def _order(self, ground: Ground) -> WriteOrder:
        limit, hot, lake = self.handed.limit_ms, self.world.hot, self.lake_plugin(ground.plan.table)
        return WriteOrder(
            round_id=self.round_id,
            owner=self.owner,
            table=ground.table,
            side=self.handed.side,
            handle=ground.handle,
            hot=Plugin(name=hot.name, options=dict(hot.options)),
            lake=lake,
            deadline_at_ms=None if limit is None else self.world.clock.now_ms() + limit,  # planning took its own time
            flag=self.control.flag,
            compare_with=plan_comparison(ground.plan, is_resync=ground.is_resync),
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

    def _dispatch_together(self, order: WriteOrder, ground: Ground) -> dict[Split, WriteOutcome] | None:
        """With rounds of other sides that read the same part of the log; None: alone. What has to be tried again is
        tried alone."""
        if self.meeting is None:
            return None
        splits, deadline = ground.plan.splits, self.handed.deadline_at_ms
        if not any(isinstance(s, LogSplit) for s in splits):
            self.leave()
            return None
        offer = Offer(
            order=order.with_splits(plan_turns(splits, self.round_id)),
            control=self.control,
            is_small=ground.bytes_waiting <= self.world.options.small_round_bytes,
            progressed=lambda n: self.control.show(splits_done=n),
            wait_s=wait_for_others_s(None if deadline is None else deadline - self.world.clock.now_ms()),
        )
        outcomes = self.meeting.run(offer)
        return None if outcomes is None else {o.split: o for o in outcomes}

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
        self._read_with = frozenset(side for o in outcomes.values() for side in o.read_with)
        self._log_bytes = sum(o.bytes_read for o in outcomes.values() if isinstance(o.split, LogSplit))
        slowest = max((o.seconds for o in outcomes.values()), default=0.0)
        cpu_s = sum(o.cpu_s for o in outcomes.values())
        write_s = self.world.clock.monotonic() - began
        self.phases = replace(self.phases, write_s=write_s, slowest_split_s=slowest, cpu_s=cpu_s)
        self.control.show(splits_done=len(outcomes), rows=sum(o.rows for o in outcomes.values()))

    def _adopt(self, ground: Ground) -> None:
        """The loser takes over what the winner committed. Best effort: the next round reconciles anyway."""
        try:
            base = self.lake(ground.plan.table).open_reader(ground.plan.table).load_base()
            if base.token is not None:
                self.world.hot.coordinator().commit(adoption(ground.plan.table, base, self.owner, self.handed.side))
        except LakewardError:
            return

    # ---- ends ------------------------------------------------------------------------------------------------------
    def _nothing_kept(self, kept: KeptPrefix) -> RoundEnd:
        if kept.error is not None:
            return self.failed(kept.error)
        return self.finished(None, force_finished=True)

    def _landed(self, ground: Ground, kept: KeptPrefix, landed: Landed) -> RoundEnd:
        """Landed outcomes count; the error of a failed split is reported as the round's failure all the same."""
        if kept.error is not None:
            return self.failed(kept.error)
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
            read_with=tuple(sorted(self._read_with, key=str)),
            log_bytes=self._log_bytes,
        )
        if not kept.is_whole:
            return self.finished(result, force_finished=True)
        return self.finished(result, caught_up_at_ms=ground.frozen_at_ms)


def _may_heal(outcome: WriteOutcome | None) -> bool:
    """No outcome: the task died with it, for as often as Spark retries."""
    return outcome is None or (outcome.error is not None and outcome.error.retryable)
