# SPDX-License-Identifier: Apache-2.0
"""Union read without Spark: lake batches, then the hot tail, as one stream of Arrow batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakeward.model.bucket import Bucket
from lakeward.model.schema import BUCKET, OFFSET
from lakeward.model.systemcolumns import BUCKET_FIELD, LAKE_NAMES
from lakeward.read.opened import LakeOpener, OpenRead, open_read
from lakeward.read.request import ReadRequest, request_of
from lakeward.read.result import ReadResult, describe_freshness
from lakeward.read.tail import TailFold, fold_tail, read_live, replacing, without_replaced, without_replaced_mixed
from lakeward.spi.hot import HotPlugin

__all__ = [
    "OpenRead",
    "ReadRequest",
    "append_bucket",
    "conform",
    "describe_freshness",
    "fold_tails",
    "open_read",
    "read",
    "request_of",
]

HELD_ROWS = 131_072
"""PK tails of at most so many offsets in all are read once and held in memory, as two batches of the lake are; longer
ones twice.
"""


def read(plugin: HotPlugin, request: ReadRequest, open_lake: LakeOpener | None = None) -> ReadResult:
    """Plans under a lease and returns the result, to be consumed once. Errors in the request are raised here, not
    later.
    """
    opened = open_read(plugin, request, open_lake)
    return ReadResult(opened.schema, opened.bound, _conform(opened, _batches(opened)), opened.lease)


def fold_tails(opened: OpenRead, hold: Sequence[str] | None = None) -> dict[Bucket, TailFold]:
    """Pass one of every PK tail: only the system columns travel, or `hold` as well."""
    if not opened.table.is_pk:
        return {}
    return {b: fold_tail(opened.hot, opened.table, b, tail, hold) for b, tail in opened.union.tails.items()}


def _batches(opened: OpenRead) -> Iterator[pa.RecordBatch]:
    """Older rows, then the tail's. A PK tail is folded first: it says which older rows are no more."""
    try:
        folds = fold_tails(opened, opened.wanted if opened.union.tail_rows <= HELD_ROWS else None)
        yield from _lake_batches(opened, folds)
        yield from _filtered(opened, _hot_batches(opened, folds))
    finally:
        opened.close()


def _lake_batches(opened: OpenRead, folds: Mapping[Bucket, TailFold]) -> Iterator[pa.RecordBatch]:
    snapshot = opened.union.snapshot_id
    if opened.pinned is None or snapshot is None:
        return
    touched, descriptor = replacing(folds), opened.table.descriptor
    buckets = opened.lake_buckets()
    needed = [*opened.wanted, *(LAKE_NAMES if opened.request.system_columns else ())]
    by_offset = {b: f.replaced for b, f in touched.items() if f.keys is None}
    if len(by_offset) < len(touched):
        needed += descriptor.primary_key
    if touched and None in buckets:
        needed += (*descriptor.partition_keys, BUCKET, OFFSET)
    expression = opened.predicate.expression if opened.predicate else None
    columns = list(dict.fromkeys(needed)) or [OFFSET]
    for bucket, batch in opened.pinned.scan_buckets(
        snapshot, columns=columns, filter=expression, buckets=buckets, without=by_offset
    ):
        opened.lease.check()
        if bucket is None:
            yield without_replaced_mixed(batch, touched.values(), opened.table)
        else:
            by_key = bucket in touched and bucket not in by_offset
            yield without_replaced(batch, touched[bucket], descriptor.primary_key) if by_key else batch


def _hot_batches(opened: OpenRead, folds: Mapping[Bucket, TailFold]) -> Iterator[pa.RecordBatch]:
    hot, table, wanted = opened.hot, opened.table, opened.wanted
    for bucket, snapshot in opened.union.kv.items():
        opened.lease.check()
        extra = [k for k in table.descriptor.primary_key if bucket in folds and k not in wanted]
        for batch in hot.read_snapshot(table, snapshot, [*wanted, *extra]):
            rows = append_bucket(batch, bucket)
            yield without_replaced(rows, folds[bucket], table.descriptor.primary_key) if bucket in folds else rows
    for bucket, tail in opened.union.tails.items():
        opened.lease.check()
        live = bucket in folds
        rows = (
            read_live(hot, table, folds[bucket], wanted)
            if live
            else hot.read_log(table, bucket, tail.start, tail.stop, wanted)
        )
        yield from (append_bucket(batch, bucket) for batch in rows)


def _filtered(opened: OpenRead, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Lake rows come filtered from the lake."""
    for batch in batches:
        yield opened.predicate.apply(batch) if opened.predicate else batch


def append_bucket(batch: pa.RecordBatch, bucket: Bucket) -> pa.RecordBatch:
    return batch.append_column(BUCKET_FIELD, pa.array(np.full(batch.num_rows, bucket.number, np.int32)))


def _conform(opened: OpenRead, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Every batch in the result's schema; both sides may spell a type differently (TINYINT is an int in Iceberg)."""
    schema = opened.schema
    for batch in batches:
        if batch.num_rows:
            yield conform(batch, schema)


def conform(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The schema's columns by name, cast where the lake's type differs."""
    if not schema.names:
        return pa.RecordBatch.from_struct_array(pa.nulls(batch.num_rows, pa.struct([])))
    arrays = []
    for field in schema:
        column = batch.column(field.name)
        arrays.append(column if column.type == field.type else pc.cast(column, field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
