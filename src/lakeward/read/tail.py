# SPDX-License-Identifier: Apache-2.0
"""The hot tail of one bucket: its rows live at the end of the range, and what they replace on the older side."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakeward.changelog import Fold, KeyedFold
from lakeward.changelog.keyed import rows_not_in
from lakeward.model import (
    BUCKET,
    OFFSET,
    Bucket,
    OffsetRange,
    OffsetSet,
    PartitionKey,
    SnapshotId,
    TableInfo,
    partition_values,
)
from lakeward.spi import HotStore, LakeReader


@dataclass(frozen=True, kw_only=True)
class TailFold:
    """Pass one of a PK bucket's tail, done. `replaced` names older rows by offset, `keys` by key where offsets are not
    known. `held`: the tail's rows, where pass one has read them whole."""

    bucket: Bucket
    range: OffsetRange
    fold: Fold | KeyedFold
    held: tuple[pa.RecordBatch, ...] | None = None

    @property
    def replaced(self) -> OffsetSet:
        return self.fold.replaced_below if isinstance(self.fold, Fold) else OffsetSet()

    @property
    def keys(self) -> pa.Table | None:
        return self.fold.touched if isinstance(self.fold, KeyedFold) else None


def fold_tail(
    hot: HotStore, table: TableInfo, bucket: Bucket, tail: OffsetRange, hold: Sequence[str] | None = None
) -> TailFold:
    """Pass one over the range: only system columns travel (and the key's, without `__prev_offset`). With `hold` these
    columns do too, and are kept for pass two."""
    key, by_offset = table.descriptor.primary_key, hot.names_replaced(table)
    fold: Fold | KeyedFold = Fold(tail.start, tail.stop) if by_offset else KeyedFold(tail.start, tail.stop, key)
    columns = list(dict.fromkeys((*(hold or ()), *(() if by_offset else key))))
    held = []
    for batch in hot.read_log(table, bucket, tail.start, tail.stop, columns):
        fold.see(batch)
        if hold is not None:
            held.append(batch)
    fold.seal()
    return TailFold(bucket=bucket, range=tail, fold=fold, held=None if hold is None else tuple(held))


def read_live(hot: HotStore, table: TableInfo, folded: TailFold, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Pass two: the live rows with `columns`, `__offset`, `__timestamp`. Held rows come with the columns they were held
    with.
    """
    start, stop = folded.range.start, folded.range.stop
    for batch in hot.read_log(table, folded.bucket, start, stop, columns) if folded.held is None else folded.held:
        live = folded.fold.live(batch)
        if live.num_rows:
            yield live


def without_replaced(batch: pa.RecordBatch, folded: TailFold, key: Sequence[str]) -> pa.RecordBatch:
    """Older rows of one bucket less those that its tail replaced: by offset, or by key where offsets are not known."""
    if folded.keys is not None:
        return _without_keys(batch, folded.keys, key)
    gone = folded.replaced.mask(batch.column(OFFSET).to_numpy(zero_copy_only=False))
    return batch if not gone.any() else batch.filter(pa.array(~gone))


def without_replaced_mixed(batch: pa.RecordBatch, folds: Iterable[TailFold], table: TableInfo) -> pa.RecordBatch:
    """The same for rows of several buckets in one batch, with the partition keys among its columns."""
    descriptor = table.descriptor
    for folded in folds:
        if folded.keys is not None:
            batch = _without_keys(batch, folded.keys, descriptor.primary_key)
            continue
        is_own_bucket = rows_of(batch, folded.bucket, descriptor.partitioning)
        is_replaced = is_own_bucket & folded.replaced.mask(batch.column(OFFSET).to_numpy(zero_copy_only=False))
        batch = batch.filter(pa.array(~is_replaced)) if is_replaced.any() else batch
    return batch


def replacing(folds: Mapping[Bucket, TailFold]) -> dict[Bucket, TailFold]:
    """Those that take anything off the older side."""
    return {b: f for b, f in folds.items() if f.replaced or (f.keys is not None and f.keys.num_rows)}


def rows_of(batch: pa.RecordBatch, bucket: Bucket, keys: Sequence[PartitionKey]) -> np.ndarray:
    """Which rows of a batch of several buckets are this one's, by its `__bucket` and partition columns."""
    own: np.ndarray = np.asarray(batch.column(BUCKET).to_numpy(zero_copy_only=False) == bucket.number, np.bool_)
    for key, text in zip(keys, partition_values(bucket.partition), strict=True):
        own &= key.is_in(text, batch.column(key.column))
    return own


def scan_bucket(
    lake: LakeReader,
    table: TableInfo,
    snapshot_id: SnapshotId,
    bucket: Bucket,
    columns: Sequence[str],
    filter: pc.Expression | None = None,
) -> Iterator[pa.RecordBatch]:
    """Rows of one bucket in a lake snapshot, in no order: also of files that do not record their bucket, as another
    engine merges them from files of several. Their rows are assigned by `__bucket` and partition columns."""
    yield from lake.scan(snapshot_id, columns=columns, filter=filter, buckets=[bucket])
    keys = table.descriptor.partitioning
    scanned = list(dict.fromkeys((*columns, BUCKET, *(key.column for key in keys))))
    for _, batch in lake.scan_buckets(snapshot_id, columns=scanned, filter=filter, buckets=[None]):
        yield batch.filter(pa.array(rows_of(batch, bucket, keys), pa.bool_())).select(list(columns))


def _without_keys(batch: pa.RecordBatch, keys: pa.Table, key: Sequence[str]) -> pa.RecordBatch:
    kept = rows_not_in(pa.Table.from_batches([batch]), keys, key)
    return batch if len(kept) == batch.num_rows else batch.take(pa.array(kept))
