# SPDX-License-Identifier: Apache-2.0
"""Brings rows to their buckets: partition by the partition keys, bucket by the bucket keys, or round-robin
without any.
"""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakeward.bucketing import assign_buckets
from lakeward.errors import InvalidRequest, InvalidRows
from lakeward.model.bucket import Bucket, partition_name
from lakeward.model.table import TableInfo

MAX_BATCH_BYTES = 8 * 1024 * 1024
MAX_BATCH_ROWS = 100_000
"""A batch is read, checked and stored as one piece; these keep the pieces small beside the server's limits."""

Piece = tuple[Bucket, pa.RecordBatch]


class Router:
    """Of one table. Rows of one bucket keep their order."""

    def __init__(self, table: TableInfo, *, turn: int | None = None) -> None:
        """`turn` fixes where round-robin begins, for writers that must route the same rows the same way again."""
        self.table = table
        self._turn = itertools.count(secrets.randbelow(table.descriptor.bucket_count) if turn is None else turn)

    def route(self, rows: pa.Table, max_bytes: int = MAX_BATCH_BYTES) -> Iterator[Piece]:
        """Batches of at most about `max_bytes` with the bucket each goes to."""
        if not rows.num_rows:
            return
        for partition, part in self._partitions(rows):
            for number, piece in self._buckets(part):
                for batch in _batches(piece, max_bytes):
                    yield Bucket(partition, number), batch

    def check(self, rows: pa.Table) -> None:
        """Raises `InvalidRows` where a row has no partition to go to."""
        for _ in self._partitions(rows):
            pass

    def _partitions(self, rows: pa.Table) -> Iterator[tuple[str, pa.Table]]:
        keys = self.table.descriptor.partition_keys
        if not keys:
            yield "", rows
            return
        texts = [_texts(self.table, name, rows.column(name)) for name in keys]
        encoded = pc.binary_join_element_wise(*texts, "\x00").dictionary_encode().combine_chunks()
        names = [self._partition_name(text, encoded) for text in encoded.dictionary.to_pylist()]
        for index, name in enumerate(names):
            yield name, rows if len(names) == 1 else rows.filter(pc.equal(encoded.indices, index))

    def _partition_name(self, text: str, encoded: pa.DictionaryArray) -> str:
        try:
            return partition_name(text.split("\x00"))
        except InvalidRequest as error:
            row = pc.index(encoded.cast(pa.string()), text).as_py()
            keys = ", ".join(self.table.descriptor.partition_keys)
            raise InvalidRows(table=str(self.table.path), row=row, column=keys, reason=str(error)) from error

    def _buckets(self, rows: pa.Table) -> Iterator[tuple[int, pa.Table]]:
        descriptor = self.table.descriptor
        if descriptor.bucket_count == 1:
            yield 0, rows
        elif not descriptor.bucket_keys:
            yield next(self._turn) % descriptor.bucket_count, rows
        else:
            yield from _split(rows, assign_buckets(rows, descriptor), descriptor.bucket_count)


def _split(rows: pa.Table, numbers: np.ndarray, count: int) -> Iterator[tuple[int, pa.Table]]:
    """One stable sort by bucket, then slices: a gather per column, whatever the number of buckets."""
    sizes = np.bincount(numbers, minlength=count)
    if sizes.max() == rows.num_rows:
        yield int(sizes.argmax()), rows
        return
    gathered = rows.take(pa.array(np.argsort(numbers, kind="stable")))
    start = 0
    for number, size in enumerate(sizes.tolist()):
        if size:
            yield number, gathered.slice(start, size)
            start += size


def _texts(table: TableInfo, name: str, values: pa.ChunkedArray) -> pa.ChunkedArray:
    if values.null_count:
        row = pc.index(values.is_null(), True).as_py()
        raise InvalidRows(table=str(table.path), row=row, column=name, reason="null in a partition key")
    return values if pa.types.is_string(values.type) else values.cast(pa.string())


def _batches(rows: pa.Table, max_bytes: int) -> Iterator[pa.RecordBatch]:
    whole = rows.combine_chunks()
    per_row = max(1, whole.nbytes // whole.num_rows)
    for batch in whole.to_batches(max_chunksize=max(1, min(MAX_BATCH_ROWS, max_bytes // per_row))):
        yield from _halved(batch, max_bytes)


def _halved(batch: pa.RecordBatch, max_bytes: int) -> Iterator[pa.RecordBatch]:
    """Rows may differ much in size: what is still too big is cut until it fits or is one row."""
    if batch.num_rows <= 1 or batch.nbytes <= max_bytes:
        yield batch
        return
    middle = batch.num_rows // 2
    yield from _halved(batch.slice(0, middle), max_bytes)
    yield from _halved(batch.slice(middle), max_bytes)
