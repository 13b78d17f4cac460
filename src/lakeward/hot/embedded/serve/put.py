# SPDX-License-Identifier: Apache-2.0
"""The server's side of `do_put`: one stream of batches for one table, each acknowledged with its offsets.

Rows are not touched here: a batch goes from gRPC's buffers to the store as it came.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import ExitStack

import pyarrow as pa

from lakeward.errors import InvalidRequest
from lakeward.hot.embedded.ipcheader import MALFORMED, read_layout
from lakeward.hot.embedded.log.writers import WriterSequence
from lakeward.hot.embedded.serve.acks import Acknowledger
from lakeward.hot.embedded.serve.budget import TokenBudget
from lakeward.hot.embedded.serve.declared import unpacked_bytes
from lakeward.hot.embedded.serve.drain import CallDrain
from lakeward.hot.embedded.serve.flightdata import FlightData, read_batch, read_flight_data
from lakeward.hot.embedded.serve.putcheck import check_put_schema
from lakeward.hot.embedded.serve.tables import find_planned
from lakeward.hot.embedded.store import EmbeddedStore
from lakeward.hot.embedded.storerows import PendingAppend
from lakeward.model import Bucket
from lakeward.protocol.flight import BatchHeader, PutCommand, PutKind, from_bytes


class PutStream:
    """Serves one stream to its end. A batch that is refused ends the stream with the error; earlier batches stay
    stored.
    """

    def __init__(
        self,
        store: EmbeddedStore,
        gate: CallDrain,
        budget: TokenBudget,
        command: PutCommand,
        sent: pa.Schema,
        begin_writer: Callable[[], None],
    ) -> None:
        """`begin_writer` counts a writer's first put to a bucket, and refuses it."""
        self.store, self.gate, self.budget, self.command = store, gate, budget, command
        self.begin_writer, self.sent = begin_writer, sent
        self.table = find_planned(store, command.table, command.table_id, command.schema_id)
        check_put_schema(self.table, command, sent)
        self.what = f"{command.kind} to {command.table}"

    def serve(self, messages: Iterable[bytes], write: Callable[[bytes], None]) -> None:
        with Acknowledger(write) as acks:
            for message in messages:
                self._take(message, acks)
                del message  # an idle stream holds none

    def _take(self, message: bytes, acks: Acknowledger) -> None:
        data = read_flight_data(message, self.what)
        with ExitStack() as inside:
            inside.enter_context(self.gate.inside())
            with self.budget.hold(self._size(data), self.what):
                batch = read_batch(data, self.sent)
                batch.validate(full=True)  # peers are not trusted: nothing malformed is ever stored
                header = from_bytes(BatchHeader, bytes(data.metadata))
                put = self._store(header.bucket, batch, self._writer(header))
            acks.add(put, inside.pop_all().close)

    def _size(self, data: FlightData) -> int:
        """Size of the batch once it is unpacked, as its buffers announce it. Raises `InvalidRequest`."""
        try:
            layout = read_layout(bytes(data.header)) if data.header else None
            if layout is None or not data.metadata:
                reason = "every message is a batch with a header in its app_metadata"
                raise InvalidRequest(what=self.what, reason=reason)
            return unpacked_bytes(layout, data.body)
        except MALFORMED as error:
            raise InvalidRequest(what=self.what, reason=f"malformed Arrow data: {error}") from error

    def _writer(self, header: BatchHeader) -> WriterSequence | None:
        if self.command.writer is None or header.sequence is None:
            return None
        if header.sequence == 0:
            self.begin_writer()
        return WriterSequence(writer_id=self.command.writer, sequence=header.sequence, age_ms=header.age_ms)

    def _store(self, bucket: Bucket, batch: pa.RecordBatch, writer: WriterSequence | None) -> PendingAppend:
        match self.command.kind:
            case PutKind.APPEND:
                return self.store.begin_append(self.table, bucket, batch, writer)
            case PutKind.UPSERT:
                return self.store.begin_upsert(self.table, bucket, batch, self.command.columns, writer)
            case PutKind.DELETE:
                return self.store.begin_delete(self.table, bucket, batch, writer)
