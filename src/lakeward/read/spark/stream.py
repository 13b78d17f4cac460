# SPDX-License-Identifier: Apache-2.0
"""The streaming reader behind `spark.readStream.format("lakeward")`: positions, limits, and the pieces of a
micro-batch.

A log table's position is an offset per bucket: a range is read from the log where the log still holds it, from the lake
in `__offset` order where not. A PK table begins with a pinned lake snapshot as +I, then gives the changelog.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql import datasource as ds

from lakeward.errors import InvalidRequest, OffsetOutOfRange, SnapshotGone
from lakeward.model import CHANGE_TYPE, Bucket, OffsetMap, OffsetRange, SnapshotId, TableInfo, first_side
from lakeward.read.arrow import conform
from lakeward.read.spark.options import SourceOptions, StartAt
from lakeward.read.spark.schema import SYSTEM_TYPES, table_schema
from lakeward.read.spark.source_reader import PiecePartition
from lakeward.read.spark.tailframe import arrow_schema
from lakeward.read.streamrows import StreamRows, short_names
from lakeward.spi import PROCESS_PLUGINS, Plugin

Position = dict[str, Any]
"""The offset in Spark's checkpoint: {"offsets": json, "snapshot": id or "", "snapshot_read": 0 or 1, "origin": json}.
`origin` is the position at which the query began."""


def position(offsets: OffsetMap, snapshot: str = "", snapshot_read: int = 1) -> Position:
    spelled = json.dumps({str(b): o for b, o in offsets.items()}, sort_keys=True)
    return {"offsets": spelled, "snapshot": snapshot, "snapshot_read": snapshot_read}


def as_origin(first: Position) -> Position:
    """The first position of a query: every later one carries it."""
    return {**first, "origin": json.dumps(first, sort_keys=True)}


def begin_of(start: Position, end: Position) -> Position:
    """Where a micro-batch begins. Spark keeps ends alone and asks again where the query began when its first batch is
    run again: by then `latest` lies elsewhere, and there is a newer snapshot. The end knows what the first answer was.
    """
    if start.get("origin") == end.get("origin") or "origin" not in end:
        return start
    first: Position = json.loads(end["origin"])
    return first


def offsets_of(at: Position) -> OffsetMap:
    return OffsetMap({Bucket.parse(b): int(o) for b, o in json.loads(at["offsets"]).items()})


def advance(start: OffsetMap, ends: Mapping[Bucket, int], max_rows: int | None) -> OffsetMap:
    """Pure: how far the next micro-batch goes. With a limit every bucket gets an even share, rest to those that have
    more.
    """
    waiting = {b: end - start.get(b, 0) for b, end in ends.items() if end > start.get(b, 0)}
    if max_rows is None or sum(waiting.values()) <= max_rows:
        return start.overlaid({b: ends[b] for b in waiting})
    taken = dict.fromkeys(waiting, 0)
    remaining_rows = max_rows
    while remaining_rows > 0:
        hungry = [b for b in waiting if taken[b] < waiting[b]]
        share = max(1, remaining_rows // len(hungry))
        for bucket in hungry:
            step = min(share, waiting[bucket] - taken[bucket], remaining_rows)
            taken[bucket] += step
            remaining_rows -= step
    return start.overlaid({b: start.get(b, 0) + n for b, n in taken.items() if n})


def check_stream(options: SourceOptions, table: TableInfo, names: tuple[str, ...]) -> None:
    """Raises `InvalidRequest` for a stream that would not mean anything."""
    if table.is_pk and CHANGE_TYPE not in names:
        reason = (
            f"a stream of a PK table is its changelog, and without {CHANGE_TYPE} a deleted row looks like a new one"
        )
        raise InvalidRequest(what=f"stream of {table.path}", reason=f'{reason}; set .option("changelog", "true")')
    for option in ("as_of", "cut", "at_least"):
        if getattr(options, option) is not None:
            raise InvalidRequest(what=f"option {option}", reason="a stream has no end to bind; use starting")


def check_unchanged(table: TableInfo, schema: Any) -> None:
    """Columns may have come since a query began; its own must be as they were. Raises `InvalidRequest`."""
    names = [f.name for f in schema.fields if f.name not in SYSTEM_TYPES]
    today = table_schema(table, [n for n in names if n in table.schema.names], ())
    types = {f.name: f.dataType.simpleString() for f in today.fields}
    began = {n: schema[n].dataType.simpleString() for n in names}
    lines = [
        f"{n} is no longer there" if n not in types else f"{n} was {kind} and is {types[n]}"
        for n, kind in began.items()
        if types.get(n) != kind
    ]
    if lines:
        reason = (
            f"columns changed since the query began: {'; '.join(lines)}; start the query again, with today's columns"
        )
        raise InvalidRequest(what=f"stream of {table.path}", reason=reason)


def _bases() -> tuple[type, ...]:
    """Spark 4.2 and newer can be told that AvailableNow is honoured."""
    try:
        from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow
    except ImportError:
        return (ds.DataSourceStreamReader,)
    return (ds.DataSourceStreamReader, SupportsTriggerAvailableNow)


class UnionStreamReader(*_bases()):  # type: ignore[misc]
    def __init__(self, options: SourceOptions, columns: tuple[str, ...], schema: Any = None) -> None:
        """`schema`: Spark's, with which the query began."""
        self.options, self.columns, self.schema = options, columns, schema
        self._ends: OffsetMap | None = None

    # ---- what Spark calls on the driver --------------------------------------------------------------------------
    def initialOffset(self) -> Position:
        return as_origin(self._first())

    def prepareForTriggerAvailableNow(self) -> None:
        self._ends = self._rows().ends()

    def getDefaultReadLimit(self) -> Any:
        from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

        return ReadMaxRows(self.options.max_rows) if self.options.max_rows else ReadAllAvailable()

    def latestOffset(self, start: Position | None = None, limit: Any = None) -> Position:
        if start is None:
            start = self.initialOffset()
        if not start["snapshot_read"]:
            return {**start, "snapshot_read": 1}
        ends = self._ends if self._ends is not None else self._rows().ends()
        return {
            **start,
            **position(advance(offsets_of(start), ends, getattr(limit, "max_rows", getattr(limit, "maxRows", None)))),
        }

    def partitions(self, start: Position, end: Position) -> list[PiecePartition]:
        pieces: list[dict[str, Any]] = []
        start = begin_of(start, end)
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
        if partition is None:
            return
        piece, rows = json.loads(partition.piece), self._rows()
        bucket, names = None if piece["bucket"] is None else Bucket.parse(piece["bucket"]), self._user(rows.table)
        if bucket is None or "snapshot" in piece:
            batches = rows.snapshot(SnapshotId(piece["snapshot"]), bucket, names)
        else:
            batches = rows.range(bucket, OffsetRange(piece["start"], piece["stop"]), names)
        for batch in batches:
            yield self._shape(rows.table, batch)

    # ---- ours ----------------------------------------------------------------------------------------------------
    def _rows(self) -> StreamRows:
        plugin = PROCESS_PLUGINS.hot(Plugin(name=self.options.hot_name, options=self.options.hot_options))
        rows = StreamRows.open(plugin, self.options.table)
        if self.schema is not None:
            check_unchanged(rows.table, self.schema)
        return rows

    def _first(self) -> Position:
        rows, start = self._rows(), self.options.starting
        if start.kind != "earliest":
            return position(start_offsets(rows, start))
        if rows.table.is_pk:
            return self._pinned(rows)
        return position(rows.firsts())

    def _pinned(self, rows: StreamRows) -> Position:
        """The newest lake snapshot, kept by a lease while the query begins; without one the changelog from the log's
        start.
        """
        plan = rows.plugin.coordinator().read_plan(
            rows.table.path, lease_s=self.options.lease_s, side=first_side(rows.table.descriptor.properties)
        )
        snapshot = None if rows.lake is None or plan.snapshot_id is None else rows.lake.load_snapshot(plan.snapshot_id)
        snapshot_offsets = (snapshot.offsets if snapshot is not None else None) or OffsetMap()
        for bucket, held in rows.bounds().items():
            if (
                bucket not in snapshot_offsets and held.start > 0
            ):  # rows whose changes the log let go, and that no snapshot has
                raise OffsetOutOfRange(
                    table=str(rows.table.path), bucket=str(bucket), offset=0, start=held.start, end=held.end
                )
        return position(snapshot_offsets) if snapshot is None else position(snapshot_offsets, snapshot.snapshot_id, 0)

    def _snapshot_pieces(self, snapshot: str) -> list[dict[str, Any]]:
        rows = self._rows()
        if rows.lake is None:
            raise SnapshotGone(
                table=str(rows.table.path), snapshot=snapshot, advice="the lake was switched off; start the query anew"
            )
        buckets = {None if f.bucket is None else str(f.bucket) for f in rows.lake.files(SnapshotId(snapshot))}
        return [{"bucket": b, "snapshot": snapshot} for b in sorted(buckets, key=str)]

    def _user(self, table: TableInfo) -> list[str]:
        return [c for c in self.columns if c in table.schema.names]

    def _shape(self, table: TableInfo, batch: pa.RecordBatch) -> pa.RecordBatch:
        shaped = conform(batch, arrow_schema(table, self._user(table)))
        if CHANGE_TYPE in self.columns:
            shaped = shaped.append_column(pa.field(CHANGE_TYPE, pa.string(), nullable=False), short_names(batch))
        return shaped.select(list(self.columns))


def start_offsets(rows: StreamRows, start: StartAt) -> OffsetMap:
    """Where `latest`, a map or a moment begin. Raises `InvalidRequest` for a bucket or an offset that is not
    there yet.
    """
    ends = rows.ends()
    if start.offsets is not None:
        for bucket, offset in start.offsets.items():
            if offset > ends.get(bucket, 0):
                reason = f"bucket {bucket} ends at {ends.get(bucket, 0)}, and {offset} is above it"
                raise InvalidRequest(what=f"option starting of {rows.table.path}", reason=reason)
        rows.check_kept(start.offsets, {b: ends[b] for b in start.offsets if b in ends})
        return rows.firsts().overlaid(start.offsets)
    if start.at_ms is not None:
        offsets_by_bucket = rows.offsets_at(start.at_ms, ends)
        rows.check_since(offsets_by_bucket, start.at_ms)
        return offsets_by_bucket
    return ends
