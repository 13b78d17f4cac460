# SPDX-License-Identifier: Apache-2.0
"""A bucket's changelog in memory, with a synced end of its own: for tests of crashes, and for measuring KV alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from lakeward.hot.embedded.log.writers import Appended, WriterSequence, WriterTable
from lakeward.model import CHANGE_TYPE, OFFSET, PREV_OFFSET, TIMESTAMP, TIMESTAMP_COLUMN_TYPE


@dataclass(frozen=True)
class _Stored:
    appended: Appended
    batch: pa.RecordBatch
    writer: WriterSequence | None


class MemoryChangelogLog:
    """Keeps batches in a list. `lose_unsynced` is what a power cut does to a log."""

    def __init__(self) -> None:
        self.batches: list[_Stored] = []
        self.start = 0
        self.synced_end = 0
        self.stopped: str | None = None
        self._writers = WriterTable("0")

    @property
    def end(self) -> int:
        return self.batches[-1].appended.stop if self.batches else self.start

    def stop(self, reason: str | None) -> None:
        self.stopped = reason

    def find_duplicate(self, writer: WriterSequence | None) -> Appended | None:
        return self._writers.find(writer)

    def append(
        self,
        rows: pa.RecordBatch,
        change_types: bytes,
        *,
        schema_id: int,
        timestamp_ms: int,
        writer: WriterSequence | None,
    ) -> Appended:
        base = self.end
        appended = Appended(base, base + max(rows.num_rows, 1), timestamp_ms)
        self.batches.append(_Stored(appended, _with_system_columns(rows, base, timestamp_ms, change_types), writer))
        if writer is not None:
            self._writers.record(writer.writer_id, writer.sequence, appended)
        return appended

    def wait_synced(self, stop: int) -> None:
        """As with fsync `never`: `sync` alone moves the synced end."""

    def sync(self) -> int:
        self.synced_end = self.end
        return self.end

    def read(self, start: int, stop: int, *, unsynced: bool) -> Iterator[pa.RecordBatch]:
        for stored in list(self.batches):
            base, count = stored.appended.start, stored.batch.num_rows
            low, high = max(start - base, 0), min(stop - base, count)
            if low < high:
                yield stored.batch.slice(low, high - low)

    def lose_unsynced(self) -> None:
        self.batches = [s for s in self.batches if s.appended.stop <= self.synced_end]
        self._writers = WriterTable("0")
        for stored in self.batches:
            if stored.writer is not None:
                self._writers.record(stored.writer.writer_id, stored.writer.sequence, stored.appended)

    def skip_to(self, offset: int) -> None:
        """Goes on at a higher offset; those between name no row."""
        self.batches.append(_Stored(Appended(self.end, offset), self.batches[0].batch.slice(0, 0), None))

    def cut_before(self, offset: int) -> None:
        """What retention does."""
        self.batches = [s for s in self.batches if s.appended.start >= offset]
        self.start = offset


def _with_system_columns(rows: pa.RecordBatch, base: int, timestamp_ms: int, change_types: bytes) -> pa.RecordBatch:
    count = rows.num_rows
    prev = rows.column(PREV_OFFSET)
    users = rows.drop_columns([PREV_OFFSET])
    arrays = [
        *users.columns,
        pa.array(np.arange(base, base + count, dtype=np.int64)),
        pa.array(np.full(count, timestamp_ms, np.int64)).cast(TIMESTAMP_COLUMN_TYPE),
        pa.array(np.frombuffer(change_types, np.int8)),
        prev,
    ]
    return pa.RecordBatch.from_arrays(arrays, names=[*users.schema.names, OFFSET, TIMESTAMP, CHANGE_TYPE, PREV_OFFSET])
