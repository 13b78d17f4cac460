# SPDX-License-Identifier: Apache-2.0
"""Opens a read: lease first, then the check that the snapshot stands, else a new plan; nothing is read yet."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime

import pyarrow as pa

from lakeward.errors import LakeError, LakewardError, LogTooShort, SnapshotGone
from lakeward.model import (
    LAKE_FIELDS,
    Bucket,
    LeaseId,
    OffsetMap,
    SnapshotId,
    SystemClock,
    TableInfo,
    changelog_side,
    side_table,
    to_arrow_field,
)
from lakeward.protocol.readplan import ReadPlan
from lakeward.read.lease import HeldLease
from lakeward.read.moment import ChangesAsLog, plan_moment
from lakeward.read.plan import AsOf, ReadMode, UnionPlan, choose_snapshot, plan_hot, plan_lake, plan_union
from lakeward.read.predicate import Predicate, parse_filter
from lakeward.read.prune import prune_buckets
from lakeward.read.request import ReadRequest, at_cut, check_columns, filter_schema
from lakeward.read.result import ReadBound
from lakeward.read.streamrows import StreamRows
from lakeward.spi import (
    PROCESS_PLUGINS,
    CoordinatorClient,
    HotPlugin,
    HotStore,
    KvSnapshot,
    LakeFile,
    LakeReader,
    LakeSnapshot,
    Plugin,
    lake_named,
)

PLAN_ATTEMPTS = 5
"""A snapshot may be expired by another engine between plan and read; each further plan is on a newer one."""

LakeOpener = Callable[[ReadPlan], LakeReader | None]


@dataclass(frozen=True, kw_only=True)
class OpenRead:
    """A read under its lease. `pinned` answers from one load of the lake's metadata."""

    request: ReadRequest
    plan: ReadPlan
    union: UnionPlan
    lease: HeldLease
    hot: HotStore
    lake: LakeReader | None
    pinned: LakeReader | None = None
    predicate: Predicate | None = None

    @property
    def table(self) -> TableInfo:
        return self.plan.table

    @property
    def columns(self) -> tuple[str, ...]:
        return self.request.columns if self.request.columns is not None else self.table.schema.names

    @property
    def schema(self) -> pa.Schema:
        """Columns the lake does not promise (an added one in old rows) are as nullable as the table says."""
        fields = [to_arrow_field(self.table.schema.column(name)).remove_metadata() for name in self.columns]
        return pa.schema([*fields, *(LAKE_FIELDS if self.request.system_columns else ())])

    @property
    def wanted(self) -> list[str]:
        """The user's columns that must travel: the result's, and the filter's."""
        needed = {*self.columns, *(self.predicate.columns if self.predicate else ())}
        return [name for name in self.table.schema.names if name in needed]

    @property
    def bound(self) -> ReadBound:
        return ReadBound(
            table=str(self.table.path),
            mode="lake" if self.request.as_of is not None or self.request.is_empty else str(self.request.mode),
            snapshot_id=self.union.snapshot_id,
            lake_offsets=self.union.lake_offsets,
            ends=self.union.ends,
            frozen_at_ms=self.plan.frozen_at_ms,
            lake_at_ms=self.union.lake_at_ms,
            tail_rows=self.union.tail_rows,
        )

    def lake_files(self) -> tuple[LakeFile, ...]:
        """Files of the snapshot in whose bucket the filter may find a row."""
        if self.pinned is None or self.union.snapshot_id is None:
            return ()
        files = self.pinned.files(self.union.snapshot_id)
        kept = prune_buckets(self.table, self.predicate, {f.bucket for f in files if f.bucket is not None})
        return tuple(f for f in files if f.bucket is None or f.bucket in kept)

    def lake_buckets(self) -> list[Bucket | None]:
        """Buckets of those files; None stands for files that do not say theirs."""
        buckets = {f.bucket for f in self.lake_files()}
        return [*sorted(b for b in buckets if b is not None), *([None] if None in buckets else [])]

    def kv_holder(self) -> str:
        return kv_holder(self.plan.lease_id)

    def close(self) -> None:
        """Gives everything back. Safe to repeat."""
        self.lease.close()
        if self.union.kv:
            with suppress(LakewardError):
                self.hot.release_snapshots(self.table, self.kv_holder())


def open_read(plugin: HotPlugin, request: ReadRequest, open_lake: LakeOpener | None = None) -> OpenRead:
    """Raises what is wrong with the request (`InvalidRequest`, `TableNotFound`, `SnapshotGone`, `ReadTooFarAhead`), and
    what does not answer (`ServerUnavailable`, `LakeUnavailable`)."""
    coordinator = plugin.coordinator()
    if request.cut is not None:
        request = at_cut(request, coordinator.load_cut(request.cut))
    for attempt in range(PLAN_ATTEMPTS):
        plan, lease = _lease(plugin, coordinator, request)
        try:
            with lake_named(plan.side.lake):
                return _open(plugin, request, plan, lease, open_lake or _open_lake)
        except SnapshotGone:
            lease.close()
            if request.as_of is not None or attempt == PLAN_ATTEMPTS - 1:
                raise
        except BaseException:
            lease.close()
            raise
    raise AssertionError("the loop returns or raises")


def kv_holder(lease_id: LeaseId) -> str:
    return f"read-{lease_id}"


def _lease(plugin: HotPlugin, coordinator: CoordinatorClient, request: ReadRequest) -> tuple[ReadPlan, HeldLease]:
    try:
        plan = coordinator.read_plan(
            request.path, lease_s=request.lease_s, at_least=request.at_least, side=request.side
        )
    except (LakeError, LogTooShort):
        if request.mode is not ReadMode.HOT:
            raise
        return _plan_without_lake(plugin, request), HeldLease(coordinator)
    return plan, HeldLease(coordinator, plan.lease_id, request.lease_s)


def _plan_without_lake(plugin: HotPlugin, request: ReadRequest) -> ReadPlan:
    """The hot store alone can be read while the lake is in trouble: nothing but the log itself has to be kept
    for that.
    """
    table = plugin.store().load_table(request.path)
    return ReadPlan(
        table=table,
        lease_id=LeaseId(f"none-{table.table_id}"),
        lease_ends_at_ms=0,
        frozen_at_ms=SystemClock().now_ms(),
        snapshot_id=None,
        offsets=OffsetMap(),
        tails=(),
    )


def _in_past_schema(plugin: HotPlugin, request: ReadRequest, plan: ReadPlan, open_lake: LakeOpener) -> ReadPlan:
    """The plan with the table at the schema of the moment that is read. Raises `InvalidRequest`, `SnapshotGone`."""
    at_ms, as_of = request.schema_at_ms, request.as_of
    if isinstance(as_of, datetime):
        at_ms = int(as_of.timestamp() * 1000)
    elif at_ms is None and as_of is not None:
        lake = open_lake(plan)
        snapshots = () if lake is None else lake.pinned().snapshots()
        at_ms = choose_snapshot(str(plan.table.path), snapshots, as_of).committed_at_ms
    schemas = plugin.store().schemas(plan.table)
    past = next((s for s in reversed(schemas) if s.since_ms <= (at_ms or 0)), schemas[0])
    return replace(plan, table=plan.table.with_schema(past))


def _open(plugin: HotPlugin, request: ReadRequest, plan: ReadPlan, lease: HeldLease, open_lake: LakeOpener) -> OpenRead:
    if request.as_of_schema:
        plan = _in_past_schema(plugin, request, plan, open_lake)
    check_columns(request, plan.table)
    predicate = parse_filter(request.filter, filter_schema(plan.table))
    hot = plugin.store()
    lake = None if request.mode is ReadMode.HOT else open_lake(plan)
    pinned = None if lake is None else lake.pinned()
    moment = _plan_moment(plugin, request, plan, lease, pinned, open_lake)
    if moment is not None:
        union, hot = moment
    elif request.mode is ReadMode.HOT:
        union = plan_hot(hot.freeze(plan.table), is_pk=plan.table.is_pk)
    else:
        union = _plan(request, plan, pinned, hot)
    if request.as_of is not None and lake is not None and union.snapshot_id is not None:
        plugin.coordinator().renew_read(plan.lease_id, request.lease_s, union.snapshot_id)
        lake.load_snapshot(union.snapshot_id)  # lease first, then the check that it stands
    hot_buckets = {*union.tails, *union.needs_kv}
    union = union.without(hot_buckets - prune_buckets(plan.table, predicate, hot_buckets))
    opened = OpenRead(
        request=request,
        plan=plan,
        union=union,
        lease=lease,
        hot=hot,
        lake=lake,
        pinned=pinned,
        predicate=predicate,
    )
    return replace(opened, union=union.with_kv(_take_snapshots(opened))) if union.needs_kv else opened


def _plan_moment(
    plugin: HotPlugin,
    request: ReadRequest,
    plan: ReadPlan,
    lease: HeldLease,
    lake: LakeReader | None,
    open_lake: LakeOpener,
) -> tuple[UnionPlan, HotStore] | None:
    """For a PK table with a changelog: its state at exactly that moment, if the changelog covers it."""
    side = changelog_side(plan.table.descriptor.properties)
    if side is None or not plan.table.is_pk or not isinstance(request.as_of, datetime):
        return None
    coordinator = plugin.coordinator()
    changes = coordinator.read_plan(request.path, lease_s=request.lease_s, side=side)
    changes = replace(changes, table=side_table(plan.table, side)) if request.as_of_schema else changes
    lease.add(HeldLease(coordinator, changes.lease_id, request.lease_s))
    rows = StreamRows(plugin, plan.table, lake, open_lake(changes), changes.snapshot_id)
    union = plan_moment(rows, request.as_of) if rows.changes is not None else None
    return None if union is None else (union, ChangesAsLog(rows))


def _take_snapshots(opened: OpenRead) -> dict[Bucket, KvSnapshot]:
    holder = opened.kv_holder()
    return opened.hot.take_snapshots(opened.table, list(opened.union.needs_kv), holder)


def _open_lake(plan: ReadPlan) -> LakeReader | None:
    if plan.lake_format is None:
        return None
    return PROCESS_PLUGINS.lake(Plugin(name=plan.lake_format, options=plan.lake_options)).open_reader(plan.table)


def _plan(request: ReadRequest, plan: ReadPlan, lake: LakeReader | None, hot: HotStore) -> UnionPlan:
    if request.is_empty:
        return plan_lake(None)
    if request.as_of is not None:
        if lake is None:
            raise SnapshotGone(
                table=str(request.path), snapshot=str(request.as_of), advice="the lake is not enabled on this table"
            )
        return plan_lake(_load_as_of(lake, request, request.as_of))
    snapshot = _load_snapshot(lake, plan.snapshot_id)
    bounds = hot.freeze(plan.table) if plan.table.is_pk and _may_miss_buckets(plan.table, snapshot) else None
    return plan_union(plan, snapshot, request.mode, bounds)


def _may_miss_buckets(table: TableInfo, snapshot: LakeSnapshot | None) -> bool:
    """Whether there may be a bucket whose offset the snapshot does not tell."""
    if snapshot is None or snapshot.offsets is None or table.descriptor.is_partitioned:
        return True
    return any(Bucket("", n) not in snapshot.offsets for n in range(table.descriptor.bucket_count))


def _load_as_of(lake: LakeReader, request: ReadRequest, as_of: AsOf) -> LakeSnapshot:
    table = str(request.path)
    chosen = choose_snapshot(table, lake.snapshots(), as_of)
    loaded = lake.load_snapshot(chosen.snapshot_id)
    if loaded is None:
        raise SnapshotGone(table=table, snapshot=str(as_of), advice="the lake has no snapshot of this table")
    if request.ends is not None and loaded.offsets is not None and not request.ends.is_at(loaded.offsets):
        advice = "the lake was rolled back since, and another one has its number; make a new cut"
        raise SnapshotGone(table=table, snapshot=str(as_of), advice=advice)
    return loaded


def _load_snapshot(lake: LakeReader | None, snapshot_id: SnapshotId | None) -> LakeSnapshot | None:
    return None if lake is None or snapshot_id is None else lake.load_snapshot(snapshot_id)
