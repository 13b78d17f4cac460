# SPDX-License-Identifier: Apache-2.0
"""New rows of all buckets of a table as they come, from a place of the reader's choice, through broken connections."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa

from lakeward.changelog.columns import with_change_codes, with_change_words
from lakeward.errors import InvalidRequest, OffsetOutOfRange, SchemaChanged, ServerUnavailable, TableNotFound
from lakeward.hot.embedded.plugin import EmbeddedPlugin
from lakeward.hot.embedded.remote.connection import Backoff
from lakeward.hot.embedded.remote.shapes import log_schema
from lakeward.model import CHANGE_TYPE, OFFSET, PREV_OFFSET, Bucket, OffsetMap, OffsetRange, TableInfo
from lakeward.protocol.flight import Read, Ticket
from lakeward.protocol.readplan import WriteToken

Start = str | datetime | OffsetMap | WriteToken
LONG_POLL_S = 10.0


class Subscription:
    """An iterator of record batches with the system columns. `offsets` is where a later subscription goes on.

    `__change_type` of a primary-key table's rows is insert, update_before, update_after or delete."""

    def __init__(
        self,
        plugin: EmbeddedPlugin,
        table: TableInfo,
        start: Start,
        *,
        columns: Sequence[str] | None = None,
        idle_s: float | None = None,
    ) -> None:
        self.plugin, self.store, self.table, self.idle_s = plugin, plugin.store(), table, idle_s
        self.columns = None if columns is None else tuple(columns)
        self._offsets = _find_start(plugin, table, start)
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
                    yield with_change_words(batch)
                    quiet_since = time.monotonic()
                    backoff.progress()
                backoff.progress()
            except SchemaChanged:
                self._refresh()
                continue
            except OffsetOutOfRange:
                yield from self._older()
                quiet_since = time.monotonic()
                continue
            except ServerUnavailable as error:
                backoff.pause(error)
                quiet_since = time.monotonic()  # nobody was there to say that nothing is new
                continue
            if self.idle_s is not None and time.monotonic() - quiet_since >= self.idle_s:
                return

    def _older(self) -> Iterator[pa.RecordBatch]:
        """Rows that the log no longer holds, read from the lake, bucket by bucket up to the start of the log. Raises
        `HistoryGone`."""
        from lakeward.read.streamrows import StreamRows

        rows = StreamRows.open(self.plugin, self.table.path)
        names, schema = self.columns or rows.table.schema.names, log_schema(rows.table, self.columns)
        begins = {b: v.start for b, v in rows.bounds().items() if self._offsets.get(b, v.start) < v.start}
        rows.check_kept(self._offsets, begins)
        for bucket, begin in begins.items():
            for batch in rows.range(bucket, OffsetRange(self._offsets[bucket], begin), names):
                if batch.num_rows:
                    self._offsets[bucket] = batch.column(OFFSET)[-1].as_py() + 1
                    yield with_change_words(_as_logged(batch, schema))
            self._offsets[bucket] = begin

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


def _as_logged(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """A row of the lake as the log would have it; which row it replaces is not known there."""
    from lakeward.read.arrow import conform

    batch, appends = with_change_codes(batch), pa.array(np.zeros(batch.num_rows, np.int8))
    for name, values in ((PREV_OFFSET, pa.nulls(batch.num_rows, pa.int64())), (CHANGE_TYPE, appends)):
        if name in schema.names and name not in batch.schema.names:
            batch = batch.append_column(name, values)
    return conform(batch, schema)


def _find_start(plugin: EmbeddedPlugin, table: TableInfo, start: Start) -> dict[Bucket, int]:
    """Buckets that are not named are read from their first offset: partitions that come later are read whole."""
    store = plugin.store()
    if isinstance(start, WriteToken):
        return dict(start.offsets)
    if isinstance(start, OffsetMap):
        return dict(start)
    if isinstance(start, datetime):
        at_ms = round((start if start.tzinfo else start.replace(tzinfo=UTC)).timestamp() * 1000)
        return _find_moment(plugin, table, at_ms)
    if start == "earliest":
        return {bucket: bounds.start for bucket, bounds in store.bounds(table).items()}
    if start == "latest":
        return {bucket: bounds.end for bucket, bounds in store.bounds(table).items()}
    raise InvalidRequest(
        what=f"start {start!r}", reason='give "earliest", "latest", offsets, a write token or a datetime'
    )


def _find_moment(plugin: EmbeddedPlugin, table: TableInfo, at_ms: int) -> dict[Bucket, int]:
    """By the log alone where it goes back so far; else by the lake. Raises `HistoryGone`."""
    store = plugin.store()
    start_offsets = {bucket: store.offset_at(table, bucket, at_ms) for bucket in store.bounds(table)}
    bounds = store.bounds(table)  # asked after it: retention may have cut the log meanwhile
    if all(b not in bounds or offset > bounds[b].start or not bounds[b].start for b, offset in start_offsets.items()):
        return start_offsets
    from lakeward.read.streamrows import StreamRows

    rows = StreamRows.open(plugin, table.path)
    older = rows.offsets_at(at_ms, {b: v.end for b, v in bounds.items()})
    rows.check_since(older, at_ms)
    return dict(older)
