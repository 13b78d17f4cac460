# SPDX-License-Identifier: Apache-2.0
"""New rows of all buckets of a table as they come, from a place of the reader's choice, through broken connections."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from lakeward.errors import InvalidRequest, SchemaChanged, ServerUnavailable, TableNotFound
from lakeward.hot.embedded.door.connection import Backoff
from lakeward.hot.embedded.door.storeclient import EmbeddedStoreClient
from lakeward.model.bucket import Bucket
from lakeward.model.offsets import OffsetMap
from lakeward.model.schema import OFFSET
from lakeward.model.table import TableInfo
from lakeward.protocol.flight import Read, Ticket
from lakeward.protocol.writetoken import WriteToken

Start = str | datetime | OffsetMap | WriteToken
LONG_POLL_S = 10.0


class Subscription:
    """An iterator of record batches with the system columns. `offsets` is where a later subscription goes on."""

    def __init__(
        self,
        store: EmbeddedStoreClient,
        table: TableInfo,
        start: Start,
        *,
        columns: Sequence[str] | None = None,
        idle_s: float | None = None,
    ) -> None:
        self.store, self.table, self.idle_s = store, table, idle_s
        self.columns = None if columns is None else tuple(columns)
        self._offsets = _find_start(store, table, start)
        self._batches = self._follow()

    @property
    def offsets(self) -> OffsetMap:
        return OffsetMap(self._offsets)

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return self._batches

    def __next__(self) -> pa.RecordBatch:
        return next(self._batches)

    def rows(self) -> Iterator[dict[str, Any]]:
        """The same as dicts, one at a time."""
        for batch in self._batches:
            yield from batch.to_pylist()

    def _follow(self) -> Iterator[pa.RecordBatch]:
        backoff = Backoff(self.store.connection.retry_s)
        quiet_since = time.monotonic()
        while True:
            wait_s = (
                LONG_POLL_S if self.idle_s is None else min(LONG_POLL_S, quiet_since + self.idle_s - time.monotonic())
            )
            try:
                for bucket, batch in self.store.read_tail(self._ticket(max(0.0, wait_s))):
                    self._offsets[bucket] = batch.column(OFFSET)[-1].as_py() + 1
                    yield batch
                    quiet_since = time.monotonic()
                backoff.progress()
            except SchemaChanged:
                self._refresh()
                continue
            except ServerUnavailable as error:
                backoff.pause(error)
                quiet_since = time.monotonic()  # nobody was there to say that nothing is new
                continue
            if self.idle_s is not None and time.monotonic() - quiet_since >= self.idle_s:
                return

    def _refresh(self) -> None:
        """A column was added: from here on batches have it too, unless the reader named its columns."""
        table = self.store.load_table(self.table.path)
        if table.table_id != self.table.table_id:
            raise TableNotFound(table=str(self.table.path))
        self.table = table

    def _ticket(self, wait_s: float) -> Ticket:
        return Ticket.of(
            Read.TAIL, self.table, self.columns, offsets=OffsetMap(self._offsets), wait_ms=round(wait_s * 1000)
        )


def _find_start(store: EmbeddedStoreClient, table: TableInfo, start: Start) -> dict[Bucket, int]:
    """Buckets that are not named are read from their first offset: partitions that come later are read whole."""
    if isinstance(start, WriteToken):
        return dict(start.offsets)
    if isinstance(start, OffsetMap):
        return dict(start)
    if isinstance(start, datetime):
        at_ms = round((start if start.tzinfo else start.replace(tzinfo=UTC)).timestamp() * 1000)
        return {bucket: store.offset_at(table, bucket, at_ms) for bucket in store.bounds(table)}
    if start == "earliest":
        return {bucket: bounds.start for bucket, bounds in store.bounds(table).items()}
    if start == "latest":
        return {bucket: bounds.end for bucket, bounds in store.bounds(table).items()}
    raise InvalidRequest(
        what=f"start {start!r}", reason='give "earliest", "latest", offsets, a write token or a datetime'
    )
