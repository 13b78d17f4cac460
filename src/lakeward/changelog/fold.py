# SPDX-License-Identifier: Apache-2.0
"""The fold of a changelog range by `__prev_offset`, without comparing keys (design.md 6.3).

Pass one shows every batch of the range (its system columns are enough) to `see`; `seal` fixes the stop; pass two
filters the same range with `live`. Log tables go through unchanged.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from lakeward.changelog.columns import adds_row, changes_of, keep_rows, offsets_of, prev_offsets_of, replaces_row
from lakeward.errors import InvalidRequest
from lakeward.model import OffsetRange, Offsets, OffsetSet

_Seen = tuple[int, int, Offsets]
"""First and last offset of a batch, and the previous offsets that its records replace."""


class Fold:
    """One range `[start, stop)` of one bucket. Memory: eight bytes for each replaced row."""

    def __init__(self, start: int, stop: int) -> None:
        self.range = OffsetRange(start, stop)
        self._seen: list[_Seen] = []
        self._replaced: OffsetSet | None = None

    def copy(self) -> Fold:
        """Another one that has seen the same: sealed at its own stop."""
        twin = Fold(self.range.start, self.range.stop)
        twin._seen = list(self._seen)
        return twin

    def see(self, batch: pa.RecordBatch) -> None:
        """Pass one. Records outside the range are not looked at. Raises `InvalidRequest` for a +U or -D that names no
        older row.
        """
        if self._replaced is not None:
            raise InvalidRequest(what=f"fold of {self.range}", reason="it was sealed: pass one is over")
        offsets = offsets_of(batch)
        inside = (offsets >= self.range.start) & (offsets < self.range.stop)
        replacing = replaces_row(changes_of(batch)) & inside
        prev = prev_offsets_of(batch)[replacing]
        _check_prev(prev, offsets[replacing])
        if len(prev):
            within = offsets[inside]
            self._seen.append((int(within[0]), int(within[-1]), prev))

    def seal(self, stop: int | None = None) -> OffsetRange:
        """Ends pass one; `stop` cuts the range shorter, at a boundary between seen batches. Returns the range that
        counts.

        What records at or above the stop replaced is forgotten: those rows are live still."""
        if self._replaced is not None:
            raise InvalidRequest(what=f"fold of {self.range}", reason="it was sealed already: the stop is fixed")
        if stop is not None:
            self.range = OffsetRange(self.range.start, min(stop, self.range.stop))
        previous_below = [prev for first, last, prev in self._seen if self._is_below_stop(first, last)]
        self._replaced = OffsetSet(np.concatenate(previous_below)) if previous_below else OffsetSet()
        self._seen.clear()
        return self.range

    def live(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Pass two: the rows that are live at the range's stop, in order, with the user's columns, `__offset`,
        `__timestamp`.
        """
        offsets = offsets_of(batch)
        inside = (offsets >= self.range.start) & (offsets < self.range.stop)
        return keep_rows(batch, adds_row(changes_of(batch)) & inside & ~self.replaced.mask(offsets))

    @property
    def replaced(self) -> OffsetSet:
        """Every row that a record of the range replaced or deleted, inside the range or below it."""
        if self._replaced is None:
            raise InvalidRequest(what=f"fold of {self.range}", reason="pass one is not over: call seal first")
        return self._replaced

    @property
    def replaced_below(self) -> OffsetSet:
        """The replaced rows that stand below the range: to be found in the lake, or in an earlier sub-split."""
        return self.replaced.below(self.range.start)

    def _is_below_stop(self, first: int, last: int) -> bool:
        if first < self.range.stop <= last:
            raise InvalidRequest(
                what=f"stop {self.range.stop}", reason=f"it cuts the batch [{first}, {last}]; stop at a boundary"
            )
        return first < self.range.stop


def _check_prev(prev: Offsets, offsets: Offsets) -> None:
    wrong = (prev < 0) | (prev >= offsets)
    if wrong.any():
        at = int(offsets[wrong][0])
        raise InvalidRequest(
            what=f"changelog record at offset {at}", reason="a +U or -D names no row before it in __prev_offset"
        )
