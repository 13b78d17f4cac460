# SPDX-License-Identifier: Apache-2.0
"""The embedded hot store as jobs and readers reach it: `spi.hot.HotStore` over Flight."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from lakeward.errors import InvalidRequest, ServerUnavailable
from lakeward.hot.embedded.remote.connection import Backoff, FlightConnection
from lakeward.hot.embedded.remote.http import ServerConnection
from lakeward.model import Bucket, CutEnds, Schema, TableInfo, TablePath
from lakeward.protocol.codec import decode
from lakeward.protocol.flight import MOST_SNAPSHOTS, Act, ActionRequest, Read, Ticket, log_ticket
from lakeward.spi import FrozenTable, HotStore, KvSnapshot, LogBounds, read_on


class EmbeddedStoreClient(HotStore):
    """Connects on first use. Calls are retried while the server cannot be reached; a log read goes on where
    it broke.
    """

    has_prev_offset = True

    def __init__(self, server: ServerConnection, *, retry_s: float = 60.0) -> None:
        self.connection = FlightConnection(server, retry_s=retry_s)

    def load_table(self, path: TablePath) -> TableInfo:
        return TableInfo.from_json(self.connection.act(Act.LOAD_TABLE, ActionRequest(table=path))["table"])

    def schemas(self, table: TableInfo) -> Sequence[Schema]:
        return [Schema.from_json(body) for body in self._act(Act.SCHEMAS, table)["schemas"]]

    def list_tables(self) -> Sequence[TablePath]:
        return [TablePath.parse(text) for text in self.connection.act(Act.LIST_TABLES, ActionRequest())["tables"]]

    def freeze(self, table: TableInfo) -> Mapping[Bucket, LogBounds]:
        return self._bounds(Act.FREEZE, table)

    def freeze_table(self, path: TablePath) -> FrozenTable:
        """One call; a server that does not yet send the table with the bounds is asked for it."""
        answer = self.connection.act(Act.FREEZE, ActionRequest(table=path))
        table = TableInfo.from_json(answer["table"]) if "table" in answer else self.load_table(path)
        cuts = tuple(decode(CutEnds, body) for body in answer.get("cuts", ()))
        return FrozenTable(table=table, bounds=_bounds_of(answer), cuts=cuts)

    def bounds(self, table: TableInfo) -> Mapping[Bucket, LogBounds]:
        """Like `freeze`, without forcing anything to disk."""
        return self._bounds(Act.BOUNDS, table)

    def offset_at(self, table: TableInfo, bucket: Bucket, at_ms: int) -> int:
        """The first offset whose record is as young as `at_ms`; the log's end when there is none."""
        return int(self._act(Act.OFFSET_AT, table, bucket=bucket, at_ms=at_ms)["offset"])

    def partitions(self, table: TableInfo) -> Sequence[str]:
        return list(self._act(Act.PARTITIONS, table)["partitions"])

    def read_log(
        self, table: TableInfo, bucket: Bucket, start: int, stop: int, columns: Sequence[str] | None = None
    ) -> Iterator[pa.RecordBatch]:
        def read(at: int) -> Iterator[pa.RecordBatch]:
            return (batch for batch, _ in self.connection.stream(log_ticket(table, bucket, at, stop, columns)))

        return read_on(read, start, Backoff(self.connection.retry_s), ServerUnavailable)

    def read_tail(self, ticket: Ticket) -> Iterator[tuple[Bucket, pa.RecordBatch]]:
        """One attempt at a tail read; the caller keeps the offsets and asks again."""
        for batch, header in self.connection.stream(ticket):
            yield Bucket.parse(header.decode()), batch

    def take_snapshot(self, table: TableInfo, bucket: Bucket, holder: str) -> KvSnapshot | None:
        body = self._act(Act.TAKE_SNAPSHOT, table, bucket=bucket, holder=holder)["snapshot"]
        return None if body is None else decode(KvSnapshot, body)

    def take_snapshots(self, table: TableInfo, buckets: Sequence[Bucket], holder: str) -> dict[Bucket, KvSnapshot]:
        """One call for many buckets; one for each with a server from before 0.2, which does not know the action."""
        taken: dict[Bucket, KvSnapshot] = {}
        for at in range(0, len(buckets), MOST_SNAPSHOTS):
            some = tuple(buckets[at : at + MOST_SNAPSHOTS])
            try:
                body = self._act(Act.TAKE_SNAPSHOTS, table, buckets=some, holder=holder)["snapshots"]
            except InvalidRequest:
                return taken | super().take_snapshots(table, buckets[at:], holder)
            taken |= {s.bucket: s for s in (decode(KvSnapshot, one) for one in body)}
        return taken

    def read_snapshot(
        self, table: TableInfo, snapshot: KvSnapshot, columns: Sequence[str] | None = None
    ) -> Iterator[pa.RecordBatch]:
        at = {"bucket": snapshot.bucket, "snapshot_id": snapshot.snapshot_id, "log_offset": snapshot.log_offset}
        ticket = Ticket.of(Read.SNAPSHOT, table, columns, **at)
        for batch, _ in self.connection.stream(ticket):
            yield batch

    def release_snapshots(self, table: TableInfo, holder: str) -> None:
        self._act(Act.RELEASE_SNAPSHOTS, table, holder=holder)

    def close(self) -> None:
        self.connection.close()

    def _act(
        self,
        action: Act,
        table: TableInfo,
        *,
        bucket: Bucket | None = None,
        buckets: tuple[Bucket, ...] = (),
        at_ms: int = 0,
        holder: str = "",
    ) -> Any:
        request = ActionRequest(
            table=table.path, table_id=table.table_id, bucket=bucket, buckets=buckets, at_ms=at_ms, holder=holder
        )
        return self.connection.act(action, request)

    def _bounds(self, action: Act, table: TableInfo) -> Mapping[Bucket, LogBounds]:
        return _bounds_of(self._act(action, table))


def _bounds_of(answer: Mapping[str, Any]) -> dict[Bucket, LogBounds]:
    return {Bucket.parse(bucket): decode(LogBounds, body) for bucket, body in answer["bounds"].items()}
