# SPDX-License-Identifier: Apache-2.0
"""The hot side of a coordinator in memory: table metadata, log bounds and arrival times, without any rows."""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from lakeward.errors import TableAlreadyExists, TableNotFound
from lakeward.model import Bucket, Clock, CutEnds, OffsetMap, OffsetRange, TableId, TableInfo, TablePath
from lakeward.spi import HotAdmin, LogBounds, RetentionGuard, Waiting

ROW_BYTES = 100


@dataclass
class MemoryLog:
    """`appends` holds (end offset, time) of each append, oldest first."""

    start: int = 0
    end: int = 0
    appends: list[tuple[int, int]] = field(default_factory=list)

    def append(self, rows: int, at_ms: int) -> None:
        self.end += rows
        self.appends.append((self.end, at_ms))

    def waiting_from(self, offset: int) -> tuple[int, int | None]:
        """(rows, time of the oldest) at or above the offset."""
        if offset >= self.end:
            return 0, None
        return self.end - offset, self.appends[bisect_right(self.appends, (offset, 2**62))][1]


class MemoryHotAdmin(HotAdmin):
    """`append` stands for producers; `guard` is what the coordinator handed in."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.RLock()
        self._tables: dict[TablePath, TableInfo] = {}
        self._logs: dict[TableId, dict[Bucket, MemoryLog]] = {}
        self.paused: dict[TablePath, str] = {}
        self.stopped: set[TablePath] = set()
        self.guard: RetentionGuard | None = None
        self.cuts: dict[str, Mapping[TableId, CutEnds]] = {}

    def append(
        self, path: TablePath, rows: int = 1, bucket: Bucket | None = None, at_ms: int | None = None
    ) -> OffsetRange:
        with self._lock:
            table = self.load_table(path)
            log = self._logs[table.table_id].setdefault(bucket or Bucket("", 0), MemoryLog())
            start = log.end
            log.append(rows, self._clock.now_ms() if at_ms is None else at_ms)
            return OffsetRange(start, log.end)

    def truncate(self, path: TablePath, bucket: Bucket, start: int) -> None:
        """Retention let go of everything below."""
        with self._lock:
            self._logs[self.load_table(path).table_id][bucket].start = start

    def forget_rows(self, path: TablePath, bucket: Bucket, end: int) -> None:
        """The folder was restored from an older copy."""
        with self._lock:
            log = self._logs[self.load_table(path).table_id][bucket]
            log.end, log.appends = end, [(min(e, end), t) for e, t in log.appends if e <= end]

    def create_table(self, table: TableInfo) -> None:
        with self._lock:
            if table.path in self._tables:
                raise TableAlreadyExists(table=str(table.path))
            self._tables[table.path] = table
            numbers = range(0 if table.descriptor.is_partitioned else table.descriptor.bucket_count)
            self._logs[table.table_id] = {Bucket("", n): MemoryLog() for n in numbers}

    def alter_table(self, table: TableInfo) -> None:
        with self._lock:
            self.load_table(table.path)
            self._tables[table.path] = table

    def drop_table(self, path: TablePath) -> None:
        with self._lock:
            del self._logs[self.load_table(path).table_id]
            del self._tables[path]

    def load_table(self, path: TablePath) -> TableInfo:
        with self._lock:
            if path not in self._tables:
                raise TableNotFound(table=str(path))
            return self._tables[path]

    def load_tables(self) -> Sequence[TableInfo]:
        with self._lock:
            return list(self._tables.values())

    def bounds(self, table: TableInfo, *, sync: bool = False) -> Mapping[Bucket, LogBounds]:
        with self._lock:
            logs = self._logs.get(table.table_id, {})
            return {b: LogBounds(start=v.start, end=v.end, bytes_per_row=ROW_BYTES) for b, v in logs.items()}

    def freeze_cut(self, name: str, tables: Sequence[TableInfo]) -> Mapping[TableId, CutEnds]:
        with self._lock:
            ends = {t.table_id: {b: v.end for b, v in self._logs[t.table_id].items()} for t in tables}
            self.cuts[name] = {table_id: CutEnds(ends=OffsetMap(at)) for table_id, at in ends.items()}
            return self.cuts[name]

    def add_cut(self, name: str, ends: Mapping[TableId, CutEnds]) -> None:
        self.cuts[name] = ends

    def forget_cut(self, name: str) -> None:
        self.cuts.pop(name, None)

    def waiting(self, table: TableInfo, committed: OffsetMap) -> Waiting:
        rows, oldest = 0, None
        with self._lock:
            for bucket, log in self._logs.get(table.table_id, {}).items():
                count, at = log.waiting_from(max(log.start, committed.get(bucket, 0)))
                rows += count
                oldest = at if oldest is None or (at is not None and at < oldest) else oldest
        return Waiting(rows=rows, bytes=rows * ROW_BYTES, oldest_at_ms=oldest)

    def guard_offsets(self, table: TableInfo, committed: OffsetMap) -> Mapping[Bucket, OffsetRange]:
        gaps: dict[Bucket, OffsetRange] = {}
        with self._lock:
            for bucket, offset in committed.items():
                log = self._logs.get(table.table_id, {}).setdefault(bucket, MemoryLog())
                if offset > log.end and table.is_pk:
                    self.stopped.add(table.path)
                elif offset > log.end:
                    gaps[bucket] = OffsetRange(log.end, offset)
                    log.end = offset
        return gaps

    def pause_writes(self, table: TableInfo, reason: str | None) -> None:
        with self._lock:
            self.paused.pop(table.path, None)
            if reason is not None:
                self.paused[table.path] = reason

    def set_retention(self, guard: RetentionGuard) -> None:
        self.guard = guard

    def stopped_buckets(self, table: TableInfo) -> Mapping[Bucket, str]:
        return {Bucket("", 0): "the log is behind the lake"} if table.path in self.stopped else {}
