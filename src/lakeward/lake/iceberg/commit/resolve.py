# SPDX-License-Identifier: Apache-2.0
"""Resolve (design.md 6.4): replaced offsets become positions in data files, of the head or of the round itself.

A file in ascending offset order gives a position by rank; any other by reading its `__offset` column.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
from pyiceberg.manifest import DataFile

from lakeward.lake.iceberg.datafile.offsetcache import OffsetLoader, positions_of
from lakeward.lake.iceberg.scan.files import IndexedFile
from lakeward.model import Bucket, Offsets, OffsetSet


@dataclass(frozen=True)
class Candidate:
    """A data file that may hold replaced rows. `load` gives its offsets in file order."""

    file: DataFile
    spec_id: int
    bucket: Bucket | None
    first: int | None
    last: int | None
    load: Callable[[], Offsets]

    @classmethod
    def of(cls, indexed: IndexedFile, loader: OffsetLoader) -> Candidate:
        file = indexed.file
        return cls(file, indexed.spec_id, indexed.bucket, indexed.first, indexed.last, lambda: loader.load(file))


@dataclass(frozen=True)
class Hit:
    """Rows of one data file that go; positions ascending."""

    file: DataFile
    spec_id: int
    positions: Offsets


@dataclass
class Resolution:
    hits: list[Hit] = field(default_factory=list)
    missing: dict[Bucket, OffsetSet] = field(default_factory=dict)

    @property
    def count(self) -> int:
        return sum(len(h.positions) for h in self.hits)


def resolve(replaced: Mapping[Bucket, OffsetSet], candidates: Iterable[Candidate]) -> Resolution:
    """Looks in every file whose bucket and bounds fit; a file whose bucket is unknown is looked at for all."""
    by_bucket: dict[Bucket | None, list[Candidate]] = defaultdict(list)
    for candidate in candidates:
        by_bucket[candidate.bucket].append(candidate)
    result, found_in = Resolution(), _Hits()
    for bucket, wanted in replaced.items():
        if not wanted:
            continue
        left = _resolve_bucket(wanted, [*by_bucket[bucket], *by_bucket[None]], found_in)
        if left:
            result.missing[bucket] = left
    result.hits = found_in.hits()
    return result


class _Hits:
    def __init__(self) -> None:
        self._parts: dict[str, tuple[Candidate, list[Offsets]]] = {}

    def add(self, candidate: Candidate, positions: Offsets) -> None:
        self._parts.setdefault(candidate.file.file_path, (candidate, []))[1].append(positions)

    def hits(self) -> list[Hit]:
        return [Hit(c.file, c.spec_id, OffsetSet(np.concatenate(parts)).values) for c, parts in self._parts.values()]


def _resolve_bucket(wanted: OffsetSet, candidates: list[Candidate], found_in: _Hits) -> OffsetSet:
    """What is left unfound."""
    seen = np.zeros(len(wanted), np.bool_)
    for candidate in candidates:
        low, high = _window(wanted.values, candidate)
        if low == high:
            continue
        mask, positions = positions_of(candidate.load(), wanted.values[low:high])
        if mask.any():
            found_in.add(candidate, positions)
            seen[low:high] |= mask
    return OffsetSet.from_sorted(wanted.values[~seen])


def _window(wanted: Offsets, candidate: Candidate) -> tuple[int, int]:
    """The slice of `wanted` that lies within the file's bounds."""
    if candidate.first is None or candidate.last is None:
        return 0, len(wanted)
    low, high = np.searchsorted(wanted, [candidate.first, candidate.last + 1])
    return int(low), int(high)
