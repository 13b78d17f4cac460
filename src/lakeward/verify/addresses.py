# SPDX-License-Identifier: Apache-2.0
"""Which offsets are there, against which should be: counts over numpy arrays, pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from lakeward.model.bucket import Bucket
from lakeward.model.offsets import OffsetRange
from lakeward.model.offsetset import Offsets, OffsetSet
from lakeward.verify.certificate import SHOWN, Finding, FindingKind


class AddressCount:
    """Counts rows per offset of one bucket. One byte for each offset up to `stop`, whatever the number of rows."""

    def __init__(self, stop: int) -> None:
        self._counts = np.zeros(stop, np.uint8)
        self._strays: list[Offsets] = []
        self.rows = 0

    def see(self, offsets: Offsets) -> None:
        inside = (offsets >= 0) & (offsets < len(self._counts))
        held = offsets[inside]
        unique, counts = np.unique(held, return_counts=True)
        self._counts[unique] = np.minimum(self._counts[unique] + counts, 255).astype(np.uint8)
        if len(held) < len(offsets):
            self._strays.append(offsets[~inside])
        self.rows += len(offsets)

    def check_ranges(self, bucket: Bucket, expected: Iterable[OffsetRange]) -> list[Finding]:
        """A log table: every offset of the ranges once, nothing elsewhere."""
        wanted = np.zeros(len(self._counts), np.bool_)
        for part in expected:
            wanted[part.start : part.stop] = True
        return self._findings(bucket, wanted)

    def check_set(self, bucket: Bucket, expected: OffsetSet) -> list[Finding]:
        """A PK table: exactly the offsets of the rows that are live."""
        wanted = np.zeros(len(self._counts), np.bool_)
        wanted[expected.values] = True
        return self._findings(bucket, wanted)

    def _findings(self, bucket: Bucket, wanted: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> list[Finding]:
        missing = np.flatnonzero(wanted & (self._counts == 0))
        twice = np.flatnonzero(self._counts > 1)
        stray = np.concatenate([np.flatnonzero(~wanted & (self._counts > 0)), *self._strays]).astype(np.int64)
        parts = (
            (FindingKind.MISSING, missing, "offsets are not in the lake"),
            (FindingKind.DUPLICATE, twice, "offsets are in the lake more than once"),
            (FindingKind.STRAY, stray, "offsets are in the lake and should not be"),
        )
        return [_finding(kind, bucket, at, words) for kind, at, words in parts if len(at)]


def _finding(kind: FindingKind, bucket: Bucket, at: Sequence[int] | Offsets, words: str) -> Finding:
    first = tuple(int(o) for o in at[:SHOWN])
    return Finding(kind=kind, bucket=bucket, count=len(at), offsets=first, words=f"{len(at)} {words}")


def expected_live(kv_offsets: Offsets, replaced_after: OffsetSet, committed: int) -> OffsetSet:
    """Rows of a PK bucket that were live at `committed`, from a later KV snapshot and the changelog between the two.

    A row of then is live still (its offset is in the KV, below `committed`), or a later record replaced it and names it."""
    still = kv_offsets[kv_offsets < committed]
    return OffsetSet(np.concatenate([still, replaced_after.below(committed).values]))
