# SPDX-License-Identifier: Apache-2.0
"""`df.write.format("lakeward")` and `writeStream`: rows of a DataFrame into the hot store, once, whatever is retried.

A task's rows go under an identity (query, batch, partition) that is the same in every attempt, with a sequence per
bucket: the server stores each sequence once. Not atomic across buckets; the input of a retried task must be the same as
before.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyspark
from pyspark import TaskContext
from pyspark.sql import datasource as ds

from lakeward.client import connect
from lakeward.client.routing import Router
from lakeward.client.sender import PutSender
from lakeward.client.table import Table
from lakeward.errors import SparkUnsupported
from lakeward.protocol.flight import PutKind
from lakeward.read.spark.options import SourceOptions
from lakeward.spark.taskput import TaskPut

QUERY_PROPERTY = "sql.streaming.queryId"
BATCH_PROPERTY = "streaming.sql.batchId"
"""Local properties that Spark sets for the tasks of a micro-batch."""


@dataclass
class WrittenRows(ds.WriterCommitMessage):  # type: ignore[misc]
    rows: int


def writer_identity(*parts: str) -> int:
    """A 63-bit writer id that names these parts; the same parts give the same id in any process."""
    digest = hashlib.sha256("\x00".join(parts).encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def put_kind(options: SourceOptions, table: Table) -> PutKind:
    """How to write the rows: append to a log table, upsert into a PK table, or as option `kind` says."""
    if options.kind is None:
        return PutKind.UPSERT if table.info.is_pk else PutKind.APPEND
    return PutKind(options.kind)


def put_rows(options: SourceOptions, columns: tuple[str, ...], batches: Iterator[pa.RecordBatch], identity: int) -> int:
    """Sends one task's rows; durable when it returns."""
    with connect(options.hot_options["server"]) as client:
        table = client.table(str(options.table))
        kind = put_kind(options, table)
        partial = columns if kind is PutKind.UPSERT and set(columns) != set(table.info.schema.names) else None
        router = Router(table.info, turn=identity % table.info.descriptor.bucket_count)
        task = TaskPut(lambda: PutSender(client.store.connection, table.info, kind, partial, writer=identity))
        rows = 0
        try:
            for batch in batches:
                task.send(router.route(table.fit(kind, pa.Table.from_batches([batch]), partial)))
                rows += batch.num_rows
        finally:
            task.close()
        return rows


class HotWriter(ds.DataSourceArrowWriter):  # type: ignore[misc]
    """Batch writes. The identity is made once on the driver: a retried task adds nothing, a second write adds again."""

    def __init__(self, options: SourceOptions, columns: tuple[str, ...], overwrite: bool) -> None:
        if overwrite:
            raise SparkUnsupported(
                what="mode overwrite", reason="a hot table is appended or upserted to; use mode('append')"
            )
        self.options, self.columns = options, columns
        self.write_id = str(uuid.uuid4())

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WrittenRows:
        partition = str(TaskContext.get().partitionId())
        return WrittenRows(put_rows(self.options, self.columns, iterator, writer_identity(self.write_id, partition)))

    def commit(self, messages: list[Any]) -> None:
        """Rows are durable task by task; there is nothing left to do."""

    def abort(self, messages: list[Any]) -> None:
        """Rows of tasks that ended stay: the hot store has no transactions across buckets."""


_STREAM_WRITER: Any = getattr(ds, "DataSourceStreamArrowWriter", None)
"""PySpark 4.0 hands single rows to streaming writers, whose times have lost their zone."""


class HotStreamWriter(_STREAM_WRITER or ds.DataSourceStreamWriter):  # type: ignore[misc]
    """Streaming writes. The identity is (query, batch, partition): a micro-batch that is run again adds nothing."""

    def __init__(self, options: SourceOptions, columns: tuple[str, ...]) -> None:
        if _STREAM_WRITER is None:
            raise SparkUnsupported(
                what=f"writeStream on PySpark {pyspark.__version__}", reason="it needs PySpark 4.1 or newer"
            )
        self.options, self.columns = options, columns

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WrittenRows:
        context = TaskContext.get()
        query, batch = context.getLocalProperty(QUERY_PROPERTY), context.getLocalProperty(BATCH_PROPERTY)
        if query is None or batch is None:
            raise SparkUnsupported(
                what="this streaming query", reason="Spark did not say which query and batch a task belongs to"
            )
        identity = writer_identity(query, batch, str(context.partitionId()))
        return WrittenRows(put_rows(self.options, self.columns, iterator, identity))

    def commit(self, messages: list[Any], batchId: int) -> None:
        """Rows are durable task by task; the checkpoint says which batches are done."""

    def abort(self, messages: list[Any], batchId: int) -> None:
        """The batch is run again; what it stored is not stored twice."""
