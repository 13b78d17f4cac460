# SPDX-License-Identifier: Apache-2.0
"""Computes offsets of files that Fluss's Flink job added to a clean log table, which do not record them: a log has no
gaps, so they fill the gaps between our files, up to the lake's offset. Pure.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace

from lakeward.lake.paimon.meta.manifests import Entry
from lakeward.model import PARTITION_SEPARATOR, Bucket, OffsetRange


def place_files(entries: Sequence[Entry], bucket_count: int, committed: Mapping[Bucket, int] | None) -> list[Entry]:
    """Returns entries with bucket and offsets, as far as known. `committed`: the offsets of the snapshot; None:
    unknown. Files of a table without a bucket key do not record their bucket, unless there is only one."""
    with_bucket = [_with_bucket(e, bucket_count) for e in entries]
    unplaced = defaultdict[Bucket, list[int]](list)
    for at, entry in enumerate(with_bucket):
        if entry.bucket is not None and entry.placed is None:
            unplaced[entry.bucket].append(at)
    for bucket, places in unplaced.items():
        known_ranges = [e.placed for e in with_bucket if e.bucket == bucket and e.placed is not None]
        in_order = sorted(places, key=lambda at: _age(with_bucket[at], at))
        counts = [int(with_bucket[at].file.row_count) for at in in_order]
        end = None if committed is None else committed.get(bucket)
        for at, range_ in zip(in_order, fill_gaps(known_ranges, counts, end) or (), strict=False):
            with_bucket[at] = replace(with_bucket[at], placed=range_)
    return with_bucket


def fill_gaps(known: Sequence[OffsetRange], counts: Sequence[int], end: int | None) -> list[OffsetRange] | None:
    """Returns ranges of consecutive files, by the number of rows in each; None if they do not fill the gaps between
    `known` and up to `end` exactly. Remaining rows come before the first gap, as a log need not begin at 0. Without an
    `end` the log begins at 0, and remaining rows come after the last gap."""
    gaps, at = list[OffsetRange](), 0
    for range_ in sorted(known, key=lambda r: r.start):
        if range_.start < at:
            return None
        gaps.append(OffsetRange(at, range_.start))
        at = range_.stop
    if end is not None and end < at:
        return None
    gaps.append(OffsetRange(at, at + sum(counts) if end is None else end))
    if end is not None:
        leading = sum(counts) - sum(map(len, gaps[1:]))
        if not 0 <= leading <= gaps[0].stop:
            return None
        gaps[0] = OffsetRange(gaps[0].stop - leading, gaps[0].stop)
    return _cut(gaps, counts, is_open=end is None)


def _cut(gaps: Sequence[OffsetRange], counts: Sequence[int], *, is_open: bool) -> list[OffsetRange] | None:
    ranges, left = list[OffsetRange](), list(counts)
    for gap in gaps:
        at = gap.start
        while at < gap.stop and left:
            ranges.append(OffsetRange(at, at + left.pop(0)))
            at = ranges[-1].stop
        if at != gap.stop and not (is_open and gap is gaps[-1]):
            return None
    return None if left else ranges


def _with_bucket(entry: Entry, bucket_count: int) -> Entry:
    if entry.bucket is not None or bucket_count != 1:
        return entry
    return replace(entry, bucket=Bucket(PARTITION_SEPARATOR.join(entry.partition.values()), 0))


def _age(entry: Entry, at: int) -> tuple[int, int, int]:
    """Whether sequence numbers give offsets: writers of a bucket count its rows on; in a table without buckets each
    begins at 0."""
    file = entry.file
    made_at = 0 if entry.raw.total_buckets > 0 else int(file.creation_time_epoch_millis() or 0)
    return made_at, int(file.min_sequence_number), at
