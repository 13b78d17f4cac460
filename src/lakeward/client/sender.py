# SPDX-License-Identifier: Apache-2.0
"""The client's side of `do_put`: sends batches in order, several under way, and again with the same sequence after a
break.
"""

from __future__ import annotations

import secrets
import time
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.flight as flight

from lakeward.errors import InvalidInput, LakewardError, ServerUnavailable, from_wire
from lakeward.hot.embedded.remote.connection import Backoff, FlightConnection
from lakeward.hot.embedded.remote.failure import calling, doing
from lakeward.hot.embedded.remote.shapes import row_schema
from lakeward.model import Bucket, TableInfo
from lakeward.protocol.flight import MAX_UNDER_WAY, BatchHeader, PutAck, PutCommand, PutKind, from_bytes, to_bytes

SEQUENCES = 2**31


@dataclass
class Outgoing:
    """A batch for a bucket. `sequence` is given when it is first sent, unless the caller numbers its own, and stays;
    `sent_at` (monotonic) likewise; `done` hears its acknowledgement."""

    bucket: Bucket
    batch: pa.RecordBatch
    done: Callable[[PutAck], None]
    sequence: int | None = None
    sent_at: float | None = None

    def header(self) -> BatchHeader:
        now = time.monotonic()
        self.sent_at = now if self.sent_at is None else self.sent_at
        return BatchHeader(bucket=self.bucket, sequence=self.sequence, age_ms=int(1_000 * (now - self.sent_at)))


class PutSender:
    """One table, one kind of put, one set of columns. Not for several threads at once."""

    def __init__(
        self,
        connection: FlightConnection,
        table: TableInfo,
        kind: PutKind,
        columns: tuple[str, ...] | None = None,
        *,
        writer: int | None = None,
    ) -> None:
        """`writer` names the writer across processes: sending the same batches again under this name adds nothing."""
        self.connection, self.table, self.kind, self.columns = connection, table, kind, columns
        self._stream: _Stream | None = None
        self._window = 1
        self._start_writer()
        if writer is not None:
            self._writer = writer

    def send(self, batches: Iterable[tuple[Bucket, pa.RecordBatch]]) -> list[tuple[Bucket, PutAck]]:
        """Stores all and returns their acknowledgements. Raises what `drive` raises, saying what was stored before."""
        acks: list[tuple[Bucket, PutAck]] = []
        stored_rows = 0

        def outgoing(bucket: Bucket, batch: pa.RecordBatch) -> Outgoing:
            def done(ack: PutAck) -> None:
                nonlocal stored_rows
                stored_rows += batch.num_rows
                acks.append((bucket, ack))

            return Outgoing(bucket, batch, done)

        source = (outgoing(bucket, batch) for bucket, batch in batches)
        try:
            self.drive(lambda: next(source, None))
        except LakewardError as error:
            if stored_rows:
                stored_text = f"{stored_rows:,} rows of this {self.kind} to {self.table.path} are stored"
                error.add_note(
                    f"{stored_text}, no others" if isinstance(error, InvalidInput) else f"at least {stored_text}"
                )
            raise
        return acks

    def drive(self, take: Callable[[], Outgoing | None]) -> None:
        """Sends what `take` gives until it gives None and all is acknowledged.

        A broken connection and retryable refusals are tried again, for as long as the connection retries. Any other
        error is raised: what was not acknowledged by then may or may not be stored, and later batches go under a new
        writer."""
        unacked: deque[Outgoing] = deque()
        backoff = Backoff(self.connection.retry_s)
        while True:
            try:
                with doing(f"{self.kind} to {self.table.path}"):
                    self._pump(take, unacked, backoff)
                return
            except LakewardError as error:
                if isinstance(error, InvalidInput):
                    self._hear_rest(unacked)
                self._drop_stream()
                try:
                    backoff.pause(error)
                except LakewardError:
                    self._start_writer()
                    raise

    def close(self) -> None:
        self._drop_stream()

    def _hear_rest(self, unacked: deque[Outgoing]) -> None:
        """A refused batch ends the stream once all before it are acknowledged: what is heard until then is stored, and
        nothing else."""
        with suppress(LakewardError):
            while unacked and self._stream is not None:
                ack = self._stream.read_ack()
                unacked.popleft().done(ack)

    def _pump(self, take: Callable[[], Outgoing | None], unacked: deque[Outgoing], backoff: Backoff) -> None:
        """Sends unacknowledged batches first. A new stream begins with one batch in flight and doubles with each
        acknowledgement, so that a connection that breaks again and again still makes progress."""
        stream, under_way = self._open(), 0
        while True:
            while under_way < self._window:
                if under_way == len(unacked):
                    item = take()
                    if item is None:
                        break
                    self._number(item)
                    unacked.append(item)
                stream.write(unacked[under_way])
                under_way += 1
            if not unacked:
                return
            ack = stream.read_ack()
            unacked.popleft().done(ack)
            under_way -= 1
            self._window = min(MAX_UNDER_WAY, 2 * self._window)
            backoff.progress()

    def _open(self) -> _Stream:
        if self._stream is None:
            self._window = 1
            self._stream = _Stream(self.connection, self._command(), self._schema())
        return self._stream

    def _command(self) -> PutCommand:
        return PutCommand(
            table=self.table.path,
            table_id=self.table.table_id,
            kind=self.kind,
            schema_id=self.table.schema.schema_id,
            writer=self._writer,
            columns=self.columns,
        )

    def _schema(self) -> pa.Schema:
        names = self.table.descriptor.primary_key if self.kind is PutKind.DELETE else self.columns
        return row_schema(self.table, names)

    def _number(self, item: Outgoing) -> None:
        if item.sequence is None:
            item.sequence = self._next.get(item.bucket, 0)
        self._next[item.bucket] = (item.sequence + 1) % SEQUENCES

    def _start_writer(self, writer: int | None = None) -> None:
        self._writer = secrets.randbits(63) if writer is None else writer
        self._next: dict[Bucket, int] = {}

    def _drop_stream(self) -> None:
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.abandon()


class _Stream:
    """One `do_put` call."""

    def __init__(self, connection: FlightConnection, command: PutCommand, schema: pa.Schema) -> None:
        self.connection = connection
        self.client = connection.client()
        descriptor = flight.FlightDescriptor.for_command(to_bytes(command))
        self.writer, self.reader = self._guard(lambda: self.client.do_put(descriptor, schema, connection.options()))

    def write(self, item: Outgoing) -> None:
        header = to_bytes(item.header())
        self._guard(lambda: self.writer.write_with_metadata(item.batch, header))

    def read_ack(self) -> PutAck:
        raw = self._guard(self.reader.read)
        if raw is None:
            self._guard(self.writer.close)
            raise ServerUnavailable(address=self.connection.address, reason="the put stream ended early")
        ack = from_bytes(PutAck, raw.to_pybytes())
        if ack.error is not None:
            raise from_wire(ack.error)
        return ack

    def abandon(self) -> None:
        with suppress(flight.FlightError, pa.ArrowException, OSError):
            self.writer.close()

    def _guard(self, call: Callable[[], Any]) -> Any:
        try:
            with calling(self.connection.address):
                return call()
        except ServerUnavailable:
            self.connection.reset(self.client)
            raise
