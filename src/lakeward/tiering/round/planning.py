# SPDX-License-Identifier: Apache-2.0
"""The calls around a plan: reconcile, freeze the log ends, take KV snapshots, load the schema, then plan (pure)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from lakeward.changelog.columns import changes_of
from lakeward.errors import TableNotFound, Unavailable
from lakeward.model.bucket import Bucket
from lakeward.model.change import ChangeType
from lakeward.model.clock import Clock
from lakeward.model.ids import RoundId
from lakeward.model.offsets import OffsetRange
from lakeward.model.round import LakeBase, RoundOwner, RoundPlan
from lakeward.model.table import TableInfo
from lakeward.protocol.heartbeat import HandedOut
from lakeward.spi.hot import HotPlugin, HotStore, KvSnapshot
from lakeward.spi.lake import LakeStorage
from lakeward.tiering.round.plan import Align, PlanOptions, keep_cut, plan_bytes, plan_gaps, plan_round, plan_snapshots
from lakeward.tiering.round.reconcile import reconcile, reconcile_resync


@dataclass(frozen=True, kw_only=True)
class Ground:
    """A plan and what it stands on. Everything acknowledged before `frozen_at_ms` is in its ranges."""

    plan: RoundPlan
    frozen_at_ms: int
    bytes_waiting: int = 0
    gaps: dict[Bucket, OffsetRange] = field(default_factory=dict)
    is_resync: bool = False


@dataclass(kw_only=True)
class Planner:
    """Plans one round. `release` gives KV snapshots back; they are leased under the round's id."""

    world_hot: HotPlugin
    handed: HandedOut
    owner: RoundOwner
    round_id: RoundId
    clock: Clock
    _leased: TableInfo | None = None

    def prepare(self, lake_of: Callable[[TableInfo], LakeStorage], target_bytes: int) -> Ground:
        """Raises what reconcile and `plan_round` raise, `TableNotFound` when the table was dropped and made anew."""
        store = self.world_hot.store()
        table = self._load_table(store)
        lake = lake_of(table)
        base, resync = self._reconcile(table, lake)
        options = PlanOptions(
            target_bytes=target_bytes, one_writer_per_bucket=lake.capabilities.one_writer_per_bucket, resync=resync
        )
        return self._plan(store, table, base, options)

    def _reconcile(self, table: TableInfo, lake: LakeStorage) -> tuple[LakeBase, bool]:
        reader, coordinator = lake.open_reader(table), self.world_hot.coordinator()
        if self.handed.resync:
            return reconcile_resync(table, reader, coordinator, self.owner, self.handed.generation)
        return reconcile(table, reader, coordinator, self.owner), False

    def _plan(self, store: HotStore, table: TableInfo, base: LakeBase, options: PlanOptions) -> Ground:
        frozen_at_ms = self.clock.now_ms()
        bounds = store.freeze(table)
        snapshots = self._take_snapshots(store, table, plan_snapshots(table, base, bounds, options))
        if snapshots:
            bounds = store.freeze(table)  # ends at or above what the snapshots stand for
        table = self._load_table(store)  # after the ends are frozen: no batch below them has a newer schema
        plan = plan_round(
            round_id=self.round_id,
            table=table,
            base=base,
            bounds=bounds,
            snapshots=snapshots,
            options=options,
            planned_at_ms=self.clock.now_ms(),
            align=_aligner(store, table),
        )
        return Ground(
            plan=plan,
            frozen_at_ms=frozen_at_ms,
            bytes_waiting=plan_bytes(plan, bounds, snapshots),
            gaps=plan_gaps(plan, bounds),
            is_resync=options.resync,
        )

    def _load_table(self, store: HotStore) -> TableInfo:
        table = store.load_table(self.handed.path)
        if table.table_id != self.handed.table_id:
            raise TableNotFound(table=f"{self.handed.path} with id {self.handed.table_id}")
        return table

    def _take_snapshots(
        self, store: HotStore, table: TableInfo, buckets: tuple[Bucket, ...]
    ) -> dict[Bucket, KvSnapshot]:
        found: dict[Bucket, KvSnapshot] = {}
        for bucket in buckets:
            self._leased = table
            snapshot = store.take_snapshot(table, bucket, self.round_id)
            if snapshot is not None:
                found[bucket] = snapshot
        return found

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
