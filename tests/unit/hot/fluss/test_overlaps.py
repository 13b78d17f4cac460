# SPDX-License-Identifier: Apache-2.0
"""A commit of the Flink job below offsets that the lake had is noticed; its ordinary rounds and compactions are not."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from lakeward.errors import LakeOverlap, SnapshotGone
from lakeward.hot.fluss.overlaps import check_overlap, flink_snapshots
from lakeward.model import Bucket, OffsetMap, OffsetRange, RoundId, SnapshotId
from lakeward.spi import COMMIT_USER, COMMIT_USER_KEY, LakeFile, LakeSnapshot

B0, B1 = Bucket("", 0), Bucket("", 1)


def snapshot(
    name: str, parent: str | None, *, ours: OffsetMap | None = None, operation: str = "append", user: str = COMMIT_USER
) -> LakeSnapshot:
    return LakeSnapshot(
        snapshot_id=SnapshotId(name),
        parent_id=None if parent is None else SnapshotId(parent),
        committed_at_ms=0,
        operation=operation,
        round_id=None if ours is None else RoundId(f"round-{name}"),
        offsets=ours,
        summary={COMMIT_USER_KEY: user},
    )


def file(path: str, bucket: Bucket, start: int | None, stop: int) -> LakeFile:
    offsets = None if start is None else OffsetRange(start, stop)
    return LakeFile(path=path, bucket=bucket, record_count=1, size_bytes=1, offsets=offsets)


OURS = snapshot("1", None, ours=OffsetMap({B0: 100, B1: 50}))
LATE = snapshot("2", "1")


def check(*added: LakeFile) -> None:
    before = [file("a", B0, 0, 100), file("b", B1, 0, 50)]
    found = {"1": before, "2": [*before, *added]}

    def files(snapshot_id: SnapshotId) -> Sequence[LakeFile]:
        return found[snapshot_id]

    check_overlap("shop.orders", files, OURS, LATE)


def test_the_next_range_of_a_bucket_and_a_bucket_of_its_own_are_fine() -> None:
    check()
    check(file("c", B0, 100, 120), file("d", Bucket("", 2), 0, 7))


@pytest.mark.parametrize("start", [0, 99, None])
def test_rows_below_what_the_lake_had_stop_the_table(start: int | None) -> None:
    """None: rows of a KV snapshot."""
    with pytest.raises(LakeOverlap, match="Move main back to snapshot 1") as found:
        check(file("c", B0, 100, 120), file("d", B0, start, 110))
    assert (found.value.offset, found.value.committed, found.value.snapshot) == (start or 0, 100, "2")


def test_an_expired_parent_tells_nothing() -> None:
    def files(snapshot_id: SnapshotId) -> Sequence[LakeFile]:
        raise SnapshotGone(table="shop.orders", snapshot=snapshot_id, advice="")

    check_overlap("shop.orders", files, OURS, LATE)


def test_only_commits_of_the_flink_job_above_our_newest_are_looked_at() -> None:
    chain = [
        snapshot("0", None),
        snapshot("1", "0", ours=OffsetMap({B0: 5})),
        snapshot("2", "1"),
        snapshot("3", "2", operation="replace"),
        snapshot("4", "3", user="spark"),
        snapshot("5", "4"),
        snapshot("side", "1"),
    ]
    ours, above = flink_snapshots(chain, SnapshotId("5"))
    assert ours is not None
    assert (ours.snapshot_id, [s.snapshot_id for s in above]) == ("1", ["2", "5"])
    assert flink_snapshots(chain[:1], SnapshotId("0"))[0] is None
