# SPDX-License-Identifier: Apache-2.0
"""The ledger's own checks: gaps, overlaps, and disagreement with the lake are each seen."""

from __future__ import annotations

from lakeward.model import (
    Bucket,
    Epoch,
    JobName,
    LedgerEntry,
    LedgerKind,
    OffsetMap,
    OffsetRange,
    RoundId,
    SnapshotId,
    TableId,
)
from lakeward.spi import LakeSnapshot
from lakeward.verify.certificate import FindingKind
from lakeward.verify.ledger import (
    by_bucket,
    check_against_lake,
    check_contiguous,
    check_snapshots,
    expected_ranges,
    lake_ahead,
    newest_generation,
)

B = Bucket("", 0)


def entry(
    start: int, stop: int, name: str = "r", kind: LedgerKind = LedgerKind.ROUND, generation: int = 0
) -> LedgerEntry:
    return LedgerEntry(
        table_id=TableId("t"),
        bucket=B,
        range=OffsetRange(start, stop),
        round_id=RoundId(name),
        snapshot_id=SnapshotId("1"),
        epoch=Epoch(1),
        job=JobName("j"),
        kind=kind,
        generation=generation,
    )


def test_contiguous_ranges_are_fine() -> None:
    assert check_contiguous(B, [entry(0, 5), entry(5, 5), entry(5, 9)]) == []


def test_a_gap_and_an_overlap_are_named_with_their_offsets() -> None:
    (gap,) = check_contiguous(B, [entry(0, 5), entry(7, 9)])
    assert (gap.kind, gap.count, gap.offsets) == (FindingKind.LEDGER_GAP, 2, (5,))
    (overlap,) = check_contiguous(B, [entry(0, 5), entry(3, 9)])
    assert (overlap.kind, overlap.count, overlap.offsets) == (FindingKind.LEDGER_OVERLAP, 2, (3,))


def test_a_lake_behind_is_a_finding_and_one_ahead_is_not() -> None:
    grouped = by_bucket([entry(0, 5)])
    assert check_against_lake(grouped, OffsetMap({B: 3}))[0].kind is FindingKind.LEDGER_MISMATCH
    assert check_against_lake(grouped, OffsetMap({B: 8})) == []
    assert lake_ahead(grouped, OffsetMap({B: 8})) == {B: OffsetRange(5, 8)}


def test_a_snapshot_that_says_another_offset_is_a_finding() -> None:
    told = LakeSnapshot(
        snapshot_id=SnapshotId("1"),
        parent_id=None,
        committed_at_ms=0,
        operation="append",
        round_id=RoundId("r"),
        offsets=OffsetMap({B: 6}),
    )
    assert check_snapshots(by_bucket([entry(0, 5)]), [told])[0].kind is FindingKind.LEDGER_MISMATCH
    assert check_snapshots(by_bucket([entry(0, 6)]), [told]) == []


def test_expected_ranges_leave_recorded_gaps_out_and_old_generations_do_not_count() -> None:
    entries = [entry(0, 5), entry(5, 8, kind=LedgerKind.GAP), entry(8, 12)]
    assert expected_ranges(entries, 12) == [OffsetRange(0, 5), OffsetRange(8, 12)]
    assert newest_generation([entry(0, 9), entry(0, 4, generation=1)]) == [entry(0, 4, generation=1)]


def test_a_gap_over_rows_that_a_round_brought_before_takes_nothing_away() -> None:
    entries = [entry(0, 5), entry(3, 5, kind=LedgerKind.GAP), entry(5, 8, kind=LedgerKind.GAP), entry(8, 12)]
    assert expected_ranges(entries, 12) == [OffsetRange(0, 5), OffsetRange(8, 12)]
    assert check_contiguous(B, entries) == []


def test_a_ledger_that_does_not_begin_at_the_first_offset_is_a_finding() -> None:
    (gap,) = check_contiguous(B, [entry(4, 9)])
    assert (gap.kind, gap.count, gap.offsets) == (FindingKind.LEDGER_GAP, 4, (0,))


def test_an_entry_inside_another_does_not_hide_what_follows() -> None:
    found = check_contiguous(B, [entry(0, 10), entry(2, 3), entry(9, 11)])
    assert [(f.kind, f.offsets) for f in found] == [
        (FindingKind.LEDGER_OVERLAP, (2,)),
        (FindingKind.LEDGER_OVERLAP, (9,)),
    ]
