# SPDX-License-Identifier: Apache-2.0
"""The lake's rows of one bucket, wherever they lie, counted as they are read: each file is opened once for a check."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import reduce
from operator import or_

import pyarrow as pa
import pyarrow.compute as pc

from lakeward.model import BUCKET, OFFSET, Bucket
from lakeward.read.tail import rows_of
from lakeward.spi import LakeReader
from lakeward.verify.addresses import AddressCount
from lakeward.verify.spill import WindowSpill
from lakeward.verify.task import BucketTask, Window

MERGED_ROWS = 16_384


def read_lake(
    task: BucketTask, lake: LakeReader, columns: Sequence[str], filter: pc.Expression | None = None
) -> Iterator[pa.RecordBatch]:
    """Exactly the filter's rows. Files that do not say their bucket (others wrote them under another spec) hold rows of
    several."""
    keys = task.table.descriptor.partitioning
    buckets: list[Bucket | None] = [task.bucket, *([None] if task.mixed else [])]
    scanned = dict.fromkeys(
        (
            *columns,
            *((*(k.column for k in keys), BUCKET) if task.mixed else ()),
            *([OFFSET] if filter is not None else []),
        )
    )
    for bucket, batch in lake.scan_buckets(task.snapshot_id, columns=list(scanned), filter=filter, buckets=buckets):
        rows = batch if bucket is not None else batch.filter(pa.array(rows_of(batch, task.bucket, keys), pa.bool_()))
        yield (rows if filter is None else rows.filter(filter)).select(list(columns))


def count_rows(
    task: BucketTask, lake: LakeReader, count: AddressCount, filter: pc.Expression | None = None
) -> AddressCount:
    for batch in _merged(read_lake(task, lake, [OFFSET], filter)):
        count.see_column(batch.column(OFFSET))
    return count


def gather_rows(
    task: BucketTask, lake: LakeReader, windows: Sequence[Window], count: AddressCount, spill: WindowSpill
) -> None:
    """Counts every row of the bucket, and puts those of the windows aside with their values.

    Where all windows are wanted that is one scan of what lies in or above them, and one of the offsets alone below. Of
    a PK table nothing should lie below its first live row."""
    if task.sample < 1 or not windows:
        count_rows(task, lake, count)
        window_filter = _inside(windows) if windows else None
    elif task.lake_table.is_pk or windows[0][0] == 0:
        window_filter = None
    else:
        count_rows(task, lake, count, pc.field(OFFSET) < windows[0][0])
        window_filter = (pc.field(OFFSET) >= windows[0][0]) | pc.field(OFFSET).is_null()
    if not windows:
        return
    for batch in _merged(read_lake(task, lake, [*task.lake_table.schema.names, OFFSET], window_filter)):
        offsets = batch.column(OFFSET)
        if task.sample >= 1:
            count.see_column(offsets)
        spill.add(batch if not offsets.null_count else batch.filter(offsets.is_valid()))


def _merged(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Small ones together: a bucket may lie in a thousand files of a row each."""
    waiting: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        waiting.append(batch)
        rows += batch.num_rows
        if rows >= MERGED_ROWS:
            yield from _as_one(waiting)
            waiting, rows = [], 0
    yield from _as_one(waiting)


def _as_one(batches: Sequence[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    if len(batches) > 1 and all(b.schema == batches[0].schema for b in batches):
        yield from pa.Table.from_batches(batches).combine_chunks().to_batches()
    else:
        yield from batches


def _inside(windows: Sequence[Window]) -> pc.Expression:
    offset = pc.field(OFFSET)
    return reduce(or_, ((offset >= start) & (offset < stop) for start, stop in windows))
