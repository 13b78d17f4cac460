# SPDX-License-Identifier: Apache-2.0
"""Reading a log range through a server that may go away: reads go on where they stopped, within a limit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from lakeward.errors import Unavailable
from lakeward.model.bucket import Bucket
from lakeward.model.clock import Clock
from lakeward.model.schema import OFFSET
from lakeward.model.table import TableInfo
from lakeward.spi.hot import HotStore
from lakeward.tiering.job.backoff import delays
from lakeward.tiering.task.stop import StopSignal


class LogReader:
    """Reads of one split. Safe to read several times (two passes)."""

    def __init__(
        self, store: HotStore, table: TableInfo, bucket: Bucket, signal: StopSignal, clock: Clock, wait_s: float
    ) -> None:
        self._store, self._table, self._bucket = store, table, bucket
        self._signal, self._clock, self._wait_s = signal, clock, wait_s
        self.bytes_read = 0

    def read(self, start: int, stop: int, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """Batches with rows, in offset order; checks between them whether the round may go on.

        Raises `LeaseLost`; `ServerUnavailable` once the store was away for longer than the limit."""
        at, waits, lost_at = start, delays(), None
        while True:
            try:
                for batch in self._store.read_log(self._table, self._bucket, at, stop, columns):
                    waits, lost_at = delays(), None
                    self._signal.check()
                    if batch.num_rows:
                        self.bytes_read += batch.nbytes
                        yield batch
                        at = next_offset(batch)
                return
            except Unavailable:
                now = self._clock.monotonic()
                lost_at = now if lost_at is None else lost_at
                if now - lost_at > self._wait_s:
                    raise
                self._signal.wait(next(waits))


def next_offset(batch: pa.RecordBatch) -> int:
    """The offset after the batch's last record."""
    return int(batch.column(OFFSET)[batch.num_rows - 1].as_py()) + 1
