# SPDX-License-Identifier: Apache-2.0
"""Checks of the ledger itself, purely: contiguous per bucket, and the same story as the lake's snapshots tell."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from lakeward.model import Bucket, LedgerEntry, LedgerKind, OffsetMap, OffsetRange, SnapshotId
from lakeward.spi import LakeSnapshot
from lakeward.verify.certificate import Finding, FindingKind


def newest_generation(entries: Iterable[LedgerEntry]) -> list[LedgerEntry]:
    """Entries of the newest generation: a resync starts a new story."""
    listed = [e for e in entries if e.kind is not LedgerKind.DROPPED]
    newest = max((e.generation for e in listed), default=0)
    return [e for e in listed if e.generation == newest]


def dropped_below(entries: Iterable[LedgerEntry]) -> dict[Bucket, int]:
    """Up to where a changelog's retention let rows go, in whatever generation."""
    floors: dict[Bucket, int] = {}
    for entry in entries:
        if entry.kind is LedgerKind.DROPPED:
            floors[entry.bucket] = max(floors.get(entry.bucket, 0), entry.range.stop)
    return floors


def by_bucket(entries: Iterable[LedgerEntry]) -> dict[Bucket, list[LedgerEntry]]:
    grouped: dict[Bucket, list[LedgerEntry]] = {}
    for entry in entries:
        grouped.setdefault(entry.bucket, []).append(entry)
    for ranges in grouped.values():
        ranges.sort(key=lambda e: (e.range.start, e.range.stop))
    return grouped


def check_contiguous(bucket: Bucket, entries: Sequence[LedgerEntry]) -> list[Finding]:
    """`entries` of one bucket in order: from offset 0 each begins where the ones before ended.

    A gap may lie over a round: the hot log was restored from before it and went on above, and the lake has the rows."""
    findings = []
    if entries and entries[0].range.start > 0:
        first = entries[0]
        words = f"the ledger begins at {first.range.start} (round {first.round_id}), not at 0"
        findings.append(
            Finding(kind=FindingKind.LEDGER_GAP, bucket=bucket, words=words, count=first.range.start, offsets=(0,))
        )
    reached = entries[0] if entries else None
    for entry in entries[1:]:
        assert reached is not None
        start, end = entry.range.start, reached.range.stop
        if start > end:
            words = f"the ledger jumps from {end} (round {reached.round_id}) to {start} (round {entry.round_id})"
            findings.append(
                Finding(kind=FindingKind.LEDGER_GAP, bucket=bucket, words=words, count=start - end, offsets=(end,))
            )
        elif start < end and len(entry.range) and LedgerKind.GAP not in (entry.kind, reached.kind):
            words = f"rounds {reached.round_id} and {entry.round_id} both claim [{start}, {min(end, entry.range.stop)})"
            overlap = min(end, entry.range.stop) - start
            findings.append(
                Finding(kind=FindingKind.LEDGER_OVERLAP, bucket=bucket, words=words, count=overlap, offsets=(start,))
            )
        reached = entry if entry.range.stop >= end else reached
    return findings


def check_against_lake(grouped: Mapping[Bucket, Sequence[LedgerEntry]], lake: OffsetMap) -> list[Finding]:
    """The ledger ends where the lake's head says. A lake ahead is no finding: the next round adopts it."""
    findings = []
    for bucket in sorted({*grouped, *lake}):
        end = max((e.range.stop for e in grouped.get(bucket, ())), default=0)
        held = lake.get(bucket, 0)
        if end > held:
            words = f"the ledger ends at {end}, the lake at {held}"
            findings.append(
                Finding(kind=FindingKind.LEDGER_MISMATCH, bucket=bucket, words=words, count=end - held, offsets=(held,))
            )
    return findings


def ledger_ends(grouped: Mapping[Bucket, Sequence[LedgerEntry]]) -> dict[Bucket, int]:
    return {bucket: max(e.range.stop for e in entries) for bucket, entries in grouped.items() if entries}


def removed_snapshots(
    grouped: Mapping[Bucket, Sequence[LedgerEntry]], retained: Iterable[LakeSnapshot]
) -> list[tuple[SnapshotId, OffsetRange]]:
    """Snapshots that rounds of the ledger made and the lake no longer retains, oldest first, with a range that each
    added.
    """
    retained_ids = {s.snapshot_id for s in retained}
    listed = sorted((e for entries in grouped.values() for e in entries), key=lambda e: e.committed_at_ms)
    removed_ids = {
        e.snapshot_id: e.range
        for e in listed
        if e.kind is LedgerKind.ROUND and e.snapshot_id and e.snapshot_id not in retained_ids
    }
    return list(removed_ids.items())


def lake_ahead(grouped: Mapping[Bucket, Sequence[LedgerEntry]], lake: OffsetMap) -> dict[Bucket, OffsetRange]:
    """Ranges the lake has and the ledger does not know yet."""
    ahead = {}
    for bucket, held in lake.items():
        end = max((e.range.stop for e in grouped.get(bucket, ())), default=0)
        if held > end:
            ahead[bucket] = OffsetRange(end, held)
    return ahead


def check_snapshots(
    grouped: Mapping[Bucket, Sequence[LedgerEntry]], snapshots: Iterable[LakeSnapshot]
) -> list[Finding]:
    """Checks that each retained Lakeward snapshot ends where the ledger's entry of its round does, or inside it: old
    entries are merged, and the merged entry keeps the first round's id."""
    ranges = {(e.round_id, b): e.range for b, entries in grouped.items() for e in entries if e.kind is LedgerKind.ROUND}
    findings = []
    for snapshot in snapshots:
        if snapshot.round_id is None:
            continue
        for bucket, offset in (snapshot.offsets or {}).items():
            recorded = ranges.get((snapshot.round_id, bucket))
            if recorded is not None and not recorded.start <= offset <= recorded.stop:
                story = (
                    f"snapshot {snapshot.snapshot_id} says {offset}, the ledger's entry of its round "
                    f"{snapshot.round_id} says {recorded}"
                )
                findings.append(
                    Finding(kind=FindingKind.LEDGER_MISMATCH, bucket=bucket, words=story, offsets=(offset,))
                )
    return findings


def expected_ranges(entries: Sequence[LedgerEntry], committed: int) -> list[OffsetRange]:
    """Ranges that the lake must hold of a log table's bucket: `[0, committed)` less the recorded gaps that no round
    filled before."""
    held = sorted(e.range for e in entries if e.kind is not LedgerKind.GAP)
    gaps = sorted(e.range for e in entries if e.kind is LedgerKind.GAP)
    ranges, at = [], 0
    for gap in _less(gaps, held):
        if gap.start > at:
            ranges.append(OffsetRange(at, min(gap.start, committed)))
        at = max(at, gap.stop)
    if at < committed:
        ranges.append(OffsetRange(at, committed))
    return ranges


def _less(ranges: Iterable[OffsetRange], taken: Sequence[OffsetRange]) -> Iterator[OffsetRange]:
    """The parts of `ranges` that are in none of `taken`; both ascending."""
    for part in ranges:
        at = part.start
        for other in taken:
            if other.stop <= at or other.start >= part.stop:
                continue
            if other.start > at:
                yield OffsetRange(at, other.start)
            at = max(at, other.stop)
        if at < part.stop:
            yield OffsetRange(at, part.stop)
