# SPDX-License-Identifier: Apache-2.0
"""One table of the live catalog: its chunks, and the live snapshots that were answered last."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pyiceberg.table.snapshots import Snapshot

from lakeward.errors import LogTooShort, TableBusy
from lakeward.lake.iceberg.commit.ground import IcebergGround
from lakeward.lake.iceberg.live import LiveMetadata, compose, load_ground, unchanged
from lakeward.lake.iceberg.meta.location import LIVE
from lakeward.model import Bucket, LakeBase, OffsetRange, RoundId, TableId, TableInfo, new_round_id
from lakeward.server.live.chunks import LiveTarget
from lakeward.server.live.files import LiveFiles
from lakeward.server.live.layers import LayerStack
from lakeward.server.live.moment import Moment
from lakeward.spi import HotStore, LogBounds

Hold = Callable[[LakeBase], None]
"""Keeps a snapshot of the lake and the log above its offsets for as long as answers on it may be read."""

_REMEMBERED = 4
"""Earlier live snapshots that an answer names, for clients that loaded one of them."""

MOMENT_KEY = "lakeward.live.moment-ms"
"""In a live snapshot's summary and among the table's properties of the answer: every row acknowledged before this time
is in it."""

WINDOW_KEY = "lakeward.live.window-ms"
"""How long the ends of all tables took to be listed, where they are not of one instant: no row written later than the
moment and this is in it."""

COMPLETE_KEY = "lakeward.live.complete"
LINEAGE_KEY = "lakeward.live.note"
_LINEAGE = "sequence number and row ids of the tail are given again by the next round: follow changes in `default`"


AskRound = Callable[[TableInfo], None]
"""Asks for a round of a table whose tail is too long to be shown. Never raises."""


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
    window_ms: int = 0

    @property
    def ends(self) -> dict[Bucket, int]:
        return {bucket: span.stop for bucket, span in self.ranges.items()}


@dataclass(frozen=True, kw_only=True)
class _Answered:
    """A live snapshot that an answer named, and what the names of its files begin with."""

    snapshot: Snapshot
    live_ids: frozenset[RoundId]


class LiveTable:
    """Thread-safe: one answer is made at a time, and callers that wait for it get the same one."""

    def __init__(self, table_id: TableId, store: HotStore, files: LiveFiles, limits: LiveLimits, ask: AskRound) -> None:
        self._table_id, self._store, self._files = table_id, store, files
        self._limits, self._ask = limits, ask
        self._lock = threading.Lock()
        self._stack = LayerStack(store)
        self._snapshots: list[_Answered] = []
        self._answer: LiveMetadata | None = None
        self._answered: tuple[object, ...] = ()
        self._asked_at_ms = self._loads = 0
        self._is_whole = True

    def answer(
        self,
        target: LiveTarget,
        moment: Moment,
        bounds: Callable[[], Mapping[Bucket, LogBounds]],
        hold: Hold,
        caller: str,
    ) -> LiveMetadata:
        """The table at this moment, or at a later one that was answered meanwhile. Raises what the lake raises;
        `LogTooShort`, `TableBusy`, `LiveQuotaExceeded`."""
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
                self._answer, self._answered = self._make(target, ground, tail, caller), state
            self._asked_at_ms = moment.at_ms
            return self._answer

    def forget(self, before_ms: int) -> None:
        """Lets the files of the newest answer go if no load has named them since that time."""
        with self._lock:
            if self._answer is not None and self._asked_at_ms < before_ms:
                self._stack, self._snapshots = LayerStack(self._store), []
                self._answer, self._answered = None, ()
                self._files.keep_only(self._table_id, ())

    def figures(self, now_ms: int) -> dict[str, float]:
        """For metrics and pages. Does not wait for an answer that is being made."""
        chunks = list(self._stack.chunks())
        return {
            "liveLoads": self._loads,
            "liveTailRows": sum(chunk.rows for chunk in chunks),
            "liveTailFiles": sum(chunk.result is not None for chunk in chunks),
            "liveTailBytes": sum(chunk.bytes for chunk in chunks),
            "liveMomentAge": max(0, now_ms - self._asked_at_ms),
            "liveComplete": float(self._is_whole),
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
        tail = LiveTail(at_ms=moment.at_ms, ranges=ranges, window_ms=moment.window_ms)
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
    def _make(self, target: LiveTarget, lake: IcebergGround, tail: LiveTail, caller: str) -> LiveMetadata:
        plan = self._stack.plan(target, lake, tail.ranges)
        notes = {MOMENT_KEY: str(tail.at_ms), COMPLETE_KEY: str(tail.is_whole).lower()}
        notes |= {WINDOW_KEY: str(tail.window_ms)} if tail.window_ms else {}
        if plan.ranges:
            self._files.check_room(target.table, caller)
            live_id = RoundId(f"{LIVE}{new_round_id()}")
            self._files.begin(live_id, target.lake_table, target.lake_name, caller)
            size = self._stack.extend(plan, target, lake, live_id, tail.ends, {**notes, LINEAGE_KEY: _LINEAGE})
            self._files.finish(live_id, size)
        else:
            self._stack.shrink(plan, target, lake)
        answer, self._is_whole = self._compose(lake, notes), tail.is_whole
        self._files.keep_only(self._table_id, self._stack.live_ids().union(*(s.live_ids for s in self._snapshots)))
        return answer

    def _compose(self, lake: IcebergGround, notes: Mapping[str, str]) -> LiveMetadata:
        if not self._stack.layers:
            self._snapshots = []
            return unchanged(lake, notes)
        top = self._stack.layers[-1]
        newest = _Answered(snapshot=top.snapshot, live_ids=self._stack.live_ids())
        earlier = [s for s in self._snapshots if s.snapshot.snapshot_id != top.snapshot.snapshot_id]
        self._snapshots = [*earlier[-_REMEMBERED:], newest]
        return compose(lake.table.metadata, [s.snapshot for s in self._snapshots], top.live_id, notes)
