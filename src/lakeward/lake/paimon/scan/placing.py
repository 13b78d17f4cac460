# SPDX-License-Identifier: Apache-2.0
"""Offsets of files that Fluss's Flink job added to a clean log table, which say nothing of them: a log has no hole, so
that they fill what files of ours leave free, up to where the lake is. Pure.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace

from lakeward.lake.paimon.meta.manifests import Entry
from lakeward.model import PARTITION_SEPARATOR, Bucket, OffsetRange


def place_files(entries: Sequence[Entry], bucket_count: int, committed: Mapping[Bucket, int] | None) -> list[Entry]:
    """With bucket and offsets, as far as they can be told. `committed`: the offsets of the snapshot; None: not known.

    Files of a table without a bucket key do not say their bucket, unless there is one alone."""
    found = [_with_bucket(e, bucket_count) for e in entries]
    unplaced = defaultdict[Bucket, list[int]](list)
    for at, entry in enumerate(found):
        if entry.bucket is not None and entry.placed is None:
            unplaced[entry.bucket].append(at)
    for bucket, places in unplaced.items():
        known = [e.placed for e in found if e.bucket == bucket and e.placed is not None]
        in_order = sorted(places, key=lambda at: _age(found[at], at))
        counts = [int(found[at].file.row_count) for at in in_order]
        end = None if committed is None else committed.get(bucket)
        for at, range_ in zip(in_order, fill_gaps(known, counts, end) or (), strict=False):
            found[at] = replace(found[at], placed=range_)
    return found


def fill_gaps(known: Sequence[OffsetRange], counts: Sequence[int], end: int | None) -> list[OffsetRange] | None:
    """Ranges of files that follow each other, by how many rows each has; None where they do not fill the gaps between
    `known` and up to `end` exactly. What is left over lies before the first gap: a log need not begin at 0. Without an
    `end` it does, and what is left over comes after the last one."""
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
    """Writers of a bucket count its rows on; in a table without buckets each begins at 0."""
    file = entry.file
    made_at = 0 if entry.raw.total_buckets > 0 else int(file.creation_time_epoch_millis() or 0)
    return made_at, int(file.min_sequence_number), at
