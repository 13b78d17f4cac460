# SPDX-License-Identifier: Apache-2.0
"""What the Flight server needs of the store it wraps. `EmbeddedStore` has this shape; so has the stand-in of
the tests.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

import pyarrow as pa

from lakeward.hot.embedded.log.appended import WriterSequence
from lakeward.hot.embedded.serve.acks import Pending
from lakeward.model.bucket import Bucket
from lakeward.model.table import TableInfo, TablePath
from lakeward.spi.hot import KvSnapshot, LogBounds


class Engine(Protocol):
    """All calls are thread-safe and raise typed errors."""

    def load_table(self, path: TablePath) -> TableInfo: ...

    def list_tables(self) -> Sequence[TablePath]: ...

    def begin_append(
        self, table: TableInfo, bucket: Bucket, batch: pa.RecordBatch, writer: WriterSequence | None = None
    ) -> Pending: ...

    def begin_upsert(
        self,
        table: TableInfo,
        bucket: Bucket,
        batch: pa.RecordBatch,
        columns: Sequence[str] | None = None,
        writer: WriterSequence | None = None,
    ) -> Pending: ...

    def begin_delete(
        self, table: TableInfo, bucket: Bucket, keys: pa.RecordBatch, writer: WriterSequence | None = None
    ) -> Pending: ...

    def lookup(self, table: TableInfo, bucket: Bucket, keys: pa.RecordBatch) -> pa.RecordBatch: ...

    def bounds(self, table: TableInfo, *, sync: bool = False) -> Mapping[Bucket, LogBounds]: ...

    def read_log(
        self, table: TableInfo, bucket: Bucket, start: int, stop: int, columns: Sequence[str] | None = None
    ) -> Iterator[pa.RecordBatch]: ...

    def wait_for(self, table: TableInfo, offsets: Mapping[Bucket, int], timeout_s: float) -> bool: ...

    def offset_at(self, table: TableInfo, bucket: Bucket, at_ms: int) -> int: ...

    def partitions(self, table: TableInfo) -> Sequence[str]: ...

    def take_snapshot(self, table: TableInfo, bucket: Bucket, holder: str) -> KvSnapshot | None: ...

    def read_snapshot(
        self, table: TableInfo, snapshot: KvSnapshot, columns: Sequence[str] | None = None
    ) -> Iterator[pa.RecordBatch]: ...

    def release_snapshots(self, table: TableInfo, holder: str) -> None: ...
