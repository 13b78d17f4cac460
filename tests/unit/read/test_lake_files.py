# SPDX-License-Identifier: Apache-2.0
"""Files sorted by what goes out of them: clean, by offset, or by file and row."""

from __future__ import annotations

from lakeward.model.bucket import Bucket
from lakeward.model.offsets import OffsetMap, OffsetRange
from lakeward.model.offsetset import OffsetSet
from lakeward.read.spark.lakefiles import group_files
from lakeward.read.spark.stream import advance
from lakeward.read.spark.streamrows import windows
from lakeward.spi.lake import LakeDelete, LakeFile

A, B = Bucket("", 0), Bucket("", 1)


def file(name: str, start: int, stop: int, *deletes: str, bucket: Bucket | None = A) -> LakeFile:
    found = tuple(LakeDelete(path=f"{name}-{d}", content=d, record_count=1) for d in deletes)
    return LakeFile(path=name, bucket=bucket, record_count=stop - start, size_bytes=1, offsets=OffsetRange(start, stop), deletes=found)


def names(files: tuple[LakeFile, ...]) -> list[str]:
    return [f.path for f in files]


def test_what_nothing_touches_is_scanned_as_it_is() -> None:
    files = [file("old", 0, 10), file("new", 10, 20), file("other", 0, 10, bucket=B)]
    groups = group_files(files, {A: OffsetSet([3])}, lambda _: None)
    assert names(groups.clean) == ["new", "other"]
    assert names(groups.by_offset) == ["old"]
    assert groups.dead == {A: OffsetSet([3])}


def test_deletes_go_out_by_offset_where_no_other_file_may_hold_it() -> None:
    deleted = {"one": OffsetSet([4]), "two": OffsetSet([14])}
    groups = group_files([file("one", 0, 10, "positions"), file("two", 10, 20, "vector")], {}, lambda f: deleted[f.path])
    assert names(groups.by_offset) == ["one", "two"]
    assert groups.dead == {A: OffsetSet([4, 14])}


def test_an_offset_that_may_live_on_in_another_file_is_told_apart_by_its_file() -> None:
    """Another engine's UPDATE deletes a row and writes it anew with the same offset."""
    deleted = {"one": OffsetSet([4]), "two": OffsetSet([14])}
    groups = group_files([file("one", 0, 10, "positions"), file("two", 2, 20, "positions")], {}, lambda f: deleted[f.path])
    assert names(groups.by_path) == ["one"], "two's bounds hold 4; one's do not hold 14"
    assert names(groups.by_offset) == ["two"]
    assert groups.dead == {A: OffsetSet([14])}


def test_keys_and_files_without_a_bucket_are_joined_by_spark() -> None:
    groups = group_files([file("keys", 0, 10, "equality"), file("lone", 0, 10, "positions", bucket=None)], {}, lambda _: OffsetSet([1]))
    assert names(groups.by_path) == ["keys", "lone"]
    assert group_files([file("lone", 0, 10, bucket=None)], {A: OffsetSet([1])}, lambda _: None).by_offset


def test_history_is_read_in_parts_that_do_not_overlap() -> None:
    files = [file("b", 10, 20), file("a", 0, 10), file("c", 15, 30), file("d", 40, 50)]
    assert windows(files, OffsetRange(5, 45)) == [OffsetRange(5, 10), OffsetRange(10, 30), OffsetRange(40, 45)]
    assert windows([], OffsetRange(5, 45)) == []


def test_a_micro_batch_takes_an_even_share_of_every_bucket() -> None:
    start, ends = OffsetMap({A: 10}), OffsetMap({A: 100, B: 3})
    assert advance(start, ends, None) == ends
    assert advance(start, ends, 20) == OffsetMap({A: 27, B: 3})
    assert advance(ends, ends, 20) == ends
