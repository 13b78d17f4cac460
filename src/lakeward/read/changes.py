# SPDX-License-Identifier: Apache-2.0
"""The changes of a table from any offset, moment or snapshot on: from the lake what the log no longer holds, then from
the log, each once and in order per bucket.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import chain

import pyarrow as pa

from lakeward.changelog.columns import change_names
from lakeward.config.kinds import duration
from lakeward.errors import HistoryGone, InvalidRequest
from lakeward.model import (
    CHANGE_TYPE,
    LAKE_FIELDS,
    Bucket,
    OffsetMap,
    OffsetRange,
    SnapshotId,
    TableInfo,
    TablePath,
    first_side,
    to_arrow_field,
)
from lakeward.protocol.readplan import WriteToken
from lakeward.read.arrow import conform
from lakeward.read.lease import HeldLease
from lakeward.read.moment import find_base
from lakeward.read.plan import choose_snapshot, parse_as_of
from lakeward.read.request import ReadRequest, check_columns
from lakeward.read.result import ReadBound, ReadResult
from lakeward.read.snapshotdiff import SnapshotPair
from lakeward.read.streamrows import SideOpener, StreamRows
from lakeward.spi import HotPlugin, LakeSnapshot

Point = str | int | datetime | timedelta | OffsetMap | WriteToken
"""A place in a table's changes: a moment, how long ago (`timedelta`, `"1 h"`), offsets, a write's token, a lake
snapshot's id, `"earliest"` or `"latest"`."""

EARLIEST, LATEST = "earliest", "latest"


@dataclass(frozen=True, kw_only=True)
class ChangeRequest:
    path: TablePath
    since: Point = EARLIEST
    until: Point | None = None
    columns: tuple[str, ...] | None = None
    lease_s: float = 60.0


def parse_point(point: Point, now_ms: int) -> Point:
    """Texts that people write; how long ago becomes a moment. Raises `InvalidRequest`."""
    if isinstance(point, str) and point not in (EARLIEST, LATEST):
        point = _parse_text(point)
    if isinstance(point, timedelta):
        return datetime.fromtimestamp(now_ms / 1000, UTC) - point
    if isinstance(point, datetime):
        return point if point.tzinfo else point.replace(tzinfo=UTC)
    return point


def _parse_text(text: str) -> Point:
    if text.isdigit():
        return text
    try:
        return duration().parse(text)
    except ValueError:
        pass
    try:
        return parse_as_of(text)
    except InvalidRequest:
        reason = "it is neither how long ago (1h, 30 min) nor a date and time, a lake snapshot's id, earliest or latest"
        raise InvalidRequest(what=f"since or until {text[:80]!r}", reason=reason) from None


def read_changes(
    plugin: HotPlugin, request: ChangeRequest, now_ms: int, open_lake: SideOpener | None = None
) -> ReadResult:
    """Raises `HistoryGone` for what is kept nowhere any more, `SnapshotGone`, `InvalidRequest`, `TableNotFound`."""
    since, until = parse_point(request.since, now_ms), parse_point(request.until or LATEST, now_ms)
    rows = StreamRows.open(plugin, request.path, open_lake)
    check_columns(ReadRequest(path=request.path, columns=request.columns), rows.table)
    rows, lease = _lease(rows, request.lease_s)
    pair: SnapshotPair | None = None
    try:
        ends = rows.ends()
        try:
            ranges = _plan(rows, since, until, ends)
        except HistoryGone:
            pair = _find_pair(rows, since, until, lease, request.lease_s)
            if pair is None:
                raise
            ranges = _plan(rows, pair.ends(), until, ends)
    except BaseException:
        lease.close()
        raise
    bound = ReadBound(
        table=str(request.path),
        mode="changes",
        snapshot_id=rows.snapshot_id if pair is None else pair.head.snapshot_id,
        lake_offsets=rows.lake_offsets() if pair is None else pair.ends(),
        ends=OffsetMap({b: r.stop for b, r in ranges.items()}),
        frozen_at_ms=now_ms,
    )
    names = request.columns if request.columns is not None else rows.table.schema.names
    schema = change_schema(rows.table, names)
    return ReadResult(schema, bound, _batches(rows, pair, ranges, names, schema, lease.check), lease)


def _plan(rows: StreamRows, since: Point, until: Point, ends: OffsetMap) -> dict[Bucket, OffsetRange]:
    """Raises `HistoryGone`."""
    starts, stops = _offsets(rows, since, ends), _offsets(rows, until, ends)
    ranges = plan_ranges(starts, stops, ends)
    if isinstance(since, datetime):
        rows.check_since(starts, round(since.timestamp() * 1000))
    if since != EARLIEST:
        rows.check_kept({b: r.start for b, r in ranges.items()}, {b: r.stop for b, r in ranges.items()})
    return ranges


def _find_pair(rows: StreamRows, since: Point, until: Point, lease: HeldLease, lease_s: float) -> SnapshotPair | None:
    """For a PK table without a changelog: the snapshots at or before both places, kept while they are read. None: there
    is nothing to compare."""
    lake, path = rows.lake, rows.table.path
    if rows.history is not None or lake is None or not lake.has_offsets or not isinstance(since, str | int | datetime):
        return None
    coordinator, side = rows.plugin.coordinator(), first_side(rows.table.descriptor.properties)
    retained = [s for s in lake.snapshots() if s.round_id is not None]
    if isinstance(since, datetime) and find_base(retained, round(since.timestamp() * 1000)) is None:
        return None
    last = until if isinstance(until, str | int | datetime) and until != LATEST else None
    chosen = [choose_snapshot(str(path), retained, since), choose_snapshot(str(path), retained, last) if last else None]
    snapshots: list[LakeSnapshot] = []
    for moment in chosen:
        plan = coordinator.read_plan(path, lease_s=lease_s, side=side)
        lease.add(HeldLease(coordinator, plan.lease_id, lease_s))
        snapshot_id = moment.snapshot_id if moment is not None else plan.snapshot_id
        if snapshot_id is None:
            return None
        coordinator.renew_read(plan.lease_id, lease_s, snapshot_id)
        loaded = lake.load_snapshot(snapshot_id)
        assert loaded is not None, "it was named"
        snapshots.append(loaded)
    return SnapshotPair(lake, rows.table, *snapshots)


def plan_ranges(
    starts: Mapping[Bucket, int], stops: Mapping[Bucket, int], ends: Mapping[Bucket, int]
) -> dict[Bucket, OffsetRange]:
    """The range to read of each bucket; a bucket that `starts` does not name begins at 0, one that `stops` does not
    name ends at its end. Pure."""
    ranges = {b: OffsetRange(starts.get(b, 0), max(starts.get(b, 0), min(stops.get(b, e), e))) for b, e in ends.items()}
    return {b: r for b, r in sorted(ranges.items()) if len(r)}


def change_schema(table: TableInfo, names: Sequence[str]) -> pa.Schema:
    fields = [to_arrow_field(table.schema.column(name)).remove_metadata() for name in names]
    return pa.schema([*fields, pa.field(CHANGE_TYPE, pa.string(), nullable=False), *LAKE_FIELDS])


def _lease(rows: StreamRows, lease_s: float) -> tuple[StreamRows, HeldLease]:
    """Neither the lake's snapshot nor the log from its end on goes while changes are read."""
    coordinator = rows.plugin.coordinator()
    if rows.history is None:
        return rows, HeldLease(coordinator)
    plan = coordinator.read_plan(rows.table.path, lease_s=lease_s, side=rows.history_side)
    held = HeldLease(coordinator, plan.lease_id, lease_s)
    return replace(rows, snapshot_id=plan.snapshot_id), held


def _offsets(rows: StreamRows, point: Point, ends: OffsetMap) -> OffsetMap:
    """Where a place lies in each bucket."""
    match point:
        case OffsetMap():
            return point
        case WriteToken():
            return point.offsets
        case datetime():
            at_ms = round(point.timestamp() * 1000)
            return rows.offsets_at(at_ms, ends)
        case "earliest":
            return rows.firsts()
        case "latest":
            return ends
    return _snapshot_offsets(rows, str(point))


def _snapshot_offsets(rows: StreamRows, snapshot: str) -> OffsetMap:
    if rows.lake is None:
        raise InvalidRequest(what=f"snapshot {snapshot}", reason="the lake is not enabled on this table")
    chosen = choose_snapshot(str(rows.table.path), rows.lake.snapshots(), snapshot)
    loaded = rows.lake.load_snapshot(SnapshotId(chosen.snapshot_id))
    return (loaded.offsets if loaded is not None else None) or OffsetMap()


def _batches(
    rows: StreamRows,
    pair: SnapshotPair | None,
    ranges: Mapping[Bucket, OffsetRange],
    names: Sequence[str],
    schema: pa.Schema,
    check: Callable[[], None],
) -> Iterator[pa.RecordBatch]:
    for bucket in sorted({*ranges, *(pair.ends() if pair is not None else ())}):
        compared = None if pair is None else pair.changes(bucket, names, rows.table.descriptor.primary_key)
        logged = rows.range(bucket, ranges[bucket], list(names)) if bucket in ranges else ()
        for batch in chain(() if compared is None else compared.combine_chunks().to_batches(), logged):
            check()
            if batch.num_rows:
                yield _shape(batch, schema)


def _shape(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    words = change_names(batch)
    lean = batch.drop_columns([CHANGE_TYPE]) if CHANGE_TYPE in batch.schema.names else batch
    return conform(lean.append_column(pa.field(CHANGE_TYPE, pa.string(), nullable=False), words), schema)
