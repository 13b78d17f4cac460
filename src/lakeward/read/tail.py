# SPDX-License-Identifier: Apache-2.0
"""The hot tail of one bucket: its rows live at the end of the range, and what they replace on the lake's side."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from lakeward.changelog import Fold, KeyedFold
from lakeward.model.bucket import Bucket
from lakeward.model.offsets import OffsetRange
from lakeward.model.offsetset import OffsetSet
from lakeward.model.table import TableInfo
from lakeward.spi.hot import HotStore


@dataclass(frozen=True, kw_only=True)
class TailFold:
    """Pass one of a PK bucket's tail, done. `replaced` names lake rows by offset, `keys` by key where offsets are not known."""

    bucket: Bucket
    range: OffsetRange
    fold: Fold | KeyedFold

    @property
    def replaced(self) -> OffsetSet:
        return self.fold.replaced_below if isinstance(self.fold, Fold) else OffsetSet()

    @property
    def keys(self) -> pa.Table | None:
        return self.fold.touched if isinstance(self.fold, KeyedFold) else None


def fold_tail(hot: HotStore, table: TableInfo, bucket: Bucket, tail: OffsetRange) -> TailFold:
    """Pass one over the range: only system columns travel (and the key's, without `__prev_offset`)."""
    key = table.descriptor.primary_key
    fold: Fold | KeyedFold = Fold(tail.start, tail.stop) if hot.has_prev_offset else KeyedFold(tail.start, tail.stop, key)
    for batch in hot.read_log(table, bucket, tail.start, tail.stop, [] if hot.has_prev_offset else list(key)):
        fold.see(batch)
    fold.seal()
    return TailFold(bucket=bucket, range=tail, fold=fold)


def read_live(hot: HotStore, table: TableInfo, folded: TailFold, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Pass two: the live rows with `columns`, `__offset`, `__timestamp`."""
    for batch in hot.read_log(table, folded.bucket, folded.range.start, folded.range.stop, columns):
        live = folded.fold.live(batch)
        if live.num_rows:
            yield live
