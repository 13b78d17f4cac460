# SPDX-License-Identifier: Apache-2.0
"""The calls around a plan: freeze the log ends and load the schema, reconcile, take KV snapshots, then plan (pure)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from lakeward.changelog.columns import changes_of
from lakeward.errors import TableNotFound, Unavailable
from lakeward.model import (
    Bucket,
    ChangeType,
    Clock,
    Content,
    OffsetRange,
    RoundId,
    RoundOwner,
    RoundPlan,
    TableInfo,
    side_table,
)
from lakeward.protocol.heartbeat import HandedOut
from lakeward.spi import NO_ROWS, FrozenTable, HotPlugin, HotStore, KvSnapshot, LakeStorage, LogBounds
from lakeward.tiering.round.plan import (
    Align,
    PlanOptions,
    keep_cut,
    plan_bytes,
    plan_gaps,
    plan_passed,
    plan_round,
    plan_snapshots,
    plan_stop,
)
from lakeward.tiering.round.reconcile import Agreement, Reconciliation, adoption, reconcile, reconcile_resync

TO_BE_TAKEN = "to be taken"


@dataclass(frozen=True, kw_only=True)
class Ground:
    """A plan and what it stands on. Everything acknowledged before `frozen_at_ms` is in its ranges."""

    plan: RoundPlan
    table: TableInfo
    """As the hot store has it; the plan's is the lake's."""

    frozen_at_ms: int
    agreement: Agreement = Agreement.AGREED
    bytes_waiting: int = 0
    gaps: dict[Bucket, OffsetRange] = field(default_factory=dict)
    passed: dict[Bucket, int] = field(default_factory=dict)
    is_resync: bool = False
    generation: int = 0
    """Of the round's commit."""


@dataclass(kw_only=True)
class Planner:
    """Plans one round. `release` gives KV snapshots back; they are leased under the round's id.

    `is_dry`: the same plan without a trace: a lake that is ahead is not adopted, KV snapshots are not taken but stand
    where they would, at the log's end."""

    world_hot: HotPlugin
    handed: HandedOut
    owner: RoundOwner
    round_id: RoundId
    clock: Clock
    is_dry: bool = False
    _leased: TableInfo | None = None

    def prepare(self, lake_of: Callable[[TableInfo], LakeStorage], target_bytes: int) -> Ground:
        """Raises the errors of reconcile and `plan_round`, and `TableNotFound` if the table was dropped and created
        again."""
        store, frozen_at_ms = self.world_hot.store(), self.clock.now_ms()
        frozen = self._freeze(store)
        lake = lake_of(frozen.table)
        reconciliation = self._reconcile(self._lake_table(frozen), lake)
        if any(reconciliation.base.offsets.get(bucket, 0) > log.end for bucket, log in frozen.bounds.items()):
            frozen = self._freeze(store)  # another's round landed since: its ends are below the log's of now
        options = PlanOptions(
            target_bytes=target_bytes,
            one_writer_per_bucket=lake.takes_one_writer(self._lake_table(frozen)),
            resync=reconciliation.resync,
            to_compare=None if self.handed.to_compare is None else frozenset(self.handed.to_compare),
            on_grid=bool(self.handed.reads_with),
        )
        return self._plan(store, frozen, reconciliation, options, frozen_at_ms)

    def _reconcile(self, table: TableInfo, lake: LakeStorage) -> Reconciliation:
        reader, coordinator = lake.open_reader(table), self.world_hot.coordinator()
        if self.handed.resync:
            reconciliation = reconcile_resync(reader, self.handed.generation)
        else:
            known = self.handed.committed or coordinator.committed(self.handed.path, self.handed.side)
            reconciliation = reconcile(table, reader, known)
        is_ahead = reconciliation.agreement is Agreement.LAKE_AHEAD and reconciliation.base.token is not None
        if is_ahead and not self.is_dry:
            coordinator.commit(adoption(table, reconciliation.base, self.owner, self.handed.side))
        return reconciliation

    def _plan(
        self,
        store: HotStore,
        frozen: FrozenTable,
        reconciliation: Reconciliation,
        options: PlanOptions,
        frozen_at_ms: int,
    ) -> Ground:
        base, stop = reconciliation.base, self._stop(frozen, reconciliation)
        bounds = frozen.bounds if stop is None else stop
        needed = plan_snapshots(self._lake_table(frozen), base, bounds, options, is_stopped=stop is not None)
        snapshots = self._take_snapshots(store, frozen, needed)
        if snapshots and not self.is_dry:
            frozen = self._freeze(store)  # ends at or above what the snapshots stand for
            stop = self._stop(frozen, reconciliation)
            if stop is not None:  # a cut was made meanwhile: the log up to it has the same rows
                snapshots = {b: s for b, s in snapshots.items() if b in stop and s.log_offset <= stop[b].end}
        table, bounds = frozen.table, frozen.bounds if stop is None else stop
        plan = plan_round(
            round_id=self.round_id,
            table=self._lake_table(frozen),
            base=base,
            bounds=bounds,
            snapshots=snapshots,
            options=options,
            planned_at_ms=self.clock.now_ms(),
            align=_aligner(store, table),
        )
        return Ground(
            plan=plan,
            table=table,
            frozen_at_ms=frozen_at_ms,
            agreement=reconciliation.agreement,
            bytes_waiting=plan_bytes(plan, bounds, snapshots),
            gaps=plan_gaps(plan, bounds),
            passed=plan_passed(plan, bounds) if options.resync else {},
            is_resync=options.resync,
            generation=reconciliation.generation if options.resync else base.generation,
        )

    def _lake_table(self, frozen: FrozenTable) -> TableInfo:
        return side_table(frozen.table, self.handed.side)

    def _stop(self, frozen: FrozenTable, reconciliation: Reconciliation) -> Mapping[Bucket, LogBounds] | None:
        """A resync starts over with the present rows: no cut that is open then is ever reached. A changelog shows every
        moment anyway."""
        if reconciliation.resync or self.handed.side.content is not Content.STATE:
            return None
        return plan_stop(reconciliation.base, frozen.bounds, frozen.cuts)

    def _freeze(self, store: HotStore) -> FrozenTable:
        frozen = store.freeze_table(self.handed.path)
        if frozen.table.table_id != self.handed.table_id:
            raise TableNotFound(table=f"{self.handed.path} with id {self.handed.table_id}")
        return frozen

    def _take_snapshots(
        self, store: HotStore, frozen: FrozenTable, buckets: tuple[Bucket, ...]
    ) -> dict[Bucket, KvSnapshot]:
        if self.is_dry:
            ends = {b: frozen.bounds[b].end for b in buckets}
            return {b: KvSnapshot(bucket=b, snapshot_id=TO_BE_TAKEN, log_offset=end) for b, end in ends.items() if end}
        if not buckets:
            return {}
        self._leased = frozen.table
        taken = store.take_snapshots(frozen.table, buckets, self.round_id)
        empty = [b for b in buckets if b not in taken and frozen.bounds[b].end == 0]
        return {**taken, **{b: KvSnapshot(bucket=b, snapshot_id=NO_ROWS, log_offset=0) for b in empty}}

    def release(self) -> None:
        """Best effort: a lease that is not given back ends by itself."""
        if self._leased is None:
            return
        try:
            self.world_hot.store().release_snapshots(self._leased, self.round_id)
        except Unavailable:
            return


def _aligner(store: HotStore, table: TableInfo) -> Align:
    """Looks at the record at a cut of a PK table: a +U goes with the -U before it."""

    def align(bucket: Bucket, cut: int) -> int:
        for batch in store.read_log(table, bucket, cut, cut + 1, columns=[]):
            if batch.num_rows and int(changes_of(batch)[0]) == ChangeType.UPDATE_AFTER:
                return cut + 1
        return cut

    return align if table.is_pk else keep_cut
