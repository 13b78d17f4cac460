# SPDX-License-Identifier: Apache-2.0
"""Rows of a stream, and changes: a range of a bucket from the log, from the lake what the log no longer holds, in
`__offset` order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakeward.changelog.columns import offsets_of, with_change_codes
from lakeward.config.options import TABLE_DATALAKE_ENABLED
from lakeward.errors import HistoryGone, LakeUnavailable, OffsetOutOfRange, SnapshotGone
from lakeward.model import (
    BUCKET,
    CHANGE_TYPE,
    LAKE_NAMES,
    OFFSET,
    SKIPPED,
    TIMESTAMP,
    Bucket,
    ChangeType,
    LedgerKind,
    OffsetMap,
    OffsetRange,
    SideName,
    SnapshotId,
    TableInfo,
    TablePath,
    changelog_side,
    first_side,
    side_table,
    to_arrow_schema,
)
from lakeward.read.prune import partition_facts
from lakeward.read.tail import scan_bucket
from lakeward.read.unionrows import append_bucket
from lakeward.spi import (
    PROCESS_PLUGINS,
    AdoptedRows,
    HotPlugin,
    HotStore,
    LakeFile,
    LakeReader,
    LogBounds,
    Plugin,
    PluginCache,
)

SideOpener = Callable[[TableInfo, SideName | None], LakeReader | None]


@dataclass(frozen=True)
class StreamRows:
    """One table for one call. `lake` None: the table has none. `changes`: its changelog's, where it has one.
    `snapshot_id`: what the lake's history is read at; its head if None."""

    plugin: HotPlugin
    table: TableInfo
    lake: LakeReader | None
    changes: LakeReader | None = None
    snapshot_id: SnapshotId | None = None

    @classmethod
    def open(cls, plugin: HotPlugin, path: TablePath, open_lake: SideOpener | None = None) -> StreamRows:
        table = plugin.store().load_table(path)
        opener: SideOpener = open_lake or partial(open_side, plugin)
        side = changelog_side(table.descriptor.properties)
        return cls(plugin, table, opener(table, None), None if side is None else opener(table, side))

    @property
    def history(self) -> LakeReader | None:
        """Where changes are that the log no longer holds: rows of a log table are its changes."""
        return self.changes or (None if self.table.is_pk else self.lake)

    @property
    def history_side(self) -> SideName | None:
        properties = self.table.descriptor.properties
        return changelog_side(properties) if self.changes is not None else first_side(properties)

    @property
    def hot(self) -> HotStore:
        return self.plugin.store()

    def bounds(self) -> Mapping[Bucket, LogBounds]:
        return self.hot.freeze(self.table)

    def lake_offsets(self) -> OffsetMap:
        head = None if self.history is None else self.history.load_snapshot(self.snapshot_id)
        return (head.offsets if head is not None else None) or OffsetMap()

    def firsts(self) -> OffsetMap:
        """Where each bucket's rows begin: at 0, above what is kept nowhere, or where the log does."""
        known, lost, bounds = self.lake_offsets(), self.lost(), self.bounds()
        begins = {b: max((_begin(r, bounds.get(b)) for r in lost.get(b, ())), default=0) for b in known}
        logged = {b: v.start for b, v in bounds.items() if b not in known}
        return OffsetMap({b: start for b, start in {**begins, **logged}.items() if start > 0})

    def lost(self) -> Mapping[Bucket, Sequence[OffsetRange]]:
        """Offsets whose changes the log let go before the lake had them, or that the lake let go, as the ledger says.
        The log may still hold some of the latter."""
        lost: dict[Bucket, list[OffsetRange]] = {}
        entries = () if self.history is None else self.plugin.coordinator().ledger(self.table.path, self.history_side)
        for entry in entries:
            is_gap = entry.kind is LedgerKind.GAP and not entry.round_id.startswith(SKIPPED)
            if is_gap or entry.kind is LedgerKind.DROPPED:
                lost.setdefault(entry.bucket, []).append(entry.range)
        return lost

    def check_kept(self, starts: Mapping[Bucket, int], ends: Mapping[Bucket, int]) -> None:
        """Raises `HistoryGone` where `[start, end)` of a bucket is neither in the log nor in the lake."""
        lake_offsets, bounds, lost = self.lake_offsets(), self.bounds(), self.lost()
        for bucket, end in ends.items():
            start, log = starts.get(bucket, 0), bounds.get(bucket)
            reach = end if log is None else min(end, log.start)
            gaps = [r for r in lost.get(bucket, ()) if max(r.start, start) < min(r.stop, reach)]
            if start < reach and (gaps or lake_offsets.get(bucket, 0) < reach):
                is_in_lake = lake_offsets.get(bucket, 0) >= reach
                earliest = (
                    max(_begin(r, log) for r in gaps) if gaps and is_in_lake else log.start if log is not None else end
                )
                raise self._gone(bucket, f"offset {start}", earliest)

    def check_since(self, starts: Mapping[Bucket, int], at_ms: int) -> None:
        """Checks offsets that were looked up by a moment. Raises `HistoryGone` if changes between that moment and the
        first retained one may be missing. It names the bucket whose first retained change is the latest: all buckets
        are complete from that moment on."""
        lake_offsets, bounds, lost = self.lake_offsets(), self.bounds(), self.lost()
        lost_ranges: list[tuple[float, Bucket, int]] = []
        for bucket, start in starts.items():
            log = bounds.get(bucket)
            begins = {_begin(r, log) for r in lost.get(bucket, ())} | (
                {log.start} if log and bucket not in lake_offsets else set()
            )
            first = self._first_at(bucket, start) if start > 0 and start in begins else None
            came = first is not None and first.timestamp() * 1000 > at_ms
            if came or (start > 0 and start in begins and first is None and log is not None and log.end_at_ms > at_ms):
                lost_ranges.append((math.inf if first is None else first.timestamp(), bucket, start))
        if lost_ranges:
            _, bucket, start = max(lost_ranges)
            raise self._gone(bucket, datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(), start)

    def _gone(self, bucket: Bucket, since: str, earliest: int) -> HistoryGone:
        first = self._first_at(bucket, earliest)
        moment = "now" if first is None else first.isoformat()
        return HistoryGone(
            table=str(self.table.path), bucket=str(bucket), since=since, earliest=earliest, moment=moment
        )

    def _first_at(self, bucket: Bucket, offset: int) -> datetime | None:
        """When the change at, or first above, an offset was made; None: there is none."""
        end = self.ends().get(bucket, offset)
        for batch in self.range(bucket, OffsetRange(offset, end), []) if offset < end else ():
            if batch.num_rows:
                moment: datetime = batch.column(TIMESTAMP)[0].as_py()
                return moment
        return None

    def ends(self) -> OffsetMap:
        """Up to where rows can be read: log ends, and of partitions that the hot store dropped what the lake has."""
        ends = {b: v.end for b, v in self.bounds().items()}
        if not self.table.descriptor.is_partitioned:
            return OffsetMap(ends)
        return self.lake_offsets().overlaid(ends)

    def offsets_at(self, at_ms: int, ends: Mapping[Bucket, int]) -> OffsetMap:
        return OffsetMap({b: self.offset_at(b, at_ms, end) for b, end in ends.items()})

    def offset_at(self, bucket: Bucket, at_ms: int, end: int) -> int:
        """The first offset at or after a moment; the lake is asked where the log begins later than that."""
        offset = self.hot.offset_at(self.table, bucket, at_ms) if bucket in self.bounds() else end
        bounds = self.bounds().get(bucket)  # asked after it: retention may have cut the log meanwhile
        if self.history is None or (bounds is not None and (offset > bounds.start or bounds.start == 0)):
            return offset
        if not self.history.has_offsets:  # nor times: what was committed before the moment was written before it
            segment_times = [
                s.offsets.get(bucket, 0) for s in self.history.snapshots() if s.offsets and s.committed_at_ms <= at_ms
            ]
            return min(offset, max(segment_times, default=0))
        moment = pa.scalar(datetime.fromtimestamp(at_ms / 1000, UTC), pa.timestamp("us", "UTC"))
        head = self.history.load_snapshot(self.snapshot_id)
        if head is None:
            return offset
        later = pc.field(TIMESTAMP) >= moment
        older = scan_bucket(self.history, self.table, head.snapshot_id, bucket, [OFFSET, TIMESTAMP], later)
        return min((int(pc.min(b.column(0)).as_py()) for b in older if b.num_rows), default=offset)

    def range(self, bucket: Bucket, wanted: OffsetRange, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """`[start, stop)` in order. Retention may take the log's beginning away meanwhile: then the lake has it."""
        start = wanted.start
        while start < wanted.stop:
            bounds = self.bounds().get(bucket)
            log_start = bounds.start if bounds is not None else wanted.stop
            if start < log_start:
                stop = min(log_start, wanted.stop)
                yield from self._lake_range(bucket, OffsetRange(start, stop), log_start, columns)
                start = stop
                continue
            try:
                for batch in self.hot.read_log(self.table, bucket, start, wanted.stop, columns):
                    yield append_bucket(batch, bucket)
                    start = batch.column(OFFSET)[-1].as_py() + 1 if batch.num_rows else start
                return
            except OffsetOutOfRange as error:
                if error.start <= start:
                    raise

    def snapshot(
        self, snapshot_id: SnapshotId, bucket: Bucket | None, columns: Sequence[str]
    ) -> Iterator[pa.RecordBatch]:
        """Rows of one bucket in a pinned snapshot; None: of files that do not say theirs. Raises `SnapshotGone`."""
        if self.lake is None:
            raise SnapshotGone(
                table=str(self.table.path),
                snapshot=snapshot_id,
                advice="the lake was switched off; start the query anew",
            )
        for _, batch in self.lake.scan_buckets(snapshot_id, columns=[*columns, *LAKE_NAMES], buckets=[bucket]):
            yield batch

    def _lake_range(
        self, bucket: Bucket, wanted: OffsetRange, log_start: int, columns: Sequence[str]
    ) -> Iterator[pa.RecordBatch]:
        """Reads rows of the lake in order of offset: files whose bounds do not overlap are read one after the other,
        never all at once."""
        head = None if self.history is None else self.history.pinned().load_snapshot(self.snapshot_id)
        if self.history is None or head is None:
            raise OffsetOutOfRange(
                table=str(self.table.path), bucket=str(bucket), offset=wanted.start, start=log_start, end=wanted.stop
            )
        lake = self.history.pinned()
        names = [*columns, *([CHANGE_TYPE] if self.changes is not None else []), *LAKE_NAMES]
        files = [f for f in lake.files(head.snapshot_id) if f.bucket in (bucket, None)]
        if not lake.has_offsets and any(_is_unplaced(f, lake.adopted) for f in files):
            raise self._gone(bucket, f"offset {wanted.start}", log_start)
        is_own_bucket = self._is_of(bucket) if any(f.bucket is None for f in files) else None
        parts = windows(files, wanted)
        is_whole = is_own_bucket is None and len(parts) == 1 and all(_is_within(f.offsets, wanted) for f in files)
        for part in parts:
            inside = (pc.field(OFFSET) >= part.start) & (pc.field(OFFSET) < part.stop)
            scanned = lake.scan_buckets(
                head.snapshot_id,
                columns=names,
                filter=None if is_whole else inside if is_own_bucket is None else is_own_bucket & inside,
                buckets=[bucket, None],
            )
            yield from in_order([b for _, b in scanned if b.num_rows])

    def _is_of(self, bucket: Bucket) -> pc.Expression:
        """True of the bucket's rows, also in a file that does not say its bucket."""
        facts = partition_facts(
            to_arrow_schema(self.table.schema), self.table.descriptor.partitioning, bucket.partition
        )
        return facts & (pc.field(BUCKET) == bucket.number)


def _is_unplaced(file: LakeFile, adopted: AdoptedRows | None) -> bool:
    """For a clean table: true if another engine wrote the file, so that the offsets of its rows are unknown."""
    return file.offsets is None and (adopted is None or file.sequence > adopted.sequence)


def _begin(lost: OffsetRange, log: LogBounds | None) -> int:
    """Where changes are kept again."""
    return lost.stop if log is None else max(lost.start, min(lost.stop, log.start))


def windows(files: Sequence[LakeFile], wanted: OffsetRange) -> list[OffsetRange]:
    """The parts of a range that files hold, in order; files whose bounds overlap are one part. Pure."""
    if any(f.offsets is None for f in files):
        return [wanted]
    cut = sorted(
        (max(f.offsets.start, wanted.start), min(f.offsets.stop, wanted.stop)) for f in files if f.offsets is not None
    )
    parts: list[OffsetRange] = []
    for start, stop in cut:
        if start >= stop:
            continue
        if parts and start < parts[-1].stop:
            parts[-1] = OffsetRange(parts[-1].start, max(stop, parts[-1].stop))
        else:
            parts.append(OffsetRange(start, stop))
    return parts


def in_order(batches: Sequence[pa.RecordBatch]) -> Sequence[pa.RecordBatch]:
    """Batches in order of offset; our own files already are, and are not copied."""
    last = -1
    for batch in batches:
        offsets = offsets_of(batch)
        if offsets[0] <= last or (np.diff(offsets) <= 0).any():
            sorted_batches: Sequence[pa.RecordBatch] = pa.Table.from_batches(batches).sort_by(OFFSET).to_batches()
            return sorted_batches
        last = int(offsets[-1])
    return batches


def _is_within(offsets: OffsetRange | None, wanted: OffsetRange) -> bool:
    return offsets is not None and wanted.start <= offsets.start and offsets.stop <= wanted.stop


def short_names(batch: pa.RecordBatch) -> pa.Array:
    """The short names (+I, -U, +U, -D); rows of a lake snapshot are inserts."""
    if CHANGE_TYPE not in batch.schema.names:
        return pa.array([ChangeType.INSERT.short] * batch.num_rows, pa.string())
    codes = with_change_codes(batch).column(CHANGE_TYPE).cast(pa.int32())
    return pa.array([c.short for c in ChangeType]).take(codes)


def open_side(
    plugin: HotPlugin, table: TableInfo, side: SideName | None, plugins: PluginCache = PROCESS_PLUGINS
) -> LakeReader | None:
    """None for tables that are not tiered: the table says so, or the server has no lake at all."""
    if table.descriptor.properties.get(TABLE_DATALAKE_ENABLED.key, "true").lower() == "false":
        return None
    try:
        name, options = plugin.lake_options(table, side)
    except LakeUnavailable as error:
        if error.lake == "none":
            return None
        raise
    return plugins.lake(Plugin(name=name, options=options)).open_reader(side_table(table, side))
