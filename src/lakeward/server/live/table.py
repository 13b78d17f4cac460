# SPDX-License-Identifier: Apache-2.0
"""One table of the live catalog: its chunks, and the live snapshots that were answered last."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from pyiceberg.table.snapshots import Snapshot

from lakeward.errors import LogTooShort, TableBusy
from lakeward.lake.iceberg.commit.ground import CommitGround
from lakeward.lake.iceberg.datafile.handle import WriteHandle
from lakeward.lake.iceberg.datafile.location import LIVE
from lakeward.lake.iceberg.live import LiveCommitter, LiveMetadata, compose, load_ground, unchanged
from lakeward.lake.iceberg.plugin import IcebergLakeStorage
from lakeward.model.bucket import Bucket
from lakeward.model.ids import RoundId, TableId, new_round_id
from lakeward.model.offsets import OffsetRange
from lakeward.model.offsetset import OffsetSet
from lakeward.model.round import LakeBase
from lakeward.model.table import TableInfo
from lakeward.server.live.chunks import Chunk, ChunkWriter, plan_chunks
from lakeward.server.live.files import LiveFiles
from lakeward.server.live.moment import Moment
from lakeward.spi.hot import HotStore, LogBounds

Hold = Callable[[LakeBase], None]
"""Keeps a snapshot of the lake and the log above its offsets for as long as answers on it may be read."""

_REMEMBERED = 4
"""Earlier live snapshots that an answer names, for clients that loaded one of them."""

MOMENT_KEY = "lakeward.live.moment-ms"
"""In a live snapshot's summary and among the table's properties of the answer: every row acknowledged before this time
is in it."""

COMPLETE_KEY = "lakeward.live.complete"
LINEAGE_KEY = "lakeward.live.note"
_LINEAGE = "sequence number and row ids of the tail are given again by the next round: follow changes in `default`"


AskRound = Callable[[TableInfo], None]
"""Asks for a round of a table whose tail is too long to be shown. Never raises."""


@dataclass(frozen=True, kw_only=True)
class LiveTarget:
    """The table as hot store and lake have it, and its lake."""

    table: TableInfo
    lake_table: TableInfo
    lake: IcebergLakeStorage


@dataclass(frozen=True, kw_only=True)
class LiveLimits:
    """A tail beyond either ends earlier."""

    rows: int
    bytes: int


@dataclass(frozen=True, kw_only=True)
class LiveTail:
    """The ranges of one table's tail at one moment. `is_whole`: they reach the moment; else they end at an earlier
    one."""

    at_ms: int
    ranges: Mapping[Bucket, OffsetRange]
    is_whole: bool = True

    @property
    def ends(self) -> dict[Bucket, int]:
        return {bucket: span.stop for bucket, span in self.ranges.items()}


class LiveTable:
    """Thread-safe: one answer is made at a time, and whoever waits for it gets the same one."""

    def __init__(self, table_id: TableId, store: HotStore, files: LiveFiles, limits: LiveLimits, ask: AskRound) -> None:
        self._table_id, self._store, self._files = table_id, store, files
        self._limits, self._ask = limits, ask
        self._lock = threading.Lock()
        self._chunks: dict[Bucket, tuple[Chunk, ...]] = {}
        self._snapshots: list[tuple[RoundId, Snapshot]] = []
        self._answer: LiveMetadata | None = None
        self._answered: tuple[object, ...] = ()
        self._asked_at_ms = self._loads = 0

    def answer(
        self, target: LiveTarget, moment: Moment, bounds: Callable[[], Mapping[Bucket, LogBounds]], hold: Hold
    ) -> LiveMetadata:
        """The table at this moment, or at a later one that was answered meanwhile. Raises what the lake raises;
        `LogTooShort`, `TableBusy`."""
        with self._lock:
            self._loads += 1
            if self._answer is not None and moment.at_ms < self._asked_at_ms:
                return self._answer
            ends = moment.ends[self._table_id].ends
            ground = load_ground(target.lake.connection, target.lake_table, ends)
            hold(ground.base)
            state = (ground.table.metadata_location, ground.base.head, ends, target.table.schema.schema_id)
            if self._answer is None or self._answered != state:
                tail = self._tail(target.table, ground.base, moment, bounds())
                self._answer, self._answered = self._make(target, ground, tail), state
            self._asked_at_ms = moment.at_ms
            return self._answer

    def figures(self, now_ms: int) -> dict[str, float]:
        """For metrics and pages. Does not wait for an answer that is being made."""
        chunks = [chunk for chunks in self._chunks.values() for chunk in chunks]
        return {
            "liveLoads": self._loads,
            "liveTailRows": sum(chunk.rows for chunk in chunks),
            "liveTailFiles": sum(chunk.result is not None for chunk in chunks),
            "liveMomentAge": max(0, now_ms - self._asked_at_ms),
        }

    # ---- where the tail ends ----
    def _tail(self, table: TableInfo, base: LakeBase, moment: Moment, bounds: Mapping[Bucket, LogBounds]) -> LiveTail:
        """Bounds are looked up after the hold: from then on nothing below the lake's offsets goes from the log."""
        ends = moment.ends[table.table_id].ends
        ranges = {
            bucket: OffsetRange(self._start(table, bucket, base, bounds[bucket]), end)
            for bucket, end in ends.items()
            if bucket in bounds
        }
        tail = LiveTail(at_ms=moment.at_ms, ranges=ranges)
        if self._fits(tail, bounds):
            return tail
        self._ask(table)
        return self._shorten(table, tail, bounds)

    def _start(self, table: TableInfo, bucket: Bucket, base: LakeBase, log: LogBounds) -> int:
        committed = base.offsets.get(bucket)
        if committed is None:
            if table.is_pk and log.start > 0:
                reason = f"its log no longer begins at the first row; run `lakeward tier-now {table.path}` first"
                raise TableBusy(table=str(table.path), reason=reason)
            return log.start
        if committed < log.start:
            raise LogTooShort(table=str(table.path), bucket=str(bucket), committed=committed, start=log.start)
        return committed

    def _fits(self, tail: LiveTail, bounds: Mapping[Bucket, LogBounds]) -> bool:
        rows = sum(map(len, tail.ranges.values()))
        size = sum(len(span) * bounds[bucket].bytes_per_row for bucket, span in tail.ranges.items())
        return rows <= self._limits.rows and size <= self._limits.bytes

    def _shorten(self, table: TableInfo, tail: LiveTail, bounds: Mapping[Bucket, LogBounds]) -> LiveTail:
        """The latest second at which it fits: found by halving, since offsets grow with time in every bucket."""
        low, high = 0, tail.at_ms
        shortest = self._cut(table, tail, low)
        while high - low > 1_000:
            middle = (low + high) // 2
            cut = self._cut(table, tail, middle)
            low, high, shortest = (middle, high, cut) if self._fits(cut, bounds) else (low, middle, shortest)
        return shortest

    def _cut(self, table: TableInfo, tail: LiveTail, at_ms: int) -> LiveTail:
        ranges = {}
        for bucket, span in tail.ranges.items():
            stop = self._store.offset_at(table, bucket, at_ms) if len(span) else span.stop
            ranges[bucket] = OffsetRange(span.start, min(max(stop, span.start), span.stop))
        return LiveTail(at_ms=at_ms, ranges=ranges, is_whole=False)

    # ---- files ----
    def _make(self, target: LiveTarget, ground: CommitGround, tail: LiveTail) -> LiveMetadata:
        live_id = RoundId(f"{LIVE}{new_round_id()}")
        self._files.begin(live_id, target.lake_table.path, self._table_id)
        self._write_chunks(target, ground, live_id, tail)
        chunks = [chunk for bucket in sorted(self._chunks) for chunk in self._chunks[bucket]]
        notes = {MOMENT_KEY: str(tail.at_ms), COMPLETE_KEY: str(tail.is_whole).lower()}
        if chunks:
            snapshot = self._prepare(target, ground, live_id, chunks, tail, {**notes, LINEAGE_KEY: _LINEAGE})
            self._snapshots = [*self._snapshots[-_REMEMBERED:], (live_id, snapshot)]
            answer = compose(ground.table.metadata, [s for _, s in self._snapshots], live_id, notes)
        else:
            answer = unchanged(ground, notes)
        named = {chunk.live_id for chunk in chunks} | {live_id for live_id, _ in self._snapshots if chunks}
        self._files.keep_only(self._table_id, named)
        return answer

    def _write_chunks(self, target: LiveTarget, ground: CommitGround, live_id: RoundId, tail: LiveTail) -> None:
        writer = ChunkWriter(self._store, target.lake, target.table, target.lake_table)
        handle = WriteHandle.of(ground.table).to_bytes()
        written: dict[Bucket, tuple[Chunk, ...]] = {}
        for bucket, span in sorted(tail.ranges.items()):
            plan = plan_chunks(self._chunks.get(bucket, ()), span.start, span.stop)
            fresh = [writer.write(bucket, r, live_id, handle, number) for number, r in enumerate(plan.ranges)]
            chunks = sorted([*plan.kept, *fresh], key=lambda chunk: chunk.range.start)
            if chunks:
                written[bucket] = tuple(chunks)
        self._chunks = written

    def _prepare(
        self,
        target: LiveTarget,
        ground: CommitGround,
        live_id: RoundId,
        chunks: Sequence[Chunk],
        tail: LiveTail,
        notes: Mapping[str, str],
    ) -> Snapshot:
        results = [chunk.result for chunk in chunks if chunk.result is not None]
        replaced: dict[Bucket, OffsetSet] = {}
        for chunk in chunks:
            replaced[chunk.bucket] = replaced.get(chunk.bucket, OffsetSet()).union(chunk.replaced)
        committer = LiveCommitter(target.lake.connection, target.lake_table)
        return committer.prepare_live(ground, live_id, results, replaced, tail.ends, notes)
