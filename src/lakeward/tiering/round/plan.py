# SPDX-License-Identifier: Apache-2.0
"""Planning a round: committed offsets, frozen log bounds and KV snapshots become splits. Pure; the plan can
be printed.
"""

from __future__ import annotations

import itertools
import math
import zlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from lakeward.errors import HotStoreBehind, LogTooShort
from lakeward.model import (
    Bucket,
    CutEnds,
    LakeBase,
    LogSplit,
    OffsetRange,
    RoundId,
    RoundPlan,
    SnapshotId,
    SnapshotSplit,
    Split,
    TableInfo,
)
from lakeward.spi import KvSnapshot, LogBounds

DEFAULT_TARGET_BYTES = 128 * 1024 * 1024
UNKNOWN_ROW_BYTES = 100.0
"""Stands in where the store gives no estimate: a short row of a few numbers and a name."""

Align = Callable[[Bucket, int], int]
"""Moves a cut so that it does not fall between a -U and its +U. The identity on log tables."""


@dataclass(frozen=True, kw_only=True)
class PlanOptions:
    """`resync`: the operator accepted the lake as it is; rows that are gone from the log become a gap on purpose.
    `to_compare`: the buckets that are left of it, None for all.

    `on_grid`: sub-splits end at the same offsets wherever the range begins, so that those of another side, which reads
    the log with this one, end there too.

    `one_writer_per_bucket`: a bucket has one split, so the log after a KV snapshot waits for the next round."""

    target_bytes: int = DEFAULT_TARGET_BYTES
    one_writer_per_bucket: bool = False
    resync: bool = False
    to_compare: frozenset[Bucket] | None = None
    on_grid: bool = False

    def compares(self, bucket: Bucket) -> bool:
        return self.resync and (self.to_compare is None or bucket in self.to_compare)


@dataclass(frozen=True, kw_only=True)
class BucketWork:
    """The work of one bucket: a KV snapshot first, or not, then the log range (empty: none)."""

    bucket: Bucket
    snapshot: KvSnapshot | None
    log: OffsetRange
    bytes_per_row: float


def keep_cut(_bucket: Bucket, cut: int) -> int:
    return cut


def plan_stop(
    base: LakeBase, bounds: Mapping[Bucket, LogBounds], cuts: Sequence[CutEnds]
) -> Mapping[Bucket, LogBounds] | None:
    """The bounds up to the oldest cut that the lake has not reached yet, so that a snapshot stands exactly there:
    buckets that came after it wait. None: no cut is in the way."""
    for cut in cuts:
        if not cut.is_passed(base.offsets) and any(base.offsets.get(b, 0) < cut.ends.get(b, 0) for b in bounds):
            ends = cut.ends
            return {b: replace(v, end=max(v.start, min(v.end, ends[b]))) for b, v in bounds.items() if b in ends}
    return None


def plan_snapshots(
    table: TableInfo,
    base: LakeBase,
    bounds: Mapping[Bucket, LogBounds],
    options: PlanOptions,
    *,
    is_stopped: bool = False,
) -> tuple[Bucket, ...]:
    """The buckets of a PK table whose rows must come from a KV snapshot: never tiered, or the log no longer reaches
    back. `is_stopped`: at a cut, which a snapshot of now would be past; a log that is whole has the same rows.
    """
    if not table.is_pk:
        return ()
    needed = tuple(b for b in sorted(bounds) if _needs_snapshot(b, base, bounds[b], options))
    return tuple(b for b in needed if bounds[b].start > 0) if is_stopped else needed


def plan_round(
    *,
    round_id: RoundId,
    table: TableInfo,
    base: LakeBase,
    bounds: Mapping[Bucket, LogBounds],
    snapshots: Mapping[Bucket, KvSnapshot],
    options: PlanOptions,
    planned_at_ms: int,
    align: Align = keep_cut,
) -> RoundPlan:
    """The round as data. Partitions that went away have no bounds and get no split; new ones count as never tiered.

    Raises `LogTooShort` when rows that the lake lacks are gone from the log, `HotStoreBehind` when the lake holds more
    than the log ever had. No new offsets: a plan without splits."""
    splits: list[Split] = []
    for bucket in sorted(bounds):
        work = _plan_bucket(table, bucket, base.offsets.get(bucket), bounds[bucket], snapshots.get(bucket), options)
        splits += _plan_splits(work, options, align)
    return RoundPlan(round_id=round_id, table=table, base=base, splits=tuple(splits), planned_at_ms=planned_at_ms)


def plan_gaps(plan: RoundPlan, bounds: Mapping[Bucket, LogBounds]) -> dict[Bucket, OffsetRange]:
    """Offsets that this plan steps over on purpose: between the committed offset and the first split of a log table.

    A bucket that was never tiered and whose log starts above 0 has a gap too: those rows expired before the lake came.
    """
    gaps: dict[Bucket, OffsetRange] = {}
    for split in plan.splits:
        committed = plan.base.offsets.get(split.bucket, 0)
        if isinstance(split, LogSplit) and split.index == 0 and committed < split.start == bounds[split.bucket].start:
            gaps[split.bucket] = OffsetRange(committed, split.start)
    return gaps


def plan_passed(plan: RoundPlan, bounds: Mapping[Bucket, LogBounds]) -> dict[Bucket, int]:
    """For a resync: buckets without a split whose missing rows are no longer in the log continue at its beginning."""
    split, base = {s.bucket for s in plan.splits}, plan.base.offsets
    return {b: log.start for b, log in bounds.items() if b not in split and b in base and base[b] < log.start}


def plan_left(plan: RoundPlan, gaps: Collection[Bucket], kept: Collection[Bucket]) -> frozenset[Bucket]:
    """For a resync: the buckets that this round was to compare, or to step over a gap in, and did not."""
    compared = {s.bucket for s in plan.splits if isinstance(s, SnapshotSplit)}
    return frozenset({*compared, *gaps} - set(kept))


def plan_comparison(plan: RoundPlan, *, is_resync: bool) -> SnapshotId | None:
    """The lake snapshot to compare KV snapshots with: the rows of a bucket that was tiered before must not be written
    twice. A resync compares all rows of the lake: after a rollback by another engine no Lakeward snapshot may be left
    among the ancestors."""
    again = (isinstance(s, SnapshotSplit) and (is_resync or s.bucket in plan.base.offsets) for s in plan.splits)
    return plan.base.head if any(again) else None


def plan_turns(splits: Sequence[Split], seed: str) -> tuple[Split, ...]:
    """The order of writing: each bucket's first sub-split, then the second ones; buckets in an order of the round's
    own, so that a round that is cut short does not starve the same buckets each time."""
    buckets = sorted({s.bucket for s in splits}, key=lambda b: zlib.crc32(f"{seed}/{b}".encode()))
    turn = {bucket: n for n, bucket in enumerate(buckets)}
    return tuple(sorted(splits, key=lambda s: (s.index, turn[s.bucket])))


def plan_bytes(plan: RoundPlan, bounds: Mapping[Bucket, LogBounds], snapshots: Mapping[Bucket, KvSnapshot]) -> int:
    """An estimate of what the round reads: decides whether it is small enough to share a Spark job."""
    total = 0.0
    for split in plan.splits:
        rows = len(split.range) if isinstance(split, LogSplit) else _snapshot_rows(split, snapshots)
        total += rows * _row_bytes(bounds[split.bucket])
    return int(total)


def _snapshot_rows(split: SnapshotSplit, snapshots: Mapping[Bucket, KvSnapshot]) -> int:
    known = snapshots[split.bucket].rows if split.bucket in snapshots else None
    return split.log_offset if known is None else known


def _row_bytes(bounds: LogBounds) -> float:
    return bounds.bytes_per_row or UNKNOWN_ROW_BYTES


def _needs_snapshot(bucket: Bucket, base: LakeBase, bounds: LogBounds, options: PlanOptions) -> bool:
    """A resync compares a bucket that never had a row, too: another engine may have inserted some into it."""
    is_compared, committed = options.compares(bucket), base.offsets.get(bucket)
    if bounds.end == 0:
        return is_compared and base.head is not None
    return is_compared or committed is None or committed < bounds.start


def _plan_bucket(
    table: TableInfo,
    bucket: Bucket,
    committed: int | None,
    bounds: LogBounds,
    snapshot: KvSnapshot | None,
    options: PlanOptions,
) -> BucketWork:
    if snapshot is not None:
        start = snapshot.log_offset
        return _work(bucket, snapshot, start, max(start, bounds.end), bounds)
    if committed is None and not table.is_pk:
        return _work(bucket, None, bounds.start, bounds.end, bounds)
    committed = committed or 0
    if committed > bounds.end:
        raise HotStoreBehind(table=str(table.path), bucket=str(bucket), committed=committed, end=bounds.end)
    if committed < bounds.start and not (options.resync and not table.is_pk):
        raise LogTooShort(table=str(table.path), bucket=str(bucket), committed=committed, start=bounds.start)
    return _work(bucket, None, max(committed, bounds.start), bounds.end, bounds)


def _work(bucket: Bucket, snapshot: KvSnapshot | None, start: int, stop: int, bounds: LogBounds) -> BucketWork:
    return BucketWork(bucket=bucket, snapshot=snapshot, log=OffsetRange(start, stop), bytes_per_row=_row_bytes(bounds))


def _plan_splits(work: BucketWork, options: PlanOptions, align: Align) -> list[Split]:
    splits: list[Split] = []
    if work.snapshot is not None:
        kv = work.snapshot
        splits.append(SnapshotSplit(bucket=work.bucket, snapshot_id=kv.snapshot_id, log_offset=kv.log_offset))
    is_full = bool(splits) and options.one_writer_per_bucket
    edges = [] if is_full else _plan_edges(work, options, align)
    for start, stop in itertools.pairwise(edges):
        splits.append(LogSplit(bucket=work.bucket, range=OffsetRange(start, stop), index=len(splits)))
    return splits


def _plan_edges(work: BucketWork, options: PlanOptions, align: Align) -> list[int]:
    """Ascending edges of the sub-splits, about equal in size; no edges at all for an empty range."""
    start, stop = work.log.start, work.log.stop
    if start == stop:
        return []
    parts = (
        1 if options.one_writer_per_bucket else math.ceil((stop - start) * work.bytes_per_row / options.target_bytes)
    )
    step = math.ceil((stop - start) / max(1, parts))
    if options.on_grid and parts > 1:
        step = 1 << (step - 1).bit_length()  # estimates of two sides differ a little, powers of two do not
        first = (start // step + 1) * step
    else:
        first = start + step
    cuts = {align(work.bucket, cut) for cut in range(first, stop, step)}
    return [start, *sorted(c for c in cuts if start < c < stop), stop]
