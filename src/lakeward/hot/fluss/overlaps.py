# SPDX-License-Identifier: Apache-2.0
"""Rows that Fluss's Flink job committed below offsets which the lake already had: it came back after its lease had
ended.

Its commits have no precondition, so nothing stops one that was late. The lake then holds rows twice, and offsets that
go back: a round planned on those would write the same rows once more. So every snapshot of the Flink job above our
newest one is looked at once. Files of a clean table do not say their offsets: there rows are counted.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence

from lakeward.errors import LakeOverlap, SnapshotGone
from lakeward.model import Bucket, SnapshotId
from lakeward.spi import COMMIT_USER, COMMIT_USER_KEY, LakeFile, LakeSnapshot

_REWRITE = "replace"
"""The operation of a compaction: its files hold rows that were there before."""

FilesOf = Callable[[SnapshotId], Sequence[LakeFile]]
"""A snapshot's data files. Raises `SnapshotGone`."""


def flink_snapshots(
    snapshots: Sequence[LakeSnapshot], head: SnapshotId
) -> tuple[LakeSnapshot | None, list[LakeSnapshot]]:
    """(our newest ancestor of `head`, the Flink job's snapshots above it, oldest first). Pure."""
    by_id, above = {s.snapshot_id: s for s in snapshots}, list[LakeSnapshot]()
    at: SnapshotId | None = head
    while at is not None and at in by_id:
        snapshot = by_id[at]
        if snapshot.round_id is not None and snapshot.offsets is not None:
            return snapshot, above[::-1]
        if snapshot.summary.get(COMMIT_USER_KEY) == COMMIT_USER and snapshot.operation != _REWRITE:
            above.append(snapshot)
        at = snapshot.parent_id
    return None, above[::-1]


def check_overlap(table: str, files_of: FilesOf, ours: LakeSnapshot, late: LakeSnapshot) -> None:
    """Raises `LakeOverlap` when files that `late` added begin below what `ours` had of their bucket. Rows without
    offsets are those of a KV snapshot, which stands for everything from the beginning."""
    assert ours.offsets is not None
    for file in _added(files_of, late):
        committed = None if file.bucket is None else ours.offsets.get(file.bucket)
        start = 0 if file.offsets is None else file.offsets.start
        if committed is not None and start < committed:
            raise LakeOverlap(
                table=table,
                bucket=str(file.bucket),
                snapshot=late.snapshot_id,
                ours=ours.snapshot_id,
                offset=start,
                committed=committed,
            )


def check_counts(
    table: str, files_of: FilesOf, ours: LakeSnapshot, late: Sequence[LakeSnapshot], head: LakeSnapshot, *, is_pk: bool
) -> None:
    """The same for a clean table. Raises `LakeOverlap` when the head's offset of a bucket is below `ours`, or when the
    late snapshots added more rows to a log's bucket than its offsets moved on. How many rows a range of changes leaves
    cannot be said of a PK table."""
    assert ours.offsets is not None
    reached = ours.offsets if head.offsets is None else head.offsets
    rows: dict[Bucket | None, int] = defaultdict(int)
    for snapshot in () if is_pk else late:
        for file in _added(files_of, snapshot):
            rows[file.bucket] += file.record_count
    # Rows of files that do not say their bucket may be of any: too many for all of them are too many for each.
    excess = sum(rows.values()) - sum(at - ours.offsets.get(bucket, 0) for bucket, at in reached.items())
    mixed = rows[None] if excess > 0 else 0
    for bucket, committed in ours.offsets.items():
        at = reached.get(bucket, committed)
        if at < committed + rows[bucket] + mixed:
            raise LakeOverlap(
                table=table,
                bucket=str(bucket),
                snapshot=late[-1].snapshot_id,
                ours=ours.snapshot_id,
                offset=max(0, at - rows[bucket] - mixed),
                committed=committed,
            )


def _added(files_of: FilesOf, snapshot: LakeSnapshot) -> list[LakeFile]:
    """Nothing where its parent is expired: then it cannot be told any more."""
    try:
        before = set() if snapshot.parent_id is None else {f.path for f in files_of(snapshot.parent_id)}
        return [f for f in files_of(snapshot.snapshot_id) if f.path not in before]
    except SnapshotGone:
        return []
