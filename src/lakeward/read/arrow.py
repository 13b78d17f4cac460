# SPDX-License-Identifier: Apache-2.0
"""Union read without Spark: lake batches, then the hot tail, as one stream of Arrow batches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakeward.errors import InvalidRequest, SnapshotGone, TableNotFound
from lakeward.model.arrow import to_arrow_schema
from lakeward.model.bucket import Bucket
from lakeward.model.ids import SnapshotId
from lakeward.model.schema import BUCKET, OFFSET, TIMESTAMP
from lakeward.model.table import TableInfo, TablePath
from lakeward.protocol.readplan import ReadPlan
from lakeward.read.lease import HeldLease
from lakeward.read.plan import AsOf, ReadMode, UnionPlan, choose_snapshot, parse_as_of, plan_hot, plan_lake, plan_union
from lakeward.read.predicate import Filter, Predicate, parse_filter
from lakeward.read.result import ReadBound, ReadResult
from lakeward.read.tail import TailFold, fold_tail, read_live
from lakeward.spi.hot import HotPlugin, HotStore
from lakeward.spi.lake import LakeReader, LakeSnapshot
from lakeward.spi.registry import load_lake

PLAN_ATTEMPTS = 5
"""A snapshot may be expired by another engine between plan and read; each further plan is on a newer one."""

SYSTEM_FIELDS = (
    pa.field(BUCKET, pa.int32(), nullable=False),
    pa.field(OFFSET, pa.int64(), nullable=False),
    pa.field(TIMESTAMP, pa.timestamp("ms", tz="UTC"), nullable=False),
)

LakeOpener = Callable[[ReadPlan], LakeReader | None]


@dataclass(frozen=True, kw_only=True)
class ReadRequest:
    """What a reader asked for. `columns` None: all of the user's; `system_columns`: `__bucket`, `__offset`, `__timestamp` too."""

    path: TablePath
    columns: tuple[str, ...] | None = None
    filter: Filter | None = None
    mode: ReadMode = ReadMode.UNION
    as_of: AsOf | None = None
    at_least: str | None = None
    system_columns: bool = False
    lease_s: float = 60.0

    def __post_init__(self) -> None:
        if self.as_of is not None and self.mode is ReadMode.HOT:
            raise InvalidRequest(what="as_of", reason="it reads the lake's history; mode hot has none")


@dataclass(frozen=True, kw_only=True)
class OpenRead:
    """A read under its lease: planned, nothing read yet."""

    request: ReadRequest
    plan: ReadPlan
    union: UnionPlan
    lease: HeldLease
    hot: HotStore
    lake: LakeReader | None

    @property
    def table(self) -> TableInfo:
        return self.plan.table

    @property
    def columns(self) -> tuple[str, ...]:
        return self.request.columns if self.request.columns is not None else self.table.schema.names

    @property
    def schema(self) -> pa.Schema:
        """Columns the lake does not promise (an added one in old rows) are as nullable as the table says."""
        fields = [to_arrow_schema(self.table.schema).field(name).remove_metadata() for name in self.columns]
        return pa.schema([*fields, *(SYSTEM_FIELDS if self.request.system_columns else ())])

    @property
    def bound(self) -> ReadBound:
        return ReadBound(
            table=str(self.table.path),
            mode=str(self.request.mode),
            snapshot_id=self.union.snapshot_id,
            lake_offsets=self.union.lake_offsets,
            ends=self.union.ends,
            frozen_at_ms=self.plan.frozen_at_ms,
        )


def read(plugin: HotPlugin, request: ReadRequest, open_lake: LakeOpener | None = None) -> ReadResult:
    """Plans under a lease and returns the result, to be consumed once. Errors in the request are raised here, not later."""
    opened = open_read(plugin, request, open_lake)
    try:
        predicate = parse_filter(request.filter, opened.table.schema.names)
        batches = _conform(opened, predicate, _batches(opened, predicate))
        return ReadResult(opened.schema, opened.bound, batches, opened.lease.close)
    except BaseException:
        opened.lease.close()
        raise


def open_read(plugin: HotPlugin, request: ReadRequest, open_lake: LakeOpener | None = None) -> OpenRead:
    """Lease first, then the snapshot is checked to stand, else plan again."""
    coordinator = plugin.coordinator()
    for attempt in range(PLAN_ATTEMPTS):
        plan = coordinator.read_plan(request.path, lease_s=request.lease_s, at_least=request.at_least)
        lease = HeldLease(coordinator, plan.lease_id, request.lease_s)
        try:
            _check_columns(request, plan.table)
            lake = (open_lake or _open_lake)(plan)
            hot = plugin.store()
            union = plan_hot(hot.freeze(plan.table)) if request.mode is ReadMode.HOT else _plan(request, plan, lake)
            return OpenRead(request=request, plan=plan, union=union, lease=lease, hot=hot, lake=lake)
        except SnapshotGone:
            lease.close()
            if request.as_of is not None or attempt == PLAN_ATTEMPTS - 1:
                raise
        except BaseException:
            lease.close()
            raise
    raise AssertionError("the loop returns or raises")


def request_of(
    path: str | TablePath,
    *,
    columns: Sequence[str] | None = None,
    filter: Filter | None = None,
    mode: str = "union",
    as_of: AsOf | None = None,
    at_least: object | None = None,
    system_columns: bool = False,
) -> ReadRequest:
    """The request from what people write: texts are parsed, and a wrong one is an error that names it."""
    return ReadRequest(
        path=path if isinstance(path, TablePath) else TablePath.parse(path),
        columns=None if columns is None else tuple(columns),
        filter=filter,
        mode=ReadMode.parse(mode),
        as_of=parse_as_of(as_of) if isinstance(as_of, str) else as_of,
        at_least=None if at_least is None else str(at_least),
        system_columns=system_columns,
    )


def _check_columns(request: ReadRequest, table: TableInfo) -> None:
    for name in request.columns or ():
        if name not in table.schema.names:
            raise InvalidRequest(what=f"column {name!r} of {table.path}", reason=f"there are {', '.join(table.schema.names)}")


def _open_lake(plan: ReadPlan) -> LakeReader | None:
    if plan.lake_format is None:
        return None
    return load_lake(plan.lake_format, plan.lake_options).open_reader(plan.table)


def _plan(request: ReadRequest, plan: ReadPlan, lake: LakeReader | None) -> UnionPlan:
    if request.as_of is not None:
        if lake is None:
            raise SnapshotGone(table=str(request.path), snapshot=str(request.as_of), advice="the lake is not enabled on this table")
        return plan_lake(_load_as_of(lake, str(request.path), request.as_of))
    snapshot = _load_snapshot(lake, plan.snapshot_id)
    return plan_union(plan, snapshot, request.mode)


def _load_as_of(lake: LakeReader, table: str, as_of: AsOf) -> LakeSnapshot:
    chosen = choose_snapshot(table, lake.snapshots(), as_of)
    loaded = lake.load_snapshot(chosen.snapshot_id)
    if loaded is None:
        raise TableNotFound(table=table)
    return loaded


def _load_snapshot(lake: LakeReader | None, snapshot_id: SnapshotId | None) -> LakeSnapshot | None:
    return None if lake is None or snapshot_id is None else lake.load_snapshot(snapshot_id)


def _batches(opened: OpenRead, predicate: Predicate | None) -> Iterator[pa.RecordBatch]:
    """Lake rows, then the tail's. A PK tail is folded first: it says which lake rows are no more."""
    wanted = _wanted(opened, predicate)
    if opened.request.mode is ReadMode.HOT and opened.table.is_pk:
        yield from _hot_state(opened, wanted)
        return
    folded = _fold_tails(opened)
    yield from _lake_batches(opened, predicate, wanted, folded)
    for bucket, tail in opened.union.tails.items():
        opened.lease.check()
        rows = (
            read_live(opened.hot, opened.table, folded[bucket], wanted)
            if bucket in folded
            else opened.hot.read_log(opened.table, bucket, tail.start, tail.stop, wanted)
        )
        yield from (append_bucket(batch, bucket) for batch in rows)


def _wanted(opened: OpenRead, predicate: Predicate | None) -> list[str]:
    """The user's columns that must travel: the result's, and the filter's."""
    needed = {*opened.columns, *(predicate.columns if predicate else ())}
    return [name for name in opened.table.schema.names if name in needed]


def _fold_tails(opened: OpenRead) -> dict[Bucket, TailFold]:
    if not opened.table.is_pk:
        return {}
    return {b: fold_tail(opened.hot, opened.table, b, tail) for b, tail in opened.union.tails.items()}


def _lake_batches(
    opened: OpenRead, predicate: Predicate | None, wanted: Sequence[str], folded: Mapping[Bucket, TailFold]
) -> Iterator[pa.RecordBatch]:
    snapshot = opened.union.snapshot_id
    if opened.lake is None or snapshot is None:
        return
    keys = [f.keys for f in folded.values() if f.keys is not None and f.keys.num_rows]
    replacing = {b: f for b, f in folded.items() if f.replaced or f.keys is not None}
    columns = [*wanted, *(k for k in opened.table.descriptor.primary_key if keys and k not in wanted), BUCKET, OFFSET, TIMESTAMP]
    expression = predicate.expression if predicate else None
    untouched = None if not replacing else _other_buckets(opened, snapshot, replacing)
    for batch in opened.lake.scan(snapshot, columns=columns, filter=expression, buckets=untouched):
        opened.lease.check()
        yield batch
    for bucket, fold in replacing.items():
        for batch in opened.lake.scan(snapshot, columns=columns, filter=expression, buckets=[bucket]):
            opened.lease.check()
            yield without_replaced(batch, fold, opened.table.descriptor.primary_key)


def _other_buckets(opened: OpenRead, snapshot: SnapshotId, replacing: Iterable[Bucket]) -> list[Bucket]:
    assert opened.lake is not None
    in_lake = {f.bucket for f in opened.lake.files(snapshot) if f.bucket is not None}
    return sorted(in_lake - set(replacing))


def without_replaced(batch: pa.RecordBatch, folded: TailFold, key: Sequence[str]) -> pa.RecordBatch:
    """Lake rows of one bucket less those that its tail replaced: by offset, or by key where offsets are not known."""
    if folded.keys is not None:
        left = pa.Table.from_batches([batch]).join(folded.keys, keys=list(key), join_type="left anti")
        return _one_batch(left.select(batch.schema.names), batch.schema)
    gone = folded.replaced.mask(batch.column(OFFSET).to_numpy(zero_copy_only=False))
    return batch if not gone.any() else batch.filter(pa.array(~gone))


def _one_batch(table: pa.Table, schema: pa.Schema) -> pa.RecordBatch:
    batches = table.combine_chunks().to_batches()
    return batches[0] if batches else pa.RecordBatch.from_pylist([], schema=schema)


def _hot_state(opened: OpenRead, wanted: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """A PK table by the hot store alone: each bucket's KV snapshot."""
    holder = f"read-{opened.plan.lease_id}"
    try:
        for bucket in opened.union.tails:
            snapshot = opened.hot.take_snapshot(opened.table, bucket, holder)
            if snapshot is not None:
                for batch in opened.hot.read_snapshot(opened.table, snapshot, wanted):
                    yield append_bucket(batch, bucket)
    finally:
        opened.hot.release_snapshots(opened.table, holder)


def append_bucket(batch: pa.RecordBatch, bucket: Bucket) -> pa.RecordBatch:
    return batch.append_column(SYSTEM_FIELDS[0], pa.array(np.full(batch.num_rows, bucket.number, np.int32)))


def _conform(opened: OpenRead, predicate: Predicate | None, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Every batch in the result's schema, filtered; both sides may spell a type differently (TINYINT is an int in Iceberg)."""
    schema = opened.schema
    for batch in batches:
        kept = predicate.apply(batch) if predicate else batch
        if kept.num_rows:
            yield conform(kept, schema)


def conform(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The schema's columns by name, cast where the lake's type differs."""
    arrays = []
    for field in schema:
        column = batch.column(field.name)
        arrays.append(column if column.type == field.type else pc.cast(column, field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def describe_freshness(bound: ReadBound) -> str:
    """One line for people: how fresh a result is."""
    moment = datetime.fromtimestamp(bound.frozen_at_ms / 1000, UTC).isoformat(timespec="milliseconds")
    source = f"lake snapshot {bound.snapshot_id}" if bound.snapshot_id else "no lake snapshot"
    return f"{bound.table}: {bound.mode} read, {source}, {bound.tail_rows} offsets from the hot tail, complete up to {moment}"
