# SPDX-License-Identifier: Apache-2.0
"""A table to write to and read from."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lakeward.client.asyncwriter import AsyncWriter
from lakeward.client.group import join_group
from lakeward.client.lookup import look_up
from lakeward.client.naming import with_extra
from lakeward.client.routing import MAX_BATCH_BYTES, Router
from lakeward.client.rows import fit_rows, split_given
from lakeward.client.sender import PutSender
from lakeward.client.show import show_table
from lakeward.client.subscription import Start, Subscription
from lakeward.client.writer import BufferedWriter
from lakeward.errors import InvalidRows, SchemaChanged
from lakeward.hot.embedded.remote.failure import doing
from lakeward.hot.embedded.remote.shapes import check_put, log_schema
from lakeward.model import Bucket, OffsetMap, SystemClock, TableInfo, of_table
from lakeward.protocol.flight import PutAck, PutKind
from lakeward.protocol.readplan import WriteToken
from lakeward.spi import LogBounds

if TYPE_CHECKING:
    from lakeward.client.client import Client
    from lakeward.read.changes import Point
    from lakeward.read.result import ReadResult

Columns = tuple[str, ...] | None


class Table:
    """Threads may share it: writes of one kind go one after the other. `info` is the table as it was when asked for."""

    def __init__(
        self, client: Client, info: TableInfo, *, warnings: Sequence[str] = (), plan: Sequence[str] = ()
    ) -> None:
        """`plan`: description of the effects of the ALTER that returned this table."""
        self.client, self.info, self.warnings, self.plan = client, info, tuple(warnings), tuple(plan)
        self.router = Router(info)
        self._lock = threading.Lock()
        self._senders: dict[tuple[PutKind, Columns], PutSender] = {}

    def __repr__(self) -> str:
        """Asks the server once, briefly: schema, freshness and lag."""
        return show_table(self)

    @property
    def path(self) -> str:
        return str(self.info.path)

    def append(self, rows: Any) -> WriteToken:
        """Adds rows to a log table; they are durable when this returns.

        `rows`: Arrow tables, batches, readers, anything with `__arrow_c_stream__` (polars, DuckDB, pandas), dicts,
        dataclass or Pydantic instances, one or a list of them. Raises `InvalidRows` before anything is stored."""
        return self._put(PutKind.APPEND, rows, None)

    def upsert(self, rows: Any, columns: Iterable[str] | None = None, *, replace: bool = False) -> WriteToken:
        """Inserts rows, or updates them by primary key. Columns that a row does not give stay as they are on a row that
        is there, and are NULL on a new one.

        `columns` names those that are set whatever rows give; `replace` writes whole rows: what is not given becomes
        NULL.

        Rows are checked before the first is sent: a value that does not fit is `InvalidRows`, and nothing is stored.
        What only the server can see (a new key without a value for a NOT NULL column) it refuses batch by batch:
        batches before that one are stored then."""
        return self._put(PutKind.UPSERT, rows, None if columns is None else tuple(columns), replace=replace)

    def delete(self, keys: Any) -> WriteToken:
        """Deletes rows by primary key; `keys` holds the key columns. Absent keys are no error."""
        return self._put(PutKind.DELETE, keys, None)

    def lookup(self, keys: Any) -> pa.Table:
        """The rows of these primary keys as they are now, in the order of the keys; keys without a row are left out."""
        return look_up(self, fit_rows(keys, self.info, self.info.descriptor.primary_key))

    def scan(
        self,
        bucket: int | Bucket = 0,
        start: int | None = None,
        stop: int | None = None,
        columns: Sequence[str] | None = None,
    ) -> pa.Table:
        """Records `[start, stop)` of one bucket's log, with the system columns; by default all there is.
        `__change_type` is a number here, as the log stores it (`ChangeType`)."""
        named = bucket if isinstance(bucket, Bucket) else Bucket("", bucket)
        bounds = self.bounds().get(named, LogBounds(start=0, end=0))
        begin, end = bounds.start if start is None else start, bounds.end if stop is None else stop
        try:
            return self._read(self.info, named, begin, end, columns)
        except SchemaChanged:
            # A column was added since this table was asked for; what is read has it, what is written here goes on
            # without.
            return self._read(self.client.show_table(self.path), named, begin, end, columns)

    def subscribe(
        self,
        start: Start = "earliest",
        *,
        columns: Sequence[str] | None = None,
        idle_s: float | None = None,
    ) -> Subscription:
        """New rows of all buckets as they come: an iterator of record batches. `start`: `"earliest"`, `"latest"`, an
        `OffsetMap`, a `WriteToken` or a `datetime`. It ends after `idle_s` without a row; None: never."""
        return Subscription(self.client.plugin, self.info, start, columns=columns, idle_s=idle_s)

    consumer = join_group

    def bounds(self) -> Mapping[Bucket, LogBounds]:
        """Per bucket the offsets there are now, everything acknowledged included."""
        return self.client.store.freeze(self.info)

    def partitions(self) -> list[str]:
        return list(self.client.store.partitions(self.info))

    def writer(self, **options: Any) -> BufferedWriter:
        """A writer that gathers rows and sends them in the background; see `BufferedWriter` for its options."""
        # asked once, now: later the server may be away for a while, and rows are kept until it is back
        self.client.server.info()
        return BufferedWriter(self, **options)

    def async_writer(self, **options: Any) -> AsyncWriter:
        """The same for asyncio."""
        return AsyncWriter(self.writer(**options))

    def read(self, **options: Any) -> Any:
        """A union read: the lake's history plus the hot tail, as Arrow. See `lakeward.read.arrow`."""
        what = f"a read of {self.path}"
        with with_extra(what):
            from lakeward.read.arrow import read, request_of

        request = replace(request_of(self.path, **options), lease_s=self.client.options.read_lease_s)
        with doing(what), of_table(self.path), with_extra(what):
            self.client.server.info()  # once: it says where the catalog is that takes our token too
            return read(self.client.plugin, request)

    def changes(
        self,
        since: Point = "earliest",
        until: Point | None = None,
        *,
        columns: Sequence[str] | None = None,
    ) -> ReadResult:
        """Every change from a place on, in order per bucket, each once: `__change_type` says what happened, with
        `__bucket`, `__offset` and `__timestamp`. A place is a moment, how long ago (`"1 h"`, a timedelta), an
        `OffsetMap`, a `WriteToken`, the id of a lake snapshot, `"earliest"` or `"latest"`; `until` is not in it, and
        now if None. Raises `HistoryGone` for what is kept nowhere, with the earliest that is."""
        what = f"changes of {self.path}"
        with with_extra(what):
            from lakeward.read.changes import ChangeRequest, read_changes

        request = ChangeRequest(
            path=self.info.path,
            since=since,
            until=until,
            columns=None if columns is None else tuple(columns),
            lease_s=self.client.options.read_lease_s,
        )
        with doing(what), of_table(self.path), with_extra(what):
            self.client.server.info()
            return read_changes(self.client.plugin, request, SystemClock().now_ms())

    def names_of(self, kind: PutKind, columns: Columns) -> Sequence[str]:
        """The columns that rows of such a put have."""
        if kind is PutKind.DELETE:
            return self.info.descriptor.primary_key
        return self.info.schema.names if columns is None else columns

    def fit(self, kind: PutKind, rows: Any, columns: Columns) -> pa.Table:
        """The rows as the table's Arrow columns. Raises `InvalidRows`, and `InvalidRequest` for a put that the table
        cannot take.
        """
        check_put(self.info, kind, columns)
        with of_table(self.path):
            return fit_rows(rows, self.info, self.names_of(kind, columns))

    def route(self, rows: pa.Table) -> Iterator[tuple[Bucket, pa.RecordBatch]]:
        """Fitted rows as batches for their buckets, well below what the server takes at once."""
        return self.router.route(rows, min(MAX_BATCH_BYTES, self.client.server.info().max_batch_bytes // 2))

    def new_sender(self, kind: PutKind, columns: Columns) -> PutSender:
        return PutSender(self.client.store.connection, self.info, kind, columns)

    def token(self, acks: Iterable[tuple[Bucket, PutAck]]) -> WriteToken:
        stops: dict[Bucket, int] = {}
        for bucket, ack in acks:
            stops[bucket] = max(stops.get(bucket, 0), ack.stop)
        return WriteToken(table_id=self.info.table_id, offsets=OffsetMap(stops))

    def close(self) -> None:
        """Ends the put streams. The table can be used again afterwards."""
        with self._lock:
            for sender in self._senders.values():
                sender.close()
            self._senders.clear()

    def _read(self, info: TableInfo, bucket: Bucket, start: int, stop: int, columns: Sequence[str] | None) -> pa.Table:
        batches = list(self.client.store.read_log(info, bucket, start, stop, columns))
        return pa.Table.from_batches(batches, schema=log_schema(info, None if columns is None else tuple(columns)))

    def fit_given(
        self, kind: PutKind, rows: Any, columns: Columns, *, replace: bool = False
    ) -> list[tuple[Columns, pa.Table]]:
        """All rows fitted, in runs that set the same columns. Raises as `fit`, with the row's place among all."""
        if kind is not PutKind.UPSERT or columns is not None or replace:
            return [(columns, self.fit(kind, rows, columns))]
        fitted: list[tuple[Columns, pa.Table]] = []
        for part in split_given(rows, self.info):
            try:
                fitted.append((part.columns, self.fit(kind, part.rows, part.columns)))
            except InvalidRows as error:
                raise error.at_row(part.start + error.row) from None
        return fitted

    def _put(self, kind: PutKind, rows: Any, columns: Columns, *, replace: bool = False) -> WriteToken:
        fitted = self.fit_given(kind, rows, columns, replace=replace)
        runs = [(given, list(self.route(part))) for given, part in fitted]
        with self._lock:
            return self.token(ack for given, batches in runs for ack in self._sender(kind, given).send(batches))

    def _sender(self, kind: PutKind, columns: Columns) -> PutSender:
        sender = self._senders.get((kind, columns))
        return sender or self._senders.setdefault((kind, columns), self.new_sender(kind, columns))
