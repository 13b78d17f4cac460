# SPDX-License-Identifier: Apache-2.0
"""Brings rows to their buckets: partition by the partition keys, bucket by the bucket keys, or round-robin
without any.
"""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Iterator

import pyarrow as pa

from lakeward.bucketing import assign_buckets
from lakeward.bucketing.pieces import split_buckets, split_partitions
from lakeward.model import Bucket, TableInfo

MAX_BATCH_BYTES = 8 * 1024 * 1024
MAX_BATCH_ROWS = 100_000
"""A batch is read, checked and stored as one piece; these keep the pieces small beside the server's limits."""

Piece = tuple[Bucket, pa.RecordBatch]


class Router:
    """Routes rows of one table to buckets. Rows of one bucket keep their order."""

    def __init__(self, table: TableInfo, *, turn: int | None = None) -> None:
        """`turn` fixes where round-robin begins, for writers that must route the same rows the same way again."""
        self.table = table
        self._turn = itertools.count(secrets.randbelow(table.descriptor.bucket_count) if turn is None else turn)

    def route(self, rows: pa.Table, max_bytes: int = MAX_BATCH_BYTES) -> Iterator[Piece]:
        """Batches of at most about `max_bytes` with the bucket each goes to."""
        if not rows.num_rows:
            return
        for partition, part in split_partitions(self.table, rows):
            for number, piece in self._buckets(part):
                for batch in _batches(piece, max_bytes):
                    yield Bucket(partition, number), batch

    def check(self, rows: pa.Table) -> None:
        """Raises `InvalidRows` where a row has no partition to go to."""
        for _ in split_partitions(self.table, rows):
            pass

    def _buckets(self, rows: pa.Table) -> Iterator[tuple[int, pa.Table]]:
        descriptor = self.table.descriptor
        if descriptor.bucket_count == 1:
            yield 0, rows
        elif not descriptor.bucket_keys:
            yield next(self._turn) % descriptor.bucket_count, rows
        else:
            yield from split_buckets(rows, assign_buckets(rows, descriptor), descriptor.bucket_count)


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
