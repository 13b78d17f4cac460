# SPDX-License-Identifier: Apache-2.0
"""What the planner promises for any sequence of rounds: few files, few rewrites, and an end."""

from __future__ import annotations

import math
from dataclasses import dataclass
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from lakeward.model import Bucket, OffsetRange
from lakeward.spi import LakeDelete, LakeFile
from lakeward.tiering.compact.plan import PlannedGroup, plan_compaction
from lakeward.tiering.work.options import CompactionPolicy

ROW_BYTES = 10


@dataclass
class Lake:
    """One bucket. `rewritten` counts, per file, how often each of its rows was rewritten at most."""

    policy: CompactionPolicy
    files: list[LakeFile]
    rewritten: dict[str, int]
    end: int = 0
    number: int = 0

    def add(self, rows: int) -> None:
        self.files.append(self._file(self.end, rows, 0))
        self.end += rows

    def compact(self) -> bool:
        groups = plan_compaction(self.files, self.policy).groups
        for group in groups:
            self._rewrite(group)
        return bool(groups)

    def _rewrite(self, group: PlannedGroup) -> None:
        inputs = [f.file for f in group.files]
        assert sum(f.size_bytes for f in inputs) <= self.policy.target_bytes
        at = self.files.index(inputs[0])
        assert self.files[at : at + len(inputs)] == inputs, "a group is a run of neighbours"
        assert inputs[0].offsets is not None
        often = 1 + max(self.rewritten[f.path] for f in inputs)
        self.files[at : at + len(inputs)] = [self._file(inputs[0].offsets.start, group.rows, often)]

    def _file(self, start: int, rows: int, often: int) -> LakeFile:
        self.number += 1
        path = f"{self.number:06}"
        self.rewritten[path] = often
        return LakeFile(
            path=path,
            bucket=Bucket("", 0),
            record_count=rows,
            size_bytes=rows * ROW_BYTES,
            offsets=OffsetRange(start, start + rows),
        )


@settings(max_examples=20)
@given(st.integers(2, 8), st.integers(1, 200), st.randoms(use_true_random=False))
def test_rows_are_rewritten_at_most_once_per_class_and_files_stay_few(fan_in: int, most: int, random: Random) -> None:
    lake = Lake(CompactionPolicy(fan_in=fan_in, target_bytes=5_000 * ROW_BYTES), [], {})
    for _ in range(150):
        lake.add(random.randint(1, most))
        lake.compact()
        assert not lake.compact(), "what was planned once needs no second plan"
        classes = math.floor(math.log(min(lake.end, 5_000), lake.policy.growth)) + 1
        assert max(lake.rewritten[f.path] for f in lake.files) <= classes
        still_open = [f for f in lake.files if f.size_bytes * 2 < lake.policy.target_bytes]
        assert len(still_open) <= fan_in * classes


@given(st.lists(st.tuples(st.integers(1, 500), st.integers(0, 500)), min_size=1, max_size=60), st.booleans())
def test_what_is_left_has_few_deleted_rows(sizes: list[tuple[int, int]], is_quiet: bool) -> None:
    start, files = 0, []
    for n, (rows, deleted) in enumerate(sizes):
        delete = LakeDelete(path=f"d{n}", content="positions", record_count=min(rows, deleted))
        offsets = OffsetRange(start, start + rows)
        size = rows * ROW_BYTES
        deletes = (delete,) if deleted else ()
        files.append(
            LakeFile(
                path=f"{n:03}",
                bucket=Bucket("", 0),
                record_count=rows,
                size_bytes=size,
                offsets=offsets,
                deletes=deletes,
            )
        )
        start += rows
    policy = CompactionPolicy(fan_in=4, target_bytes=5_000 * ROW_BYTES, quiet_sequence=0 if is_quiet else -1)
    groups = plan_compaction(files, policy).groups
    taken = [f.file.path for g in groups for f in g.files]
    assert len(taken) == len(set(taken)), "a file is in one group"
    left = [f for f in files if f.path not in taken]
    assert all(sum(d.record_count for d in f.deletes) <= policy.max_deleted * f.record_count for f in left)
    if is_quiet:
        assert len(left) <= 1
