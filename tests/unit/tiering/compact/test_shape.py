# SPDX-License-Identifier: Apache-2.0
"""Files by size and age, before and after a compaction."""

from __future__ import annotations

from lakeward.model import Bucket, OffsetRange
from lakeward.spi import LakeFile
from lakeward.tiering.compact.plan import plan_compaction
from lakeward.tiering.compact.shape import describe_shape
from lakeward.tiering.work.options import CompactionPolicy

HOUR_MS = 3_600_000
MB = 1 << 20


def file(number: int, size: int, sequence: int) -> LakeFile:
    offsets = OffsetRange(100 * number, 100 * number + 100)
    return LakeFile(
        path=f"f{number}",
        bucket=Bucket("", 0),
        record_count=100,
        size_bytes=size,
        offsets=offsets,
        sequence=sequence,
        deletes=(),
    )


def test_small_files_of_many_ages_become_one_young_one() -> None:
    files = [file(0, 200 * MB, 1), *(file(n, MB // 2, n) for n in range(1, 9))]
    plan = plan_compaction(files, CompactionPolicy(fan_in=8))
    times = {n: n * HOUR_MS for n in range(2, 9)}  # the first snapshot is no longer there
    shape = describe_shape(files, plan, times, now_ms=8 * HOUR_MS + 1)
    assert [(r["files"], r["before"], r["after"]) for r in shape["sizes"] if r["before"] or r["after"]] == [
        ("below 1 MB", 8, 0),
        ("1 to 16 MB", 0, 1),
        ("128 MB and more", 1, 1),
    ]
    assert [(r["files"], r["before"], r["after"]) for r in shape["ages"]] == [
        ("last hour", 1, 1),
        ("last day", 8, 1),
        ("last week", 0, 0),
        ("older", 0, 0),
    ]
