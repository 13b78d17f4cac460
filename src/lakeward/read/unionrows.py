# SPDX-License-Identifier: Apache-2.0
"""The rows of a union read: older ones from the lake less what the hot tails replaced, then the hot ones. Of a whole
table or of one bucket, in this process or in a task.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakeward.model import BUCKET, BUCKET_FIELD, OFFSET, Bucket, OffsetRange, SnapshotId, TableInfo
from lakeward.read.tail import TailFold, fold_tail, read_live, replacing, without_replaced, without_replaced_mixed
from lakeward.spi import HotStore, KvSnapshot, LakeReader


def fold_tails(
    hot: HotStore, table: TableInfo, tails: Mapping[Bucket, OffsetRange], hold: Sequence[str] | None = None
) -> dict[Bucket, TailFold]:
    """Pass one of every PK tail: only the system columns travel, or `hold` as well."""
    return {b: fold_tail(hot, table, b, tail, hold) for b, tail in tails.items()} if table.is_pk else {}


def lake_rows(
    reader: LakeReader,
    table: TableInfo,
    snapshot_id: SnapshotId,
    buckets: Collection[Bucket | None],
    folds: Mapping[Bucket, TailFold],
    columns: Sequence[str],
    condition: pc.Expression | None,
) -> Iterator[pa.RecordBatch]:
    """`columns`, and what it takes to leave replaced rows out. None among the buckets: files that do not say theirs."""
    touched, key = replacing(folds), table.descriptor.primary_key
    by_offset = {b: f.replaced for b, f in touched.items() if f.keys is None}
    needed = [*columns, *(key if len(by_offset) < len(touched) else ())]
    if touched and None in buckets:
        needed += (*table.descriptor.partition_columns, BUCKET, OFFSET)
    scanned = list(dict.fromkeys(needed)) or [OFFSET]
    for bucket, batch in reader.scan_buckets(
        snapshot_id, columns=scanned, filter=condition, buckets=buckets, without=by_offset
    ):
        if bucket is None:
            yield without_replaced_mixed(batch, touched.values(), table)
        elif bucket in touched and bucket not in by_offset:
            yield without_replaced(batch, touched[bucket], key)
        else:
            yield batch


def hot_rows(
    hot: HotStore,
    table: TableInfo,
    kv: Mapping[Bucket, KvSnapshot],
    tails: Mapping[Bucket, OffsetRange],
    folds: Mapping[Bucket, TailFold],
    wanted: Sequence[str],
    check: Callable[[], None] = lambda: None,
) -> Iterator[pa.RecordBatch]:
    """KV snapshots that stand in for the lake, then the tails; `check` before each bucket."""
    key = table.descriptor.primary_key
    for bucket, snapshot in kv.items():
        check()
        extra = [k for k in key if bucket in folds and k not in wanted]
        for batch in hot.read_snapshot(table, snapshot, [*wanted, *extra]):
            rows = append_bucket(batch, bucket)
            yield without_replaced(rows, folds[bucket], key) if bucket in folds else rows
    for bucket, tail in tails.items():
        check()
        batches = (
            read_live(hot, table, folds[bucket], wanted)
            if bucket in folds
            else hot.read_log(table, bucket, tail.start, tail.stop, wanted)
        )
        yield from (append_bucket(batch, bucket) for batch in batches)


def append_bucket(batch: pa.RecordBatch, bucket: Bucket) -> pa.RecordBatch:
    return batch.append_column(BUCKET_FIELD, pa.array(np.full(batch.num_rows, bucket.number, np.int32)))
