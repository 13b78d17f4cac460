# SPDX-License-Identifier: Apache-2.0
"""Which rows of files that others added were there before, and which came from nowhere: pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from lakeward.model import Offsets

Mask = npt.NDArray[np.bool_]


class MovedRows:
    """Offsets of one bucket whose rows left their files. Each explains one row elsewhere and no more: a row that was
    copied, address and all, stays unexplained whatever moved both since."""

    def __init__(self, left: Iterable[Offsets]) -> None:
        self._offsets, self._left = np.unique(np.concatenate([np.empty(0, np.int64), *left]), return_counts=True)

    def knows(self, offsets: Offsets) -> Mask:
        return np.isin(offsets, self._offsets)

    def explain(self, offsets: Offsets) -> Mask:
        """Which of these rows are such rows; they are not taken for it again."""
        known = np.flatnonzero(self.knows(offsets))
        at = np.searchsorted(self._offsets, offsets[known])
        order = np.argsort(at, kind="stable")
        firsts = np.searchsorted(at[order], at[order])
        explained = order[np.arange(len(order)) - firsts < self._left[at[order]]]
        np.subtract.at(self._left, at[explained], 1)
        mask = np.zeros(len(offsets), np.bool_)
        mask[known[explained]] = True
        return mask


def find_inserted(offsets: Offsets, moved: Sequence[MovedRows]) -> tuple[Mask, int]:
    """Which rows of a file came from nowhere; and how many of them have the address of a row that moved, so that nobody
    can tell which of the two is ours."""
    inserted, known = np.ones(len(offsets), np.bool_), np.zeros(len(offsets), np.bool_)
    for rows in moved:
        inserted[inserted] = ~rows.explain(offsets[inserted])
        known |= rows.knows(offsets)
    return inserted, int((inserted & known).sum())
