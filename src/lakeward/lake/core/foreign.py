# SPDX-License-Identifier: Apache-2.0
"""Foreign rows of a PK table: rows that others inserted since our newest commit. They left no other file, so no
changelog has them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence

import numpy as np
import numpy.typing as npt

from lakeward.lake.core.change import F
from lakeward.lake.core.files import SnapshotFiles
from lakeward.model import Bucket, Offsets, OffsetSet

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


Positions = dict[str, OffsetSet]
"""By the key of a file."""


def find_foreign_rows(
    before: SnapshotFiles[F], now: SnapshotFiles[F], compared: Collection[Bucket], seen: Collection[str]
) -> tuple[Positions, int]:
    """Where they are, and how many of them share the address of a row that moved. `before`: at our newest commit.
    `compared`: buckets that the round compared row by row, which settles the files that it saw, by their keys."""
    known = {before.key(f) for f in before.files}
    added = [f for f in now.files if now.key(f) not in known]
    left = _rows_that_left(before, now) if added else {}
    hits, copies = Positions(), 0
    for file in added:
        live, offsets = now.live_positions(file), now.offsets(file)
        for bucket, places in now.places(file):
            if bucket is not None and bucket in compared and now.key(file) in seen:
                continue
            positions = live if places is None else np.intersect1d(places, live)
            inserted, copied = find_inserted(offsets[positions], [left[bucket]] if bucket in left else [])
            copies += copied
            if inserted.any():
                key = now.key(file)
                hits[key] = hits.get(key, OffsetSet()).union(OffsetSet(positions[inserted]))
    return hits, copies


def _rows_that_left(before: SnapshotFiles[F], now: SnapshotFiles[F]) -> dict[Bucket | None, MovedRows]:
    """Per bucket the offsets whose rows left the files that were there."""
    parts = defaultdict[Bucket | None, list[Offsets]](list)
    still = {now.key(f): f for f in now.files}
    for file in before.files:
        same = still.get(before.key(file))
        if same is not None and same == file:
            continue
        stays = np.empty(0, np.int64) if same is None else now.live_positions(same)
        gone = np.setdiff1d(before.live_positions(file), stays)
        if not len(gone):
            continue
        offsets = before.offsets(file)
        for bucket, places in before.places(file):
            parts[bucket].append(offsets[gone if places is None else np.intersect1d(places, gone)])
    return {bucket: MovedRows(offsets) for bucket, offsets in parts.items()}
