# SPDX-License-Identifier: Apache-2.0
"""The fold of a changelog range by key, the last change wins: for changelogs without `__prev_offset` (Apache Fluss).

Same passes as `Fold`; pass one needs the key columns beside the system columns.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakeward.changelog.columns import adds_row, changes_of, keep_rows, offsets_of
from lakeward.errors import InvalidRequest
from lakeward.model import ChangeType, OffsetRange, OffsetSet

COMPACT_ROWS = 1_000_000
"""Pass one groups what it has gathered each time so many rows are new: memory follows the keys, not the records."""

_FIRST, _LAST = "__first", "__last"


class KeyedFold:
    """One range `[start, stop)` of one bucket. Memory: the keys that change in it.

    `_first` and `_last` hold 2 x offset + flag of a key's first and last record, so that min and max carry the flag
    along: first: it was a +I (no older row); last: it left a row."""

    def __init__(self, start: int, stop: int, key: Sequence[str], compact_rows: int = COMPACT_ROWS) -> None:
        if not key:
            raise InvalidRequest(what="keyed fold", reason="it needs key columns")
        self.range = OffsetRange(start, stop)
        self.key, self._compact_rows = tuple(key), compact_rows
        self._chunks: list[pa.Table] = []
        self._fresh_rows = 0
        self._keys: pa.Table | None = None
        self._live = OffsetSet()

    def see(self, batch: pa.RecordBatch) -> None:
        """Pass one: any columns, the key's and the system's among them."""
        if self._keys is not None:
            raise InvalidRequest(what=f"fold of {self.range}", reason="it was sealed: pass one is over")
        offsets, changes = offsets_of(batch), changes_of(batch)
        inside = (offsets >= self.range.start) & (offsets < self.range.stop)
        first = offsets * 2 + (changes == ChangeType.INSERT)
        last = offsets * 2 + adds_row(changes)
        columns = {**{name: batch.column(name) for name in self.key}, _FIRST: pa.array(first), _LAST: pa.array(last)}
        self._chunks.append(pa.table(columns).filter(pa.array(inside)))
        self._fresh_rows += batch.num_rows
        if self._fresh_rows >= self._compact_rows:
            self._chunks, self._fresh_rows = [self._grouped()], 0

    def seal(self) -> OffsetRange:
        """Ends pass one and returns the range."""
        if self._keys is not None:
            raise InvalidRequest(what=f"fold of {self.range}", reason="it was sealed already")
        self._keys = self._grouped()
        self._chunks.clear()
        last = self._keys.column(_LAST).to_numpy()
        self._live = OffsetSet(last[last % 2 == 1] // 2)
        return self.range

    def live(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Pass two: the rows that are live at the range's stop, in order, with the user's columns, `__offset`,
        `__timestamp`.
        """
        self._sealed()
        return keep_rows(batch, self._live.mask(offsets_of(batch)) & adds_row(changes_of(batch)))

    @property
    def touched(self) -> pa.Table:
        """Every key that changed in the range: what a union read takes off the lake's side."""
        return self._sealed().select(list(self.key))

    @property
    def replaced_keys(self) -> pa.Table:
        """Keys that may have a row below the range: those whose first change here is no +I."""
        keys = self._sealed()
        older = np.asarray(keys.column(_FIRST).to_numpy()) % 2 == 0
        return keys.filter(pa.array(older)).select(list(self.key))

    def _sealed(self) -> pa.Table:
        if self._keys is None:
            raise InvalidRequest(what=f"fold of {self.range}", reason="pass one is not over: call seal first")
        return self._keys

    def _grouped(self) -> pa.Table:
        if not self._chunks:
            return pa.table(
                {
                    **{name: pa.nulls(0) for name in self.key},
                    _FIRST: pa.array([], pa.int64()),
                    _LAST: pa.array([], pa.int64()),
                }
            )
        all_rows = pa.concat_tables(self._chunks)
        grouped = all_rows.group_by(list(self.key), use_threads=False).aggregate([(_FIRST, "min"), (_LAST, "max")])
        return grouped.rename_columns([*self.key, _FIRST, _LAST])


_LEFT, _RIGHT = "__left", "__right"
RowNumbers = npt.NDArray[np.int64]


def pair_rows(rows: pa.Table, others: pa.Table, key: Sequence[str]) -> tuple[RowNumbers, RowNumbers]:
    """Row numbers on both sides of every pair that has the same key."""
    paired = _numbered(rows, key, _LEFT).join(_numbered(others, key, _RIGHT, rows), keys=list(key), join_type="inner")
    left, right = (paired.column(n).to_numpy().astype(np.int64) for n in (_LEFT, _RIGHT))
    return left, right


def rows_not_in(rows: pa.Table, keys: pa.Table, key: Sequence[str]) -> RowNumbers:
    """Numbers of the rows whose key is none of these, ascending."""
    left = _numbered(rows, key, _LEFT)
    kept = left.join(_numbered(keys, key, _RIGHT, rows).select(list(key)), keys=list(key), join_type="left anti")
    numbers: RowNumbers = np.sort(kept.column(_LEFT).to_numpy().astype(np.int64))
    return numbers


def _numbered(rows: pa.Table, key: Sequence[str], name: str, like: pa.Table | None = None) -> pa.Table:
    """Keys with the number of their row. The two sides may spell a key's type differently: TINYINT is an int in
    Iceberg."""
    keys = rows.select(list(key))
    if like is not None:
        keys = keys.cast(pa.schema([(n, like.schema.field(n).type) for n in key]))
    return keys.append_column(name, pa.array(np.arange(rows.num_rows)))
