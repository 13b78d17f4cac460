# SPDX-License-Identifier: Apache-2.0
"""Which offsets are there, against which should be: bitmaps in blocks, pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakeward.model import Bucket, OffsetRange, Offsets, OffsetSet
from lakeward.verify.certificate import SHOWN, Finding, FindingKind

BLOCK = 1 << 16
"""Offsets to a block. A batch of a lake scan is about as long and, in our files, in order: it touches one or two
blocks.
"""

Mask = npt.NDArray[np.bool_]


@dataclass
class _Tally:
    """How many offsets, and the first of them."""

    count: int = 0
    first: list[int] = field(default_factory=list)

    def add(self, offsets: Offsets) -> None:
        self.count += len(offsets)
        self.first = sorted([*self.first, *(int(o) for o in np.sort(offsets)[:SHOWN])])[:SHOWN]


class AddressCount:
    """Sees the row addresses of one bucket, in any order. One bit for each offset in a block that has any."""

    def __init__(self, stop: int, start: int = 0) -> None:
        """Below `start` a row may be there or not."""
        self._start, self._stop = start, stop
        self._blocks: dict[int, npt.NDArray[np.uint8]] = {}
        self._doubled, self._outside = _Tally(), _Tally()
        self._nameless = 0
        self.rows = 0

    def see_column(self, offsets: pa.Array) -> None:
        """Counts rows without an offset as foreign."""
        self.rows += offsets.null_count
        self._nameless += offsets.null_count
        self.see(offsets.drop_null().to_numpy(zero_copy_only=False))

    def see(self, offsets: Offsets) -> None:
        self.rows += len(offsets)
        inside = (offsets >= 0) & (offsets < self._stop)
        self._outside.add(offsets[~inside])
        unique, counts = np.unique(offsets[inside], return_counts=True)
        self._doubled.add(unique[counts > 1])
        for number, part in _by_block(unique):
            self._mark(number, part[0], counts[part[1]] == 1)

    def _mark(self, number: int, offsets: Offsets, is_single: Mask) -> None:
        seen = self._seen(number)
        local = offsets - number * BLOCK
        again = seen[local] & is_single
        self._doubled.add(offsets[again])
        seen[local] = True
        self._blocks[number] = np.packbits(seen)

    def _seen(self, number: int) -> Mask:
        packed = self._blocks.get(number)
        return np.zeros(BLOCK, np.bool_) if packed is None else np.unpackbits(packed).astype(np.bool_)

    def check_ranges(self, bucket: Bucket, expected: Iterable[OffsetRange]) -> list[Finding]:
        """A log table: every offset of the ranges once, nothing elsewhere."""
        ranges = sorted(expected)
        return self._findings(bucket, lambda start: _mask_of_ranges(ranges, start))

    def check_logged(
        self, bucket: Bucket, expected: Iterable[OffsetRange], kept_from: int, logged: OffsetSet
    ) -> list[Finding]:
        """A PK table's changelog: a put that changes nothing takes an offset too. From `kept_from` on the log says
        which ones have a change; below that any of the ranges may have none."""
        ranges = sorted(expected)

        def wanted(start: int) -> Mask:
            older = np.arange(start, start + BLOCK) < kept_from
            return _mask_of_ranges(ranges, start) & np.where(
                older, self._seen(start // BLOCK), _mask_of_set(logged, start)
            )

        return self._findings(bucket, wanted)

    def check_set(self, bucket: Bucket, expected: OffsetSet) -> list[Finding]:
        """A PK table: exactly the offsets of the rows that are live."""
        return self._findings(bucket, lambda start: _mask_of_set(expected, start))

    def _findings(self, bucket: Bucket, wanted: Callable[[int], Mask]) -> list[Finding]:
        missing, stray = _Tally(), _Tally()
        for number in range(-(-self._stop // BLOCK)):
            start, seen = number * BLOCK, self._seen(number)
            should, counts = wanted(start), np.arange(start, start + BLOCK) >= self._start
            missing.add(np.flatnonzero(should & ~seen & counts) + start)
            stray.add(np.flatnonzero(seen & ~should & counts) + start)
        stray.add(np.array(self._outside.first, np.int64))
        stray.count += self._outside.count - len(self._outside.first)
        parts = (
            (FindingKind.MISSING, missing, "offsets are not in the lake"),
            (FindingKind.DUPLICATE, self._doubled, "offsets are in the lake more than once"),
            (FindingKind.STRAY, stray, "offsets are in the lake and should not be"),
        )
        findings = [_finding(kind, bucket, tally, words) for kind, tally, words in parts if tally.count]
        if self._nameless:
            words = f"{self._nameless} rows carry no offset: another engine wrote them"
            findings.append(Finding(kind=FindingKind.STRAY, bucket=bucket, count=self._nameless, words=words))
        return findings


def _by_block(offsets: Offsets) -> Iterable[tuple[int, tuple[Offsets, slice]]]:
    """Ascending offsets, cut where the block changes."""
    if not len(offsets):
        return
    numbers = offsets // BLOCK
    cuts = [0, *(np.flatnonzero(np.diff(numbers)) + 1).tolist(), len(offsets)]
    for low, high in pairwise(cuts):
        yield int(numbers[low]), (offsets[low:high], slice(low, high))


def _mask_of_ranges(ranges: Sequence[OffsetRange], start: int) -> Mask:
    mask = np.zeros(BLOCK, np.bool_)
    for part in ranges:
        if part.start < start + BLOCK and part.stop > start:
            mask[max(0, part.start - start) : part.stop - start] = True
    return mask


def _mask_of_set(expected: OffsetSet, start: int) -> Mask:
    mask = np.zeros(BLOCK, np.bool_)
    low, high = np.searchsorted(expected.values, (start, start + BLOCK))
    mask[expected.values[low:high] - start] = True
    return mask


def _finding(kind: FindingKind, bucket: Bucket, tally: _Tally, words: str) -> Finding:
    return Finding(
        kind=kind, bucket=bucket, count=tally.count, offsets=tuple(tally.first), words=f"{tally.count} {words}"
    )


def expected_live(kv_offsets: Offsets, replaced_after: OffsetSet, committed: int) -> OffsetSet:
    """Rows of a PK bucket that were live at `committed`, from a later KV snapshot and the changelog between the two.

    A row of then is live still (its offset is in the KV, below `committed`), or a later record replaced it and names
    it."""
    still = kv_offsets[kv_offsets < committed]
    return OffsetSet(np.concatenate([still, replaced_after.below(committed).values]))
