# SPDX-License-Identifier: Apache-2.0
"""The streaming reader behind `spark.readStream.format("lakeward")`.

A log table's position is an offset per bucket: a range is read from the log where the log still holds it, from the lake in
`__offset` order where not. A PK table begins with a pinned lake snapshot as +I, then gives the changelog.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import datasource as ds

from lakeward.errors import OffsetOutOfRange, SnapshotGone
from lakeward.model.bucket import Bucket
from lakeward.model.change import ChangeType
from lakeward.model.ids import SnapshotId
from lakeward.model.offsets import OffsetMap, OffsetRange
from lakeward.model.schema import BUCKET, CHANGE_TYPE, OFFSET, TIMESTAMP
from lakeward.model.table import TableInfo
from lakeward.read.arrow import append_bucket, conform
from lakeward.read.spark.options import SourceOptions, StartAt
from lakeward.read.spark.source_reader import PiecePartition
from lakeward.read.spark.tailframe import arrow_schema
from lakeward.spi.hot import HotPlugin, HotStore
from lakeward.spi.lake import LakeReader
from lakeward.spi.registry import load_hot, load_lake

Position = dict[str, Any]
"""What Spark keeps in its checkpoint: {"offsets": json, "snapshot": id or "", "snapshot_read": 0 or 1}."""


def position(offsets: OffsetMap, snapshot: str = "", snapshot_read: int = 1) -> Position:
    spelled = json.dumps({str(b): o for b, o in offsets.items()}, sort_keys=True)
    return {"offsets": spelled, "snapshot": snapshot, "snapshot_read": snapshot_read}


def offsets_of(at: Position) -> OffsetMap:
    return OffsetMap({Bucket.parse(b): int(o) for b, o in json.loads(at["offsets"]).items()})


def advance(start: OffsetMap, ends: Mapping[Bucket, int], max_rows: int | None) -> OffsetMap:
    """Pure: how far the next micro-batch goes. With a limit every bucket gets an even share, rest to those that have more."""
    waiting = {b: end - start.get(b, 0) for b, end in ends.items() if end > start.get(b, 0)}
    if max_rows is None or sum(waiting.values()) <= max_rows:
        return start.overlaid({b: ends[b] for b in waiting})
    taken = dict.fromkeys(waiting, 0)
    left = max_rows
    while left > 0:
        hungry = [b for b in waiting if taken[b] < waiting[b]]
        share = max(1, left // len(hungry))
        for bucket in hungry:
            step = min(share, waiting[bucket] - taken[bucket], left)
            taken[bucket] += step
            left -= step
    return start.overlaid({b: start.get(b, 0) + n for b, n in taken.items() if n})


def _bases() -> tuple[type, ...]:
    """Spark 4.2 and newer can be told that AvailableNow is honoured."""
    try:
        from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow
    except ImportError:
        return (ds.DataSourceStreamReader,)
    return (ds.DataSourceStreamReader, SupportsTriggerAvailableNow)


class UnionStreamReader(*_bases()):  # type: ignore[misc]
    def __init__(self, options: SourceOptions, columns: tuple[str, ...]) -> None:
        self.options, self.columns = options, columns
        self._ends: OffsetMap | None = None

    # ---- what Spark calls on the driver --------------------------------------------------------------------------
    def initialOffset(self) -> Position:
        plugin, table = self._open()
        start = self.options.starting
        if start.kind == "earliest":
            return self._earliest(plugin, table)
        return position(_start_offsets(plugin.store(), table, start))

    def prepareForTriggerAvailableNow(self) -> None:
        plugin, table = self._open()
        self._ends = _log_ends(plugin.store(), table)

    def getDefaultReadLimit(self) -> Any:
        from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

        return ReadMaxRows(self.options.max_rows) if self.options.max_rows else ReadAllAvailable()

    def latestOffset(self, start: Position | None = None, limit: Any = None) -> Position:
        plugin, table = self._open()
        if start is None:
            start = self.initialOffset()
        if not start["snapshot_read"]:
            return {**start, "snapshot_read": 1}
        ends = self._ends if self._ends is not None else _log_ends(plugin.store(), table)
        return {**start, **position(advance(offsets_of(start), ends, getattr(limit, "max_rows", getattr(limit, "maxRows", None))))}

    def partitions(self, start: Position, end: Position) -> list[PiecePartition]:
        pieces: list[dict[str, Any]] = []
        if not start["snapshot_read"] and end["snapshot_read"] and start["snapshot"]:
            pieces += self._snapshot_pieces(start["snapshot"])
        begin = offsets_of(start)
        for bucket, stop in offsets_of(end).items():
            if stop > begin.get(bucket, 0):
                pieces.append({"bucket": str(bucket), "start": begin.get(bucket, 0), "stop": stop})
        return [PiecePartition(json.dumps(p).encode()) for p in pieces]

    def commit(self, end: Position) -> None:
        """The checkpoint holds the position; nothing is kept on our side."""

    # ---- what runs on executors ----------------------------------------------------------------------------------
    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        piece = json.loads(partition.piece)
        plugin, table = self._open()
        bucket = Bucket.parse(piece["bucket"])
        if "snapshot" in piece:
            batches = _lake_rows(plugin, table, SnapshotId(piece["snapshot"]), bucket, None, self._user(table))
        else:
            batches = _range_rows(plugin, table, bucket, OffsetRange(piece["start"], piece["stop"]), self._user(table))
        for batch in batches:
            yield self._shape(table, batch)

    # ---- ours ----------------------------------------------------------------------------------------------------
    def _open(self) -> tuple[HotPlugin, TableInfo]:
        plugin = load_hot(self.options.hot_name, self.options.hot_options)
        return plugin, plugin.store().load_table(self.options.table)

    def _earliest(self, plugin: HotPlugin, table: TableInfo) -> Position:
        if not table.is_pk:
            return position(OffsetMap())
        plan = plugin.coordinator().read_plan(table.path, lease_s=self.options.lease_s)
        lake = _lake_reader(plugin, table)
        snapshot = None if lake is None or plan.snapshot_id is None else lake.load_snapshot(plan.snapshot_id)
        if snapshot is None:
            return position(OffsetMap({t.bucket: t.range.start for t in plan.tails}))
        return position(snapshot.offsets or OffsetMap(), snapshot.snapshot_id, 0)

    def _snapshot_pieces(self, snapshot: str) -> list[dict[str, Any]]:
        plugin, table = self._open()
        lake = _lake_reader(plugin, table)
        if lake is None:
            raise SnapshotGone(table=str(table.path), snapshot=snapshot, advice="the lake was switched off; start the query anew")
        buckets = {f.bucket for f in lake.files(SnapshotId(snapshot)) if f.bucket is not None}
        return [{"bucket": str(b), "snapshot": snapshot} for b in sorted(buckets)]

    def _user(self, table: TableInfo) -> list[str]:
        return [c for c in self.columns if c in table.schema.names]

    def _shape(self, table: TableInfo, batch: pa.RecordBatch) -> pa.RecordBatch:
        schema = arrow_schema(table, self._user(table))
        shaped = conform(batch, schema)
        if CHANGE_TYPE in self.columns:
            shaped = shaped.append_column(pa.field(CHANGE_TYPE, pa.string(), nullable=False), _change_names(batch))
        return shaped.select(list(self.columns))


def _start_offsets(store: HotStore, table: TableInfo, start: StartAt) -> OffsetMap:
    if start.offsets is not None:
        return start.offsets
    if start.at_ms is not None:
        return OffsetMap({b: store.offset_at(table, b, start.at_ms) for b in store.freeze(table)})
    return _log_ends(store, table)


def _log_ends(store: HotStore, table: TableInfo) -> OffsetMap:
    return OffsetMap({b: bounds.end for b, bounds in store.freeze(table).items()})


def _change_names(batch: pa.RecordBatch) -> pa.Array:
    """The short names (+I, -U, +U, -D); rows of a lake snapshot are inserts."""
    if CHANGE_TYPE not in batch.schema.names:
        return pa.array([ChangeType.INSERT.short] * batch.num_rows)
    return pa.array([c.short for c in ChangeType]).take(batch.column(CHANGE_TYPE).cast(pa.int32()))


def _lake_reader(plugin: HotPlugin, table: TableInfo) -> LakeReader | None:
    name, options = plugin.lake_options(table)
    return load_lake(name, options).open_reader(table) if name else None


def _range_rows(plugin: HotPlugin, table: TableInfo, bucket: Bucket, wanted: OffsetRange, columns: list[str]) -> Iterator[pa.RecordBatch]:
    """`[start, stop)` from the log; what the log no longer holds comes from the lake first (log tables)."""
    store = plugin.store()
    bounds = store.freeze(table).get(bucket)
    log_start = bounds.start if bounds is not None else wanted.stop
    if wanted.start < log_start:
        if table.is_pk:
            raise OffsetOutOfRange(
                table=str(table.path), bucket=str(bucket), offset=wanted.start, start=log_start, end=bounds.end if bounds else 0
            )
        yield from _lake_rows(plugin, table, None, bucket, OffsetRange(wanted.start, min(log_start, wanted.stop)), columns)
    start = max(wanted.start, log_start)
    if start < wanted.stop:
        for batch in store.read_log(table, bucket, start, wanted.stop, columns):
            yield append_bucket(batch, bucket)


def _lake_rows(
    plugin: HotPlugin, table: TableInfo, snapshot: SnapshotId | None, bucket: Bucket, wanted: OffsetRange | None, columns: list[str]
) -> Iterator[pa.RecordBatch]:
    """Rows of one bucket in the lake; a range of a log table in `__offset` order."""
    lake = _lake_reader(plugin, table)
    head = None if lake is None else lake.load_snapshot(snapshot)
    if lake is None or head is None:
        raise SnapshotGone(
            table=str(table.path), snapshot=str(snapshot), advice="the log no longer holds these offsets and the lake has none"
        )
    scanned = [*columns, BUCKET, OFFSET, TIMESTAMP]
    if wanted is None:
        yield from lake.scan(head.snapshot_id, columns=scanned, buckets=[bucket])
        return
    inside = (pc.field(OFFSET) >= wanted.start) & (pc.field(OFFSET) < wanted.stop)
    rows = pa.Table.from_batches(list(lake.scan(head.snapshot_id, columns=scanned, filter=inside, buckets=[bucket])))
    yield from rows.filter(inside).sort_by(OFFSET).to_batches() if rows.num_rows else ()
