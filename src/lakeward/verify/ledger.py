# SPDX-License-Identifier: Apache-2.0
"""Checks of the ledger itself, purely: contiguous per bucket, and the same story as the lake's snapshots tell."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

from lakeward.model.bucket import Bucket
from lakeward.model.ledger import LedgerEntry, LedgerKind
from lakeward.model.offsets import OffsetMap, OffsetRange
from lakeward.spi.lake import LakeSnapshot
from lakeward.verify.certificate import Finding, FindingKind


def newest_generation(entries: Iterable[LedgerEntry]) -> list[LedgerEntry]:
    """Entries of the newest generation: a resync starts a new story."""
    listed = list(entries)
    newest = max((e.generation for e in listed), default=0)
    return [e for e in listed if e.generation == newest]


def by_bucket(entries: Iterable[LedgerEntry]) -> dict[Bucket, list[LedgerEntry]]:
    grouped: dict[Bucket, list[LedgerEntry]] = {}
    for entry in entries:
        grouped.setdefault(entry.bucket, []).append(entry)
    for ranges in grouped.values():
        ranges.sort(key=lambda e: (e.range.start, e.range.stop))
    return grouped


def check_contiguous(bucket: Bucket, entries: Sequence[LedgerEntry]) -> list[Finding]:
    """`entries` of one bucket in order: each begins where the one before ended."""
    found = []
    for before, after in pairwise(entries):
        start, end = after.range.start, before.range.stop
        if start > end:
            words = f"the ledger jumps from {end} (round {before.round_id}) to {start} (round {after.round_id})"
            found.append(Finding(kind=FindingKind.LEDGER_GAP, bucket=bucket, words=words, count=start - end, offsets=(end,)))
        elif start < end and len(after.range):
            words = f"rounds {before.round_id} and {after.round_id} both claim [{start}, {min(end, after.range.stop)})"
            overlap = min(end, after.range.stop) - start
            found.append(Finding(kind=FindingKind.LEDGER_OVERLAP, bucket=bucket, words=words, count=overlap, offsets=(start,)))
    return found


def check_against_lake(grouped: Mapping[Bucket, Sequence[LedgerEntry]], lake: OffsetMap) -> list[Finding]:
    """The ledger ends where the lake's head says. A lake ahead is no finding: the next round adopts it."""
    found = []
    for bucket in sorted({*grouped, *lake}):
        end = max((e.range.stop for e in grouped.get(bucket, ())), default=0)
        held = lake.get(bucket, 0)
        if end > held:
            words = f"the ledger ends at {end}, the lake at {held}"
            found.append(Finding(kind=FindingKind.LEDGER_MISMATCH, bucket=bucket, words=words, count=end - held, offsets=(held,)))
    return found


def lake_ahead(grouped: Mapping[Bucket, Sequence[LedgerEntry]], lake: OffsetMap) -> dict[Bucket, OffsetRange]:
    """Ranges the lake has and the ledger does not know yet."""
    ahead = {}
    for bucket, held in lake.items():
        end = max((e.range.stop for e in grouped.get(bucket, ())), default=0)
        if held > end:
            ahead[bucket] = OffsetRange(end, held)
    return ahead


def check_snapshots(grouped: Mapping[Bucket, Sequence[LedgerEntry]], snapshots: Iterable[LakeSnapshot]) -> list[Finding]:
    """Each retained snapshot of ours says the same end offset as the ledger's entry of that round."""
    ends = {(e.round_id, b): e.range.stop for b, entries in grouped.items() for e in entries if e.kind is LedgerKind.ROUND}
    found = []
    for snapshot in snapshots:
        if snapshot.round_id is None or snapshot.offsets is None:
            continue
        for bucket, offset in snapshot.offsets.items():
            recorded = ends.get((snapshot.round_id, bucket))
            if recorded is not None and recorded != offset:
                words = (
                    f"snapshot {snapshot.snapshot_id} says {offset}, the ledger's entry of its round {snapshot.round_id} says {recorded}"
                )
                found.append(Finding(kind=FindingKind.LEDGER_MISMATCH, bucket=bucket, words=words, offsets=(offset,)))
    return found


def expected_ranges(entries: Sequence[LedgerEntry], committed: int) -> list[OffsetRange]:
    """What the lake must hold of a log table's bucket: `[0, committed)` less the recorded gaps."""
    gaps = sorted((e.range for e in entries if e.kind is LedgerKind.GAP), key=lambda r: r.start)
    ranges, at = [], 0
    for gap in gaps:
        if gap.start > at:
            ranges.append(OffsetRange(at, min(gap.start, committed)))
        at = max(at, gap.stop)
    if at < committed:
        ranges.append(OffsetRange(at, committed))
    return ranges
