# SPDX-License-Identifier: Apache-2.0
"""A store whose puts a test can hold, and a Flight server around it."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from lakeward.client.client import Client
from lakeward.client.columns import parse_columns
from lakeward.client.options import ClientOptions
from lakeward.client.table import Table
from lakeward.errors import InvalidRequest
from lakeward.hot.embedded.log.writers import Appended, WriterSequence
from lakeward.hot.embedded.options import StoreOptions
from lakeward.hot.embedded.serve.budget import MemoryBudget
from lakeward.hot.embedded.serve.grpcserver import TlsPair
from lakeward.hot.embedded.serve.service import FlightService
from lakeward.hot.embedded.services import StoreServices
from lakeward.hot.embedded.store import EmbeddedStore
from lakeward.hot.embedded.storerows import PendingAppend
from lakeward.model import Bucket, Schema, TableDescriptor, TableInfo, TablePath, new_table_id
from lakeward.protocol.auth import TokenSet
from lakeward.protocol.routes import PROTOCOL
from lakeward.protocol.tables import ServerInfo
from lakeward.spi import KvSnapshot


@dataclass(frozen=True)
class HeldAppend(PendingAppend):
    """Not ready before the store says so, and held by its `before_ack`."""

    store: HeldStore

    @property
    def is_ready(self) -> bool:
        return self.store.is_ready

    def wait(self) -> Appended:
        self.store.before_ack(self.appended)
        return super().wait()


class HeldStore(EmbeddedStore):
    """`before_append` lets a test fail or hold a put, `after_append` its way back, `before_ack` its acknowledgement."""

    def __init__(self, services: StoreServices) -> None:
        super().__init__(services)
        self.before_append: Callable[[pa.RecordBatch], None] = lambda batch: None
        self.after_append: Callable[[], None] = lambda: None
        self.before_ack: Callable[[Appended], None] = lambda appended: None
        self.before_list: Callable[[], None] = lambda: None
        self.is_ready = False
        self.puts, self.writers, self.ages_ms = 0, set[int](), list[int]()
        self.released: list[str] = []
        self.asked_at_once: list[int] = []
        self.is_old = False
        """Knows no call for many KV snapshots."""

        self.changed = threading.Condition()
        self._rows: list[dict[str, object]] = []

    def begin_append(
        self, table: TableInfo, bucket: Bucket, batch: pa.RecordBatch, writer: WriterSequence | None = None
    ) -> HeldAppend:
        self.before_append(batch)
        pending = super().begin_append(table, bucket, batch, writer)
        with self.changed:
            self.puts += 1
            self.writers |= set() if writer is None else {writer.writer_id}
            self.ages_ms.append(0 if writer is None else writer.age_ms)
            self.changed.notify_all()
        self.after_append()
        return HeldAppend(pending.log, pending.appended, self)

    def list_tables(self) -> Sequence[TablePath]:
        self.before_list()
        return super().list_tables()

    def take_snapshots(self, table: TableInfo, buckets: Sequence[Bucket], holder: str) -> dict[Bucket, KvSnapshot]:
        self.asked_at_once.append(len(buckets))
        if self.is_old:
            raise InvalidRequest(what="action 'take-snapshots'", reason="there are others")
        return super().take_snapshots(table, buckets, holder)

    def release_snapshots(self, table: TableInfo, holder: str) -> None:
        self.released.append(holder)
        super().release_snapshots(table, holder)

    def rows(self) -> list[dict[str, object]]:
        """Of all tables; after the end, those that were there then."""
        if not self._closed:
            self._rows = [
                row
                for table in self.load_tables()
                for bucket, bounds in self.freeze(table).items()
                for batch in self.read_log(table, bucket, bounds.start, bounds.end)
                for row in batch.to_pylist()
            ]
        return self._rows

    def close(self) -> None:
        self.rows()
        super().close()


@contextmanager
def held_store() -> Iterator[HeldStore]:
    with tempfile.TemporaryDirectory() as folder:
        store = HeldStore.open(Path(folder), StoreOptions.with_settings({"server.disk.reserve": "0"}))
        try:
            yield store
        finally:
            store.close()


class Served:
    """A store behind a real Flight server on loopback; clients get its address without HTTP."""

    def __init__(
        self,
        *,
        tokens: Sequence[str] = (),
        tls: TlsPair | None = None,
        budget: MemoryBudget | None = None,
    ) -> None:
        self._ends = ExitStack()
        self.store = self._ends.enter_context(held_store())
        self.service = FlightService(self.store, TokenSet.parse(tokens), tls=tls, budget=budget)
        self.port = self.service.port
        self.tables: list[Table] = []

    def client(self, *, port: int | None = None, token: str | None = None, retry_s: float = 20.0) -> Client:
        return client_at(port or self.port, token=token, retry_s=retry_s)

    def table(
        self,
        name: str = "d.t",
        columns: str = "id BIGINT NOT NULL, name STRING",
        *,
        client: Client | None = None,
        primary_key: tuple[str, ...] = (),
        **more: int,
    ) -> Table:
        path = TablePath.parse(name)
        if path not in self.store.list_tables():
            schema = Schema(columns=parse_columns(columns))
            descriptor = TableDescriptor(schema=schema, primary_key=primary_key, bucket_count=more.get("buckets", 1))
            self.store.create_table(TableInfo(path=path, table_id=new_table_id(), descriptor=descriptor))
        self.tables.append(Table(client or self.client(), self.store.load_table(path)))
        return self.tables[-1]

    def close(self) -> None:
        """Streams first: the server's own end waits for them."""
        for table in self.tables:
            table.close()
            table.client.close()
        self.service.shutdown()
        self._ends.close()


@contextmanager
def serving(**options: object) -> Iterator[Served]:
    served = Served(**options)  # type: ignore[arg-type]
    try:
        yield served
    finally:
        served.close()


def client_at(port: int, *, token: str | None = None, retry_s: float = 20.0) -> Client:
    """A client that knows where Flight listens without asking over HTTP."""
    client = Client("http://127.0.0.1:1", options=ClientOptions(token=token, retry_s=retry_s))
    info = ServerInfo(
        version="t", protocol=PROTOCOL, flight_uri=f"grpc://127.0.0.1:{port}", server_id="s", coordinator_epoch=1
    )
    client.server.info = lambda *, fresh=False: info  # type: ignore[method-assign]
    return client
