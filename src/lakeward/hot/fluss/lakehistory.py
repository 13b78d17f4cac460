# SPDX-License-Identifier: Apache-2.0
"""History of a Fluss table from the lake's own snapshots: the newest one that Fluss may know, and the ledger. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lakeward.errors import LakeTampered
from lakeward.model import Epoch, JobName, LedgerEntry, LedgerKind, OffsetMap, OffsetRange, RoundId, SnapshotId, TableId
from lakeward.spi import COMMIT_USER, COMMIT_USER_KEY, OFFSETS_KEY, LakeSnapshot

FLINK = JobName("fluss-flink")


@dataclass(frozen=True)
class Registered:
    """A lake snapshot as it is registered with Fluss."""

    snapshot_id: SnapshotId
    path: str


def find_newest(table: str, snapshots: Sequence[LakeSnapshot], head: SnapshotId | None) -> SnapshotId | None:
    """The newest ancestor of main that a tiering job of Fluss's kind wrote, with offsets that Fluss gave a path. None:
    there is none.

    Raises `LakeTampered` for offsets as Fluss 0.7 and 0.8 wrote them: Fluss itself cannot take those over either."""
    by_id = {s.snapshot_id: s for s in snapshots}
    at = head
    while at is not None and at in by_id:
        snapshot = by_id[at]
        if snapshot.summary.get(COMMIT_USER_KEY) == COMMIT_USER:
            path = snapshot.summary.get(OFFSETS_KEY, "")
            if not path or "{" in path:
                reason = "it is not the path of an offsets file; the table was tiered by Fluss 0.8 or older"
                raise LakeTampered(table=table, snapshot=str(at), what=OFFSETS_KEY, reason=reason)
            return snapshot.snapshot_id
        at = snapshot.parent_id
    return None


def read_ledger(table_id: TableId, snapshots: Sequence[LakeSnapshot], head: SnapshotId | None) -> list[LedgerEntry]:
    """One entry per bucket and step of the offsets along main's ancestors, oldest first. Snapshots of the Flink job
    name an offsets file that is deleted: their ranges are included in the next snapshot that we wrote, and count as
    adopted."""
    entries: list[LedgerEntry] = []
    before, is_adopted = OffsetMap(), False
    for snapshot in _chain(snapshots, head):
        is_adopted = is_adopted or (snapshot.round_id is None and snapshot.summary.get(COMMIT_USER_KEY) == COMMIT_USER)
        if snapshot.offsets is None:
            continue
        kind = LedgerKind.ADOPTED if is_adopted else LedgerKind.ROUND
        entries += _entries(table_id, snapshot, before, kind)
        before, is_adopted = snapshot.offsets, False
    return entries


def _entries(table_id: TableId, snapshot: LakeSnapshot, before: OffsetMap, kind: LedgerKind) -> list[LedgerEntry]:
    assert snapshot.offsets is not None
    return [
        LedgerEntry(
            table_id=table_id,
            bucket=bucket,
            range=OffsetRange(before.get(bucket, 0), stop),
            round_id=snapshot.round_id or RoundId(snapshot.snapshot_id),
            snapshot_id=snapshot.snapshot_id,
            epoch=Epoch(snapshot.epoch),
            job=JobName(snapshot.job or FLINK),
            kind=kind,
            generation=snapshot.generation,
            committed_at_ms=snapshot.committed_at_ms,
        )
        for bucket, stop in snapshot.offsets.items()
        if stop > before.get(bucket, 0)
    ]


def _chain(snapshots: Sequence[LakeSnapshot], head: SnapshotId | None) -> list[LakeSnapshot]:
    by_id = {s.snapshot_id: s for s in snapshots}
    chain: list[LakeSnapshot] = []
    at = head
    while at is not None and at in by_id:
        chain.append(by_id[at])
        at = by_id[at].parent_id
    return chain[::-1]
