# SPDX-License-Identifier: Apache-2.0
"""Files sorted by what goes out of them: clean, by offset, or by file and row."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from lakeward.model import Bucket, OffsetMap, OffsetRange, OffsetSet
from lakeward.read.spark.batch import why_no_scan
from lakeward.read.spark.deadrows import runs_of, to_words
from lakeward.read.spark.lakefiles import group_files, scope_keys
from lakeward.read.spark.stream import advance, as_origin, begin_of, position
from lakeward.read.streamrows import windows
from lakeward.spi import LakeDelete, LakeFile

A, B = Bucket("", 0), Bucket("", 1)


def file(name: str, start: int, stop: int, *deletes: str, bucket: Bucket | None = A) -> LakeFile:
    found = tuple(LakeDelete(path=f"{name}-{d}", content=d, record_count=1) for d in deletes)
    return LakeFile(
        path=name,
        bucket=bucket,
        record_count=stop - start,
        size_bytes=1,
        offsets=OffsetRange(start, stop),
        deletes=found,
    )


def names(files: tuple[LakeFile, ...]) -> list[str]:
    return [f.path for f in files]


def test_what_nothing_touches_is_scanned_as_it_is() -> None:
    files = [file("old", 0, 10), file("new", 10, 20), file("other", 0, 10, bucket=B)]
    assert not group_files(files, {}, lambda _: None).by_offset
    groups = group_files(files, {A: OffsetSet([3])}, lambda _: None)
    assert names(groups.clean) == ["new", "other"]
    assert names(groups.by_offset) == ["old"]
    assert groups.dead == {A: OffsetSet([3])}


def test_few_clean_rows_are_looked_at_with_the_others_unless_they_may_hold_a_dead_offset() -> None:
    big = file("big", 0, 1_000, "positions")
    deleted = {"big": OffsetSet([4])}
    groups = group_files([big, file("little", 1_000, 1_010)], {}, lambda f: deleted[f.path])
    assert (names(groups.clean), names(groups.by_offset)) == ([], ["big", "little"])
    copied = group_files([big, file("copy", 4, 5)], {}, lambda f: deleted[f.path])
    assert names(copied.clean) == ["copy"], "it has offset 4, live"


def test_dead_rows_in_runs() -> None:
    assert runs_of(OffsetSet()) == []
    assert runs_of(OffsetSet([7])) == [OffsetRange(7, 8)]
    assert runs_of(OffsetSet([9, 1, 2, 3, 5, 6])) == [OffsetRange(1, 4), OffsetRange(5, 7), OffsetRange(9, 10)]


def test_dead_rows_as_a_bitmap() -> None:
    keys = np.array([0, 63, 64, 200], np.int64)
    words = to_words(keys)
    assert len(words) == 4
    assert [k for k in range(256) if int(words[k >> 6]) >> (k & 63) & 1] == keys.tolist()


def test_deletes_go_out_by_offset_where_no_other_file_may_hold_it() -> None:
    deleted = {"one": OffsetSet([4]), "two": OffsetSet([14])}
    groups = group_files(
        [file("one", 0, 10, "positions"), file("two", 10, 20, "vector")], {}, lambda f: deleted[f.path]
    )
    assert names(groups.by_offset) == ["one", "two"]
    assert groups.dead == {A: OffsetSet([4, 14])}


def test_an_offset_that_may_live_on_in_another_file_is_told_apart_by_its_file() -> None:
    """Another engine's UPDATE deletes a row and writes it anew with the same offset."""
    deleted = {"one": OffsetSet([4]), "two": OffsetSet([14])}
    groups = group_files(
        [file("one", 0, 10, "positions"), file("two", 2, 20, "positions")], {}, lambda f: deleted[f.path]
    )
    assert names(groups.by_path) == ["one"], "two's bounds hold 4; one's do not hold 14"
    assert names(groups.by_offset) == ["two"]
    assert groups.dead == {A: OffsetSet([14])}


def test_keys_and_files_without_a_bucket_are_joined_by_spark() -> None:
    groups = group_files(
        [file("keys", 0, 10, "equality"), file("lone", 0, 10, "positions", bucket=None)], {}, lambda _: OffsetSet([1])
    )
    assert names(groups.by_path) == ["keys", "lone"]
    assert group_files([file("lone", 0, 10, bucket=None)], {A: OffsetSet([1])}, lambda _: None).by_offset


def test_rows_that_have_no_offset_of_their_own_are_told_apart_by_file_and_row() -> None:
    """All rows of a KV snapshot of Fluss carry -1: taking that out by offset would take them all."""
    snapshot = replace(file("kv", 0, 10, "positions"), offsets=None)
    groups = group_files([snapshot, file("log", 0, 10)], {}, lambda _: OffsetSet([-1]))
    assert (names(groups.by_path), names(groups.clean), groups.dead) == (["kv"], ["log"], {})


def keyed(name: str, sequence: int, *deletes: tuple[str, int], bucket: Bucket = A) -> LakeFile:
    """A file with the key deletes that the lake says reach it: (path, sequence)."""
    found = tuple(
        LakeDelete(path=p, content="equality", record_count=1, sequence=s, equality_columns=("id",)) for p, s in deletes
    )
    return LakeFile(
        path=name, bucket=bucket, record_count=1, size_bytes=1, offsets=None, sequence=sequence, deletes=found
    )


def reached(files: list[LakeFile]) -> dict[str, set[str]]:
    """Which deletes reach a file by scope and sequence number, as Spark then joins them."""
    data, deletes = scope_keys(files)
    sequences = {d.path: d.sequence for f in files for d in f.deletes}
    return {f.path: {p for p, s in deletes.items() if data[f.path] in s and f.sequence < sequences[p]} for f in files}


def test_keys_share_a_scope_with_the_files_they_reach() -> None:
    files = [keyed("old", 1, ("x", 2), ("y", 3)), keyed("mid", 2, ("y", 3)), keyed("other", 1, ("z", 2), bucket=B)]
    assert reached(files) == {"old": {"x", "y"}, "mid": {"y"}, "other": {"z"}}
    assert scope_keys(files)[0] == {"old": 0, "mid": 0, "other": 1}, "a bucket is one scope"


def test_keys_that_reach_some_files_of_a_bucket_only() -> None:
    """Files of another spec lie in the same bucket, and a delete of this spec does not reach them."""
    files = [keyed("here", 1, ("x", 2)), keyed("there", 1)]
    assert reached(files) == {"here": {"x"}, "there": set()}


def test_a_first_batch_that_is_run_again_begins_where_the_query_began() -> None:
    first = as_origin(position(OffsetMap({A: 5}), "s1", 0))
    end = {**first, **position(OffsetMap({A: 9}), "s1", 1)}
    later = as_origin(position(OffsetMap({A: 7}), "s2", 0))
    assert begin_of(first, end) == first
    assert begin_of(later, end) == position(OffsetMap({A: 5}), "s1", 0)
    middle = {**end, **position(OffsetMap({A: 12}), "s1", 1)}
    assert begin_of(end, middle) == end
    del first["origin"]
    assert begin_of(first, first) == first


def test_history_is_read_in_parts_that_do_not_overlap() -> None:
    files = [file("b", 10, 20), file("a", 0, 10), file("c", 15, 30), file("d", 40, 50)]
    assert windows(files, OffsetRange(5, 45)) == [OffsetRange(5, 10), OffsetRange(10, 30), OffsetRange(40, 45)]
    assert windows([], OffsetRange(5, 45)) == []


def test_a_micro_batch_takes_an_even_share_of_every_bucket() -> None:
    start, ends = OffsetMap({A: 10}), OffsetMap({A: 100, B: 3})
    assert advance(start, ends, None) == ends
    assert advance(start, ends, 20) == OffsetMap({A: 27, B: 3})
    assert advance(ends, ends, 20) == ends


def test_files_that_want_their_formats_reader_are_not_scanned_by_spark() -> None:
    plain = LakeFile(path="/w/a.parquet", bucket=Bucket("", 0), record_count=1, size_bytes=9, offsets=None)
    assert why_no_scan(None, (plain,)) is None
    reason = why_no_scan(None, (plain, replace(plain, is_reader_needed=True)))
    assert reason is not None
    assert "own reader" in reason
