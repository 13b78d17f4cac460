# SPDX-License-Identifier: Apache-2.0
"""Foreign rows of a PK table: rows that other engines inserted since our newest commit. They were not moved from
another file, so no changelog has them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic

import numpy as np
import numpy.typing as npt

from lakeward.errors import ForeignRowsFound
from lakeward.lake.core.change import F
from lakeward.lake.core.files import AddressedFiles
from lakeward.model import Bucket, Offsets, OffsetSet, TableInfo
from lakeward.spi import Renewal, removes_foreign_rows

Mask = npt.NDArray[np.bool_]
_NONE = np.empty(0, np.int64)


class MovedRows:
    """Offsets of one bucket whose rows left their files. Each offset explains one row elsewhere and no more: a copied
    row with the same address stays unexplained."""

    def __init__(self, left: Iterable[Offsets]) -> None:
        self._offsets, self._left = np.unique(np.concatenate([np.empty(0, np.int64), *left]), return_counts=True)

    def knows(self, offsets: Offsets) -> Mask:
        return np.isin(offsets, self._offsets)

    def explain(self, offsets: Offsets) -> Mask:
        """Marks the rows that are explained by a moved row; each moved row is used once."""
        candidates = np.flatnonzero(self.knows(offsets))
        at = np.searchsorted(self._offsets, offsets[candidates])
        order = np.argsort(at, kind="stable")
        firsts = np.searchsorted(at[order], at[order])
        explained = order[np.arange(len(order)) - firsts < self._left[at[order]]]
        np.subtract.at(self._left, at[explained], 1)
        mask = np.zeros(len(offsets), np.bool_)
        mask[candidates[explained]] = True
        return mask


def find_inserted(offsets: Offsets, moved: Sequence[MovedRows]) -> tuple[Mask, int]:
    """Marks the rows of a file that were not moved there. Also counts those with the address of a row that moved, of
    which either may be our own."""
    inserted, known = np.ones(len(offsets), np.bool_), np.zeros(len(offsets), np.bool_)
    for rows in moved:
        inserted[inserted] = ~rows.explain(offsets[inserted])
        known |= rows.knows(offsets)
    return inserted, int((inserted & known).sum())


Positions = dict[str, OffsetSet]
"""Positions by file key."""


def find_foreign_rows(
    before: AddressedFiles[F], now: AddressedFiles[F], compared: Collection[Bucket], seen: Collection[str]
) -> tuple[Positions, int]:
    """Returns the positions of foreign rows, and how many of them share the address of a row that moved. `before`:
    files at our newest commit. `compared`: buckets that the round compared row by row, which settles the files that it
    saw, by their keys."""
    keys_before = {before.key(f) for f in before.files}
    added = [f for f in now.files if now.key(f) not in keys_before]
    moved_rows = _rows_that_left(before, now) if added else {}
    hits, copies = Positions(), 0
    for file in added:
        is_seen = now.key(file) in seen
        unsettled = [(b, p) for b, p in now.places(file) if b is None or b not in compared or not is_seen]
        live, offsets = (now.live_positions(file), now.offsets(file)) if unsettled else (_NONE, _NONE)
        for bucket, places in unsettled:
            positions = live if places is None else np.intersect1d(places, live)
            inserted, copied = find_inserted(
                offsets[positions], [moved_rows[b] for b in now.origins(bucket, moved_rows)]
            )
            copies += copied
            if inserted.any():
                key = now.key(file)
                hits[key] = hits.get(key, OffsetSet()).union(OffsetSet(positions[inserted]))
    return hits, copies


def _rows_that_left(before: AddressedFiles[F], now: AddressedFiles[F]) -> dict[Bucket | None, MovedRows]:
    """Returns, per bucket, the offsets of rows that left the files of `before`."""
    parts = defaultdict[Bucket | None, list[Offsets]](list)
    still = {now.key(f): f for f in now.files}
    for file in before.files:
        same = still.get(before.key(file))
        if same is not None and now.is_same(same, file):
            continue
        stays = np.empty(0, np.int64) if same is None else now.live_positions(same)
        removed_positions = np.setdiff1d(before.live_positions(file), stays)
        if not len(removed_positions):
            continue
        offsets = before.offsets(file)
        for bucket, places in before.places(file):
            parts[bucket].append(
                offsets[removed_positions if places is None else np.intersect1d(places, removed_positions)]
            )
    return {bucket: MovedRows(offsets) for bucket, offsets in parts.items()}


@dataclass(frozen=True)
class ForeignFile(Generic[F]):
    """A file that a foreign snapshot added since our newest commit, in a format that merges by key. `is_late`: it was
    added after the snapshot that the round compared rows with."""

    file: F
    path: str
    bucket: Bucket | None
    rows: int
    is_late: bool


def find_foreign_files(files: Iterable[ForeignFile[F]], renewal: Renewal | None) -> list[ForeignFile[F]]:
    """Returns the files whose rows no changelog has. A round that compared a bucket's rows settles the files that it
    saw."""
    compared = () if renewal is None else renewal.offsets.keys()
    return [f for f in files if f.bucket not in compared or f.is_late]


def check_foreign(
    table: TableInfo,
    snapshots: Iterable[str],
    rows: int,
    file: str,
    *,
    is_resync: bool,
    is_ambiguous: bool,
) -> None:
    """Checks that a round may remove foreign rows: a resync, which compares, always may. `is_ambiguous`: foreign rows
    cannot be told from our own. Raises `ForeignRowsFound`."""
    if not is_resync and (is_ambiguous or not removes_foreign_rows(table)):
        raise ForeignRowsFound(table=str(table.path), snapshots=", ".join(snapshots), rows=rows, file=file)
