# SPDX-License-Identifier: Apache-2.0
"""The server's side of `do_get`: what each kind of ticket streams."""

from __future__ import annotations

import base64
import time
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.flight as flight

from lakeward.errors import InvalidRequest
from lakeward.hot.embedded.door.failure import answering
from lakeward.hot.embedded.door.shapes import log_schema, snapshot_schema
from lakeward.hot.embedded.serve.budget import TokenBudget
from lakeward.hot.embedded.serve.declared import declared_bytes
from lakeward.hot.embedded.serve.packing import packed
from lakeward.hot.embedded.serve.tables import as_of, find_table
from lakeward.hot.embedded.store import EmbeddedStore
from lakeward.model.bucket import Bucket
from lakeward.model.table import TableInfo
from lakeward.protocol.flight import Read, Ticket
from lakeward.spi.hot import KvSnapshot

LONGEST_WAIT_MS = 30_000
"""A waiting reader holds a server thread; it asks again after this."""

POLL_S = 0.5
"""How often a waiting read looks whether its caller is still there."""

Streamed: TypeAlias = Any
"""A batch, or a batch with its app_metadata."""


def open_read(
    store: EmbeddedStore, ticket: Ticket, budget: TokenBudget, is_cancelled: Callable[[], bool]
) -> flight.GeneratorStream:
    """The stream of this ticket. Errors while it runs reach the peer typed."""
    table = as_of(find_table(store, ticket.table, ticket.table_id), ticket.schema_id, ticket.width)
    schema, batches = _open(store, table, ticket, budget, is_cancelled)
    streamed = _guarded(schema, batches, f"{ticket.kind} read of {ticket.table}")
    return flight.GeneratorStream(schema, packed(streamed) if ticket.kind is Read.LOG else streamed)


def _open(
    store: EmbeddedStore, table: TableInfo, ticket: Ticket, budget: TokenBudget, is_cancelled: Callable[[], bool]
) -> tuple[pa.Schema, Iterator[Streamed]]:
    match ticket.kind:
        case Read.LOG:
            bucket, span = _bucket(ticket), ticket.range
            if span is None:
                raise InvalidRequest(what="log ticket", reason="the range is missing")
            return log_schema(table, ticket.columns), store.read_log(
                table, bucket, span.start, span.stop, ticket.columns
            )
        case Read.TAIL:
            return log_schema(table, ticket.columns), _tail(store, table, ticket, is_cancelled)
        case Read.SNAPSHOT:
            if ticket.snapshot_id is None:
                raise InvalidRequest(what="snapshot ticket", reason="the snapshot id is missing")
            snapshot = KvSnapshot(bucket=_bucket(ticket), snapshot_id=ticket.snapshot_id, log_offset=ticket.log_offset)
            return snapshot_schema(table, ticket.columns), store.read_snapshot(table, snapshot, ticket.columns)
        case Read.LOOKUP:
            return snapshot_schema(table, None), _lookup(store, table, ticket, budget)


def _bucket(ticket: Ticket) -> Bucket:
    if ticket.bucket is None:
        raise InvalidRequest(what=f"{ticket.kind} ticket", reason="the bucket is missing")
    return ticket.bucket


def _tail(
    store: EmbeddedStore, table: TableInfo, ticket: Ticket, is_cancelled: Callable[[], bool]
) -> Iterator[Streamed]:
    """Everything there is above the reader's offsets; with nothing there, waits for the first new rows.

    What was acknowledged and is not on disk yet (tables that fsync seldom) is forced there first, so that it can be
    read."""
    offsets = dict(ticket.offsets or {})
    give_up_at = time.monotonic() + min(ticket.wait_ms, LONGEST_WAIT_MS) / 1000
    while not is_cancelled():
        has_rows = False
        for bucket, bounds in sorted(store.bounds(table, sync=True).items()):
            start = offsets.setdefault(bucket, bounds.start)
            if start < bounds.end:
                header = str(bucket).encode()
                for batch in store.read_log(table, bucket, start, bounds.end, ticket.columns):
                    has_rows = True
                    yield batch, header
                offsets[bucket] = bounds.end
        left_s = give_up_at - time.monotonic()
        if has_rows or left_s <= 0:
            return
        store.wait_for(table, offsets, min(left_s, POLL_S))


def _lookup(store: EmbeddedStore, table: TableInfo, ticket: Ticket, budget: TokenBudget) -> Iterator[Streamed]:
    what = f"lookup in {ticket.table}"
    try:
        raw = base64.b64decode(ticket.keys or "", validate=True)
    except ValueError as error:
        raise InvalidRequest(what=what, reason=f"the keys are no base64: {error}") from error
    with budget.hold(len(raw) + declared_bytes(raw, what), what), pa.ipc.open_stream(raw) as reader:
        for keys in reader:
            keys.validate(full=True)
            yield store.lookup(table, _bucket(ticket), keys)


def _guarded(schema: pa.Schema, batches: Iterator[Streamed], what: str) -> Iterator[Streamed]:
    with answering(what):
        for item in batches:
            batch, *header = item if isinstance(item, tuple) else (item,)
            if batch.schema != schema:
                # Arrow takes no batch that differs from what the stream announced; a reader may know fewer columns than
                # there are.
                batch = pa.RecordBatch.from_arrays([batch.column(name) for name in schema.names], schema=schema)
            yield (batch, *header) if header else batch
