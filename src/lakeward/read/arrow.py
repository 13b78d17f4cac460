# SPDX-License-Identifier: Apache-2.0
"""Union read without Spark: lake batches, then the hot tail, as one stream of Arrow batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import pyarrow as pa

from lakeward.model import LAKE_NAMES, Bucket, cast_values
from lakeward.read.opened import LakeOpener, OpenRead, open_read
from lakeward.read.request import ReadRequest, request_of
from lakeward.read.result import ReadResult, describe_freshness
from lakeward.read.tail import TailFold
from lakeward.read.unionrows import fold_tails, hot_rows, lake_rows
from lakeward.spi import HotPlugin

__all__ = [
    "OpenRead",
    "ReadRequest",
    "conform",
    "describe_freshness",
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
    batches = _conform(opened, _batches(opened))
    return ReadResult(opened.schema, opened.bound, batches, opened.lease, lambda: read(plugin, request, open_lake))


def _batches(opened: OpenRead) -> Iterator[pa.RecordBatch]:
    """Older rows, then the tail's. A PK tail is folded first: it says which older rows are no more."""
    union, table, wanted = opened.union, opened.table, opened.wanted
    try:
        folds = fold_tails(opened.hot, table, union.tails, wanted if union.tail_rows <= HELD_ROWS else None)
        yield from _lake_batches(opened, folds)
        rows = hot_rows(opened.hot, table, union.kv, union.tails, folds, wanted, opened.lease.check)
        yield from _filtered(opened, rows)
    finally:
        opened.close()


def _lake_batches(opened: OpenRead, folds: Mapping[Bucket, TailFold]) -> Iterator[pa.RecordBatch]:
    snapshot = opened.union.snapshot_id
    if opened.pinned is None or snapshot is None:
        return
    columns = [*opened.wanted, *(LAKE_NAMES if opened.request.system_columns else ())]
    condition = opened.predicate.expression if opened.predicate else None
    buckets = opened.lake_buckets()
    for batch in lake_rows(opened.pinned, opened.table, snapshot, buckets, folds, columns, condition):
        opened.lease.check()
        yield batch


def _filtered(opened: OpenRead, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Lake rows come filtered from the lake."""
    for batch in batches:
        yield opened.predicate.apply(batch) if opened.predicate else batch


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
    places = dict(zip(batch.schema.names, range(batch.num_columns), strict=True))  # a look-up by name looks at all
    for field in schema:
        column = batch.column(places[field.name])
        arrays.append(cast_values(column, field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
