# SPDX-License-Identifier: Apache-2.0
"""A bucket's rows as they must be against those that the lake has: both in ascending offset order, each read once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from lakeward.changelog.columns import offsets_of
from lakeward.changelog.rowdiff import altered_offsets
from lakeward.model import OFFSET, Offsets, OffsetSet


class LakeDiff:
    """`rows` gives what is to be written; `gone` and `renewed` stand once it ended."""

    def __init__(self, columns: Sequence[str]) -> None:
        self._columns = list(columns)
        self._gone: list[Offsets] = []
        self._renewed: list[Offsets] = []

    @property
    def gone(self) -> OffsetSet:
        """Offsets of lake rows that must not be there."""
        return OffsetSet(np.concatenate([np.empty(0, np.int64), *self._gone]))

    @property
    def renewed(self) -> OffsetSet:
        """Offsets whose lake rows are altered or doubled: those go, and the row is written again."""
        return OffsetSet(np.concatenate([np.empty(0, np.int64), *self._renewed]))

    def rows(self, wanted: Iterator[pa.RecordBatch], lake: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Rows that the lake lacks, or has otherwise."""
        lake_rows = _Ascending(lake)
        for batch in wanted:
            yield self._compare(batch, lake_rows.take(int(offsets_of(batch)[-1])))
        while (rest := lake_rows.take(None)) is not None:
            self._gone.append(np.unique(rest.column(OFFSET).to_numpy()))

    def _compare(self, batch: pa.RecordBatch, there: pa.Table | None) -> pa.RecordBatch:
        if there is None:
            return batch
        offsets = offsets_of(batch)
        lake_offsets, counts = np.unique(there.column(OFFSET).to_numpy(), return_counts=True)
        altered, _ = altered_offsets(pa.Table.from_batches([batch]), there, self._columns)
        renewed = np.intersect1d(np.union1d(altered, lake_offsets[counts > 1]), offsets)
        self._gone.append(np.setdiff1d(lake_offsets, offsets))
        self._renewed.append(renewed)
        return batch.filter(pa.array(~np.isin(offsets, np.setdiff1d(lake_offsets, renewed))))


class _Ascending:
    """Hands an ascending stream out by upper bounds."""

    def __init__(self, batches: Iterator[pa.RecordBatch]) -> None:
        self._batches, self._held = batches, next(batches, None)

    def take(self, last: int | None) -> pa.Table | None:
        """All up to and with offset `last`; None asks for the next batch, whatever it holds."""
        taken: list[pa.RecordBatch] = []
        while self._held is not None:
            offsets = offsets_of(self._held)
            cut = len(offsets) if last is None else int(offsets.searchsorted(last, side="right"))
            if cut:
                taken.append(self._held.slice(0, cut))
            if cut < len(offsets):
                self._held = self._held.slice(cut)
                break
            self._held = next(self._batches, None)
            if last is None:
                break
        return pa.Table.from_batches(taken) if taken else None
