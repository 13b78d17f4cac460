# SPDX-License-Identifier: Apache-2.0
"""The server's side of `do_get`: what each kind of ticket streams."""

from __future__ import annotations

import base64
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import pyarrow as pa

from lakeward.errors import InvalidRequest, Overloaded, QuotaExceeded, ServerUnavailable
from lakeward.hot.embedded.log.stored import CHUNK_BYTES
from lakeward.hot.embedded.remote.shapes import log_schema, snapshot_schema
from lakeward.hot.embedded.serve.budget import Held, TokenBudget
from lakeward.hot.embedded.serve.declared import declared_bytes
from lakeward.hot.embedded.serve.flightdata import batch_message, schema_message
from lakeward.hot.embedded.serve.packing import PackedReads, packed
from lakeward.hot.embedded.serve.status import answering
from lakeward.hot.embedded.serve.tables import find_planned
from lakeward.hot.embedded.store import EmbeddedStore
from lakeward.model import Bucket, TableInfo
from lakeward.protocol.flight import Read, Ticket
from lakeward.spi import KvSnapshot

LONGEST_WAIT_MS = 30_000
"""A waiting reader holds a server thread; it asks again after this."""

POLL_S = 0.5
"""How often a waiting read looks whether its caller is still there."""

UNKNOWN_BYTES = 4 << 20
"""How large a message is taken to be before it is made, where none before it was larger."""
COPIES = 3
"""A message is held as a stored batch, as bytes, and by gRPC until the network has taken it."""

Pause: TypeAlias = Callable[[], object]
Streamed: TypeAlias = Any
"""A batch, a batch with its app_metadata, or a pause: nothing is held while that runs."""


@dataclass(frozen=True)
class StreamedRead:
    """One answer, to be streamed once."""

    what: str
    schema: pa.Schema
    batches: Iterator[Streamed]

    def serve(self, write: Callable[[bytes], None], budget: TokenBudget) -> None:
        """Sends the answer. Each batch is charged from before it is read until the network has taken it: an answer that
        is not read holds no more than that, and the next batch waits for it."""
        with answering(self.what):
            write(schema_message(self.schema))
            sent: int | Pause | None = 0
            while sent is not None:
                if callable(sent):
                    sent()
                    sent = 0
                with self._room(CHUNK_BYTES + COPIES * max(sent, UNKNOWN_BYTES), budget) as held:
                    sent = self._send_next(write, held)

    @contextmanager
    def _room(self, size: int, budget: TokenBudget) -> Iterator[Held]:
        """Raises `ServerUnavailable` where none came free: readers go on later where they were."""
        with ExitStack() as stack:
            try:
                held = stack.enter_context(budget.hold_most(size, self.what))
            except (QuotaExceeded, Overloaded) as error:
                raise ServerUnavailable(address="this server", what=self.what, reason=str(error)) from error
            yield held

    def _send_next(self, write: Callable[[bytes], None], held: Held) -> int | Pause | None:
        """The bytes that were sent, a pause to be made, or None at the end."""
        item = next(self.batches, None)
        if item is None or callable(item):
            return item
        batch, metadata = item if isinstance(item, tuple) else (item, b"")
        if batch.schema != self.schema:
            # A batch must not differ from what the stream announced; a reader may know fewer columns than there are.
            columns = [batch.column(name) for name in self.schema.names]
            batch = pa.RecordBatch.from_arrays(columns, schema=self.schema)
        message = batch_message(batch, metadata)
        del item, batch
        held.shrink_to(CHUNK_BYTES + COPIES * len(message))
        write(message)
        return len(message)


def open_read(
    store: EmbeddedStore, ticket: Ticket, budget: TokenBudget, is_cancelled: Callable[[], bool], packs: PackedReads
) -> StreamedRead:
    """The answer to this ticket."""
    table = find_planned(store, ticket.table, ticket.table_id, ticket.schema_id)
    schema, batches = _open(store, table, ticket, budget, is_cancelled, packs)
    return StreamedRead(f"{ticket.kind} read of {ticket.table}", schema, batches)


def _open(
    store: EmbeddedStore,
    table: TableInfo,
    ticket: Ticket,
    budget: TokenBudget,
    is_cancelled: Callable[[], bool],
    packs: PackedReads,
) -> tuple[pa.Schema, Iterator[Streamed]]:
    match ticket.kind:
        case Read.LOG:
            bucket, span = _bucket(ticket), ticket.range
            if span is None:
                raise InvalidRequest(what="log ticket", reason="the range is missing")

            def read(at: int) -> Iterator[pa.RecordBatch]:
                return store.read_log(table, bucket, at, span.stop, ticket.columns)

            what = (table.table_id, bucket, table.schema.schema_id, ticket.columns)
            return log_schema(table, ticket.columns), packs.read(what, span.start, span.stop, read)
        case Read.TAIL:
            return log_schema(table, ticket.columns), _tail(store, table, ticket, is_cancelled)
        case Read.SNAPSHOT:
            if ticket.snapshot_id is None:
                raise InvalidRequest(what="snapshot ticket", reason="the snapshot id is missing")
            snapshot = KvSnapshot(bucket=_bucket(ticket), snapshot_id=ticket.snapshot_id, log_offset=ticket.log_offset)
            return snapshot_schema(table, ticket.columns), iter(store.read_snapshot(table, snapshot, ticket.columns))
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
                for batch in packed(store.read_log(table, bucket, start, bounds.end, ticket.columns)):
                    has_rows = True
                    yield batch, header
                offsets[bucket] = bounds.end
        left_s = give_up_at - time.monotonic()
        if has_rows or left_s <= 0:
            return
        yield partial(store.wait_for, table, dict(offsets), min(left_s, POLL_S))


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
