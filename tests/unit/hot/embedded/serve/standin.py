# SPDX-License-Identifier: Apache-2.0
"""A store of lists in memory, of the shape that the Flight server wraps, and a server around it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import pyarrow as pa

from lakeward.client.client import Client
from lakeward.client.columns import parse_columns
from lakeward.client.options import ClientOptions
from lakeward.client.table import Table
from lakeward.errors import OffsetOutOfRange, OutOfSequence, TableNotFound
from lakeward.hot.embedded.log.appended import Appended, WriterSequence
from lakeward.hot.embedded.serve.budget import MemoryBudget
from lakeward.hot.embedded.serve.service import FlightService, TlsPair
from lakeward.model.bucket import Bucket
from lakeward.model.ids import new_table_id
from lakeward.model.schema import CHANGE_TYPE, OFFSET, TIMESTAMP, Schema
from lakeward.model.table import TableDescriptor, TableInfo, TablePath
from lakeward.protocol.auth import TokenSet
from lakeward.protocol.tables import ServerInfo
from lakeward.protocol.version import PROTOCOL
from lakeward.spi.hot import KvSnapshot, LogBounds


@dataclass
class StandInPut:
    """Stored, and on "disk" as soon as the store's `before_ack` returns."""

    store: StandInStore
    appended: Appended

    @property
    def is_ready(self) -> bool:
        return self.store.is_ready

    def wait(self) -> Appended:
        self.store.before_ack(self.appended)
        return self.appended


@dataclass
class StandInStore:
    """Appends to lists, with writers' sequences. `before_append` lets a test fail or hold a put, `before_ack` its
    acknowledgement.
    """

    tables: dict[TablePath, TableInfo] = field(default_factory=dict)
    logs: dict[Bucket, list[pa.RecordBatch]] = field(default_factory=dict)
    seen: dict[tuple[Bucket, int], dict[int, Appended]] = field(default_factory=dict)
    puts: int = 0
    released: list[str] = field(default_factory=list)
    before_append: Callable[[pa.RecordBatch], None] = lambda batch: None
    before_ack: Callable[[Appended], None] = lambda appended: None
    is_ready: bool = False
    changed: threading.Condition = field(default_factory=threading.Condition)

    def load_table(self, path: TablePath) -> TableInfo:
        if path not in self.tables:
            raise TableNotFound(table=str(path))
        return self.tables[path]

    def list_tables(self) -> Sequence[TablePath]:
        return list(self.tables)

    def begin_append(
        self, table: TableInfo, bucket: Bucket, batch: pa.RecordBatch, writer: WriterSequence | None = None
    ) -> StandInPut:
        return StandInPut(self, self.append(table, bucket, batch, writer))

    def append(
        self, table: TableInfo, bucket: Bucket, batch: pa.RecordBatch, writer: WriterSequence | None = None
    ) -> Appended:
        self.before_append(batch)
        with self.changed:
            self.puts += 1
            if writer is not None:
                done = self.seen.setdefault((bucket, writer.writer_id), {})
                if writer.sequence in done:
                    return done[writer.sequence]
                if writer.sequence != len(done):
                    raise OutOfSequence(
                        writer=str(writer.writer_id), bucket=str(bucket), got=writer.sequence, expected=len(done)
                    )
            start = self._end(bucket)
            appended = Appended(start, start + batch.num_rows, round(time.time() * 1000))
            if writer is not None:
                done[writer.sequence] = appended
            self.logs.setdefault(bucket, []).append(_stamped(batch, appended))
            self.changed.notify_all()
            return appended

    def begin_upsert(
        self,
        table: TableInfo,
        bucket: Bucket,
        batch: pa.RecordBatch,
        columns: Sequence[str] | None = None,
        writer: WriterSequence | None = None,
    ) -> StandInPut:
        raise NotImplementedError

    def begin_delete(
        self, table: TableInfo, bucket: Bucket, keys: pa.RecordBatch, writer: WriterSequence | None = None
    ) -> StandInPut:
        raise NotImplementedError

    def lookup(self, table: TableInfo, bucket: Bucket, keys: pa.RecordBatch) -> pa.RecordBatch:
        raise NotImplementedError

    def bounds(self, table: TableInfo, *, sync: bool = False) -> Mapping[Bucket, LogBounds]:
        return {
            Bucket("", n): LogBounds(start=0, end=self._end(Bucket("", n)))
            for n in range(table.descriptor.bucket_count)
        }

    def read_log(
        self, table: TableInfo, bucket: Bucket, start: int, stop: int, columns: Sequence[str] | None = None
    ) -> Iterator[pa.RecordBatch]:
        end = self._end(bucket)
        if stop > end:
            raise OffsetOutOfRange(table=str(table.path), bucket=str(bucket), offset=stop, start=0, end=end)
        for batch in self.logs.get(bucket, []):
            first = batch.column(OFFSET)[0].as_py()
            low, high = max(start, first), min(stop, first + batch.num_rows)
            if low < high:
                wanted = [*(columns if columns is not None else table.schema.names), OFFSET, TIMESTAMP, CHANGE_TYPE]
                yield batch.slice(low - first, high - low).select(wanted)

    def wait_for(self, table: TableInfo, offsets: Mapping[Bucket, int], timeout_s: float) -> bool:
        with self.changed:
            return self.changed.wait_for(lambda: any(self._end(b) > o for b, o in offsets.items()), timeout_s)

    def offset_at(self, table: TableInfo, bucket: Bucket, at_ms: int) -> int:
        return 0

    def partitions(self, table: TableInfo) -> Sequence[str]:
        return []

    def take_snapshot(self, table: TableInfo, bucket: Bucket, holder: str) -> KvSnapshot | None:
        return None

    def read_snapshot(
        self, table: TableInfo, snapshot: KvSnapshot, columns: Sequence[str] | None = None
    ) -> Iterator[pa.RecordBatch]:
        return iter(())

    def release_snapshots(self, table: TableInfo, holder: str) -> None:
        self.released.append(holder)

    def rows(self) -> list[dict[str, object]]:
        return [row for batches in self.logs.values() for batch in batches for row in batch.to_pylist()]

    def _end(self, bucket: Bucket) -> int:
        return sum(batch.num_rows for batch in self.logs.get(bucket, []))


def _stamped(batch: pa.RecordBatch, appended: Appended) -> pa.RecordBatch:
    count = batch.num_rows
    system = {
        OFFSET: pa.array(range(appended.start, appended.stop), pa.int64()),
        TIMESTAMP: pa.array([appended.timestamp_ms] * count, pa.timestamp("ms", tz="UTC")),
        CHANGE_TYPE: pa.array([0] * count, pa.int8()),
    }
    for name, values in system.items():
        batch = batch.append_column(name, values)
    return batch


class Served:
    """A stand-in store behind a real Flight server on loopback; clients get its address without HTTP."""

    def __init__(
        self,
        *,
        tokens: Sequence[str] = (),
        tls: TlsPair | None = None,
        budget: MemoryBudget | None = None,
        store: StandInStore | None = None,
    ) -> None:
        self.store = store or StandInStore()
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
        **more: int,
    ) -> Table:
        descriptor = TableDescriptor(schema=Schema(columns=parse_columns(columns)), bucket_count=more.get("buckets", 1))
        path = TablePath.parse(name)
        info = self.store.tables.setdefault(path, TableInfo(path=path, table_id=new_table_id(), descriptor=descriptor))
        self.tables.append(Table(client or self.client(), info))
        return self.tables[-1]

    def close(self) -> None:
        """Streams first: the server's own end waits for them."""
        for table in self.tables:
            table.close()
            table.client.close()
        self.service.shutdown()


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
