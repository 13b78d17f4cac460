# SPDX-License-Identifier: Apache-2.0
"""The part of a round that counts: per bucket the contiguous prefix of its finished sub-splits. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from lakeward.errors import LakewardError
from lakeward.model import Bucket, OffsetRange, OffsetSet, SnapshotSplit, Split
from lakeward.tiering.work.outcome import WriteOutcome


@dataclass(frozen=True, kw_only=True)
class KeptPrefix:
    """The outcomes that count, in bucket and offset order, and their consequences. `offsets`: the next offset to read
    of each bucket that moved. `is_whole`: it includes every split of the plan. `error`: the first failed split's, for
    the report; finished outcomes still count."""

    outcomes: tuple[WriteOutcome, ...] = ()
    offsets: Mapping[Bucket, int] = field(default_factory=dict)
    is_whole: bool = True
    error: LakewardError | None = None

    @property
    def results(self) -> list[bytes]:
        return [o.result for o in self.outcomes if o.result is not None]

    @property
    def rows(self) -> int:
        return sum(o.rows for o in self.outcomes)

    @property
    def replaced(self) -> dict[Bucket, OffsetSet]:
        """Per bucket every offset below its own sub-range that a kept record replaced."""
        return _by_bucket((o.split.bucket, o.replaced) for o in self.outcomes)

    @property
    def renewed(self) -> dict[Bucket, OffsetSet]:
        """Per bucket every offset that was written again because the lake's row of it is not the right one."""
        return _by_bucket((o.split.bucket, o.renewed) for o in self.outcomes)

    def ranges(self) -> dict[Bucket, tuple[OffsetRange, int]]:
        """Per bucket the range that the round adds and the rows that it wrote for it."""
        by_bucket: dict[Bucket, tuple[OffsetRange, int]] = {}
        for o in self.outcomes:
            before, rows = by_bucket.get(o.split.bucket, (OffsetRange(o.split.start, o.split.start), 0))
            by_bucket[o.split.bucket] = (OffsetRange(before.start, o.stop), rows + o.rows)
        return by_bucket


def keep_prefix(splits: Sequence[Split], outcomes: Iterable[WriteOutcome]) -> KeptPrefix:
    """`splits` as planned. A split without an outcome was skipped; one that moved no offset counts as skipped."""
    by_split = {o.split: o for o in outcomes}
    kept_outcomes: list[WriteOutcome] = []
    is_whole = True
    for _, of_bucket in groupby(splits, key=lambda s: s.bucket):
        planned = list(of_bucket)
        prefix = _prefix(planned, by_split)
        kept_outcomes += prefix
        is_whole = is_whole and len(prefix) == len(planned) and prefix[-1].is_whole
    errors = [by_split[s].error for s in splits if s in by_split]
    return KeptPrefix(
        outcomes=tuple(kept_outcomes),
        offsets={o.split.bucket: o.stop for o in kept_outcomes},
        is_whole=is_whole,
        error=next((e for e in errors if e is not None), None),
    )


def _prefix(planned: Sequence[Split], by_split: Mapping[Split, WriteOutcome]) -> list[WriteOutcome]:
    kept: list[WriteOutcome] = []
    for split in planned:
        outcome = by_split.get(split)
        if outcome is None or not outcome.is_ok or not _moved(split, outcome):
            break
        kept.append(outcome)
        if not outcome.is_whole:
            break
    return kept


def _moved(split: Split, outcome: WriteOutcome) -> bool:
    """A snapshot counts whole or not at all, also one that stands for offset 0."""
    return outcome.is_whole if isinstance(split, SnapshotSplit) else outcome.stop > split.start


def _by_bucket(parts: Iterable[tuple[Bucket, OffsetSet]]) -> dict[Bucket, OffsetSet]:
    offsets: dict[Bucket, OffsetSet] = {}
    for bucket, part in parts:
        if part:
            offsets[bucket] = offsets.get(bucket, OffsetSet()).union(part)
    return offsets
