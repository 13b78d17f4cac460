# SPDX-License-Identifier: Apache-2.0
"""The calls around a plan: reconcile, record the intent, freeze the log ends, take KV snapshots, then plan (pure)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace

from lakeward.changelog.columns import changes_of
from lakeward.errors import CommitConflict, TableNotFound, Unavailable
from lakeward.model import (
    Bucket,
    ChangeType,
    Clock,
    Content,
    Intent,
    LakeBase,
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
    handle: bytes
    """The committer's data for writers."""

    table: TableInfo
    """As the hot store has it; the plan's is the lake's."""

    frozen_at_ms: int
    agreement: Agreement = Agreement.AGREED
    bytes_waiting: int = 0
    gaps: dict[Bucket, OffsetRange] = field(default_factory=dict)
    passed: dict[Bucket, int] = field(default_factory=dict)
    is_resync: bool = False
    generation: int = 0
    """The generation of the round's commit."""


@dataclass(kw_only=True)
class Planner:
    """Plans one round: reads the lake, records the round's intent on what it read, freezes the log, plans. `release`
    gives KV snapshots back; they are leased under the round's id.

    `is_dry`: the same plan without a trace: a lake that is ahead is not adopted, KV snapshots are not taken but stand
    where they would, at the log's end."""

    world_hot: HotPlugin
    handed: HandedOut
    owner: RoundOwner
    round_id: RoundId
    clock: Clock
    check_prefix: Callable[[str, str], None] = lambda _lake, _prefix: None
    """Refuses files in a lake that this job's executors cannot reach."""

    is_dry: bool = False
    intent: Intent | None = None
    has_intent: bool = False
    """The intent is recorded."""

    _leased: TableInfo | None = None

    def prepare(self, lake_of: Callable[[TableInfo], LakeStorage], target_bytes: int) -> Ground:
        """Raises the errors of reconcile and `plan_round`, `TableNotFound` if the table was dropped and created again,
        and `CommitConflict` where the lake has moved since the intent was recorded."""
        store = self.world_hot.store()
        table = self.handed.table or self._checked(store.load_table(self.handed.path))
        while True:
            lake = lake_of(table)
            reconciliation = self._reconcile(side_table(table, self.handed.side), lake)
            handle = b"" if self.is_dry else self._begin(table, lake, reconciliation.base)
            frozen_at_ms = self.clock.now_ms()
            frozen = self._freeze(store)
            if frozen.table == table:
                break
            table = frozen.table
        options = PlanOptions(
            target_bytes=target_bytes,
            one_writer_per_bucket=lake.takes_one_writer(self._lake_table(frozen)),
            resync=reconciliation.resync,
            to_compare=None if self.handed.to_compare is None else frozenset(self.handed.to_compare),
            on_grid=bool(self.handed.reads_with),
        )
        return replace(self._plan(store, frozen, reconciliation, options, frozen_at_ms), handle=handle)

    def _begin(self, table: TableInfo, lake: LakeStorage, base: LakeBase) -> bytes:
        """Returns the writers' handle, and makes the intent: orphan removal spares the round's files while the lake has
        the token that it names."""
        lake_table = side_table(table, self.handed.side)
        committer = lake.open_committer(lake_table)
        handle = committer.begin(self.round_id, base)
        prefix = committer.prefix(self.round_id)
        self.check_prefix(lake.name, prefix)
        before = self.intent
        if before is not None and (before.token, before.fence) != (base.token, base.fence):
            reason = f"the lake's newest round is {base.token}, the intent was recorded on {before.token}"
            raise CommitConflict(table=str(table.path), round_id=self.round_id, reason=reason, lost=True)
        self.intent = before or Intent(
            round_id=self.round_id,
            table_id=table.table_id,
            prefix=prefix,
            token=base.token,
            fence=base.fence,
            recorded_at_ms=self.clock.now_ms(),
            kind=self.handed.kind,
            side=self.handed.side,
        )
        return handle

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
            handle=b"",
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
        if self.intent is None:
            frozen = store.freeze_table(self.handed.path)
        else:
            frozen = self.world_hot.begin_round(self.intent, self.handed.path)
            self.has_intent = self.has_intent or frozen.has_intent
        self._checked(frozen.table)
        return frozen

    def _checked(self, table: TableInfo) -> TableInfo:
        if table.table_id != self.handed.table_id:
            raise TableNotFound(table=f"{self.handed.path} with id {self.handed.table_id}")
        return table

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

    def record_intent(self) -> None:
        """Before the first file is written."""
        assert self.intent is not None, "a dry plan has no intent"
        if not self.has_intent:
            self.world_hot.coordinator().record_intent(self.intent)
            self.has_intent = True

    def abandon_intent(self, *, unused: bool) -> None:
        """Deletes nothing. An intent that stays open is orphan removal's too, only later."""
        if self.has_intent:
            with suppress(Unavailable):
                self.world_hot.coordinator().abandon_intent(self.round_id, unused=unused)

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
