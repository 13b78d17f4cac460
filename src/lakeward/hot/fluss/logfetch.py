# SPDX-License-Identifier: Apache-2.0
"""Reads a range of one bucket's log: FetchLog from its leader, one request ahead of the reader; remote segments from
storage.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from lakeward.errors import ClusterUnavailable, LakewardError, OffsetOutOfRange, SchemaChanged, ServerUnavailable
from lakeward.hot.fluss.failures import Code, fluss_code_of, to_error
from lakeward.hot.fluss.kv.rowbatch import BatchShaper, log_schema
from lakeward.hot.fluss.wire.connection import PendingCall
from lakeward.hot.fluss.wire.messages import CLIENT, FETCH_LOG, Message
from lakeward.hot.fluss.wire.remotefiles import read_batches, segment_path, split_batches
from lakeward.hot.fluss.wire.servers import FlussServers, LogBucket
from lakeward.hot.logbatch.codec import check_crc
from lakeward.hot.logbatch.header import LogBatchHeader, read_header
from lakeward.model import Column, TableInfo

FETCH_BYTES = 8 * 1024 * 1024
WAIT_MS = 500
IDLE_ANSWERS = 20
"""So many answers without a batch, 500 ms each, below a stop that the server itself named: something is wrong, say so.
"""

Columns = Callable[[int], Sequence[Column]]
"""Schema id -> the columns of that schema, as the log has them."""


@dataclass(frozen=True, kw_only=True)
class LogFetch:
    """One read of `[start, stop)`. `columns` None: all of the table's. `pushdown`: columns that the server is asked
    for.
    """

    servers: FlussServers
    table: TableInfo
    path: Message
    bucket: LogBucket
    columns: Sequence[str] | None
    schemas: Columns

    def batches(self, start: int, stop: int) -> Iterator[pa.RecordBatch]:
        """Raises `OffsetOutOfRange`, `SchemaChanged`, `ServerUnavailable`."""
        shaper, at, idle = BatchShaper(self.table.schema, self.columns), start, 0
        pending = self._send_ahead(at, stop)
        while at < stop:
            answer, before = self._answer(pending, at), at
            if "remote" in answer:
                for header, data in self._remote(answer["remote"], at, stop):
                    yield from self._rows(shaper, header, data, at, stop, projected=False)
                    at = header.next_offset
                pending = self._send_ahead(at, stop)
            else:
                parsed = self._parse(answer)
                pending = self._send_ahead(
                    parsed[-1][0].next_offset if parsed else at, stop
                )  # on its way while the rows are worked on
                for header, data in parsed:
                    if header.base_offset < stop and header.next_offset > at:
                        yield from self._rows(shaper, header, data, at, stop, projected=self._pushed is not None)
                    at = max(at, header.next_offset)
            idle = idle + 1 if at == before else 0
            if idle > IDLE_ANSWERS:
                raise ClusterUnavailable(
                    address=self.servers.bootstrap, reason=f"Fluss: bucket {self.bucket} gives nothing at offset {at}"
                )

    # ---- requests --------------------------------------------------------------------------------------------------
    def _send(self, offset: int) -> PendingCall:
        table: Message = {
            "table_id": self.bucket.table_id,
            "is_projected": 0 if self._pushed is None else 1,
            "columns": self._pushed,
            "buckets": [
                {
                    "partition_id": self.bucket.partition_id,
                    "bucket": self.bucket.number,
                    "offset": offset,
                    "max_bytes": FETCH_BYTES,
                }
            ],
        }
        values = {
            "follower": CLIENT,
            "max_bytes": FETCH_BYTES,
            "tables": [table],
            "max_wait_ms": WAIT_MS,
            "min_bytes": 1,
        }
        return self.servers.leader(self.path, self.bucket).send(FETCH_LOG, values)

    def _send_ahead(self, offset: int, stop: int) -> PendingCall | None:
        """None: nothing is left to ask for, or the server that led the bucket is away; `_answer` then looks for the new
        leader.
        """
        try:
            return self._send(offset) if offset < stop else None
        except ServerUnavailable:
            return None

    def _answer(self, pending: PendingCall | None, offset: int) -> Message:
        """A leader that moved is followed: the request is sent again to the new one."""
        try:
            if pending is not None:
                return self._checked(pending.result(), offset)
        except ServerUnavailable:
            pass
        self.servers.forget_leader(self.bucket)
        return self.servers.follow(self.path, self.bucket, lambda _: self._checked(self._send(offset).result(), offset))

    def _checked(self, answer: Message, offset: int) -> Message:
        bucket: Message = answer["tables"][0]["buckets"][0]
        code = bucket.get("error_code", 0)
        if not code:
            return bucket
        if code == Code.OFFSET_OUT_OF_RANGE:
            start, end = bucket.get("log_start", 0), bucket.get("high_watermark", 0)
            raise OffsetOutOfRange(
                table=str(self.table.path), bucket=str(self.bucket.number), offset=offset, start=start, end=end
            )
        error: LakewardError = to_error(
            self.servers.bootstrap, f"FetchLog of {self.table.path}", code, bucket.get("error_message")
        )
        assert fluss_code_of(error) is not None
        raise error

    @property
    def _pushed(self) -> list[int] | None:
        """Column numbers for the server, ascending. Only while the table has had one schema: older batches are numbered
        otherwise.
        """
        if self.columns is None or self.table.schema.schema_id != 1:
            return None
        names = self.table.schema.names
        column_numbers = sorted({names.index(c) for c in self.columns})
        if len(column_numbers) == len(names):
            return None
        return column_numbers or [0]

    # ---- answers ---------------------------------------------------------------------------------------------------
    def _parse(self, answer: Message) -> list[tuple[LogBatchHeader, pa.Buffer]]:
        records = answer.get("records")
        if records is None or not len(records):
            return []
        magic_one = self.servers.magic_one
        return [(read_header(b, magic_one=magic_one), b) for b in split_batches(pa.py_buffer(records))]

    def _remote(self, remote: Message, at: int, stop: int) -> Iterator[tuple[LogBatchHeader, pa.Buffer]]:
        """Batches of the segments that reach above `at` and begin below `stop`."""
        position, magic_one = remote.get("first_position", 0), self.servers.magic_one
        for segment in remote.get("segments", []):
            if segment["start"] >= stop:
                return
            path = segment_path(remote["folder"], segment["id"], segment["start"])
            for data in read_batches(path, position):
                header = read_header(data, where=path, magic_one=magic_one)
                if header.base_offset >= stop:
                    return
                if header.next_offset > at:
                    yield header, data
            position = 0

    def _rows(
        self, shaper: BatchShaper, header: LogBatchHeader, data: pa.Buffer, start: int, stop: int, *, projected: bool
    ) -> Iterator[pa.RecordBatch]:
        if not header.record_count:
            return
        if header.schema_id > self.table.schema.schema_id:
            raise SchemaChanged(
                table=str(self.table.path),
                offset=header.base_offset,
                batch_schema=header.schema_id,
                planned_schema=self.table.schema.schema_id,
            )
        columns = self.schemas(header.schema_id)
        if projected:  # the server cuts columns out and leaves the checksum as it was
            columns = [columns[i] for i in self._pushed or ()]
        else:
            check_crc(header, data, where=f"{self.table.path} bucket {self.bucket.number}")
        yield shaper.log_batch(header, data, log_schema(columns), start, stop)
