# SPDX-License-Identifier: Apache-2.0
"""The planner of compactions: what is merged, purged, packed, and in which order."""

from __future__ import annotations

from dataclasses import replace

from lakeward.model import Bucket, OffsetRange
from lakeward.spi import LakeDelete, LakeFile
from lakeward.tiering.compact.plan import Why, describe_compaction, may_be_worn, plan_compaction, plan_unplaced
from lakeward.tiering.work.options import CompactionPolicy

ROW_BYTES = 100
POLICY = CompactionPolicy(fan_in=4, target_bytes=100_000)


def file(
    start: int, rows: int, *, bucket: int = 0, sequence: int = 10, deletes: tuple[LakeDelete, ...] = ()
) -> LakeFile:
    return LakeFile(
        path=f"{bucket}/{start}",
        bucket=Bucket("", bucket),
        record_count=rows,
        size_bytes=rows * ROW_BYTES,
        offsets=OffsetRange(start, start + rows),
        sequence=sequence,
        deletes=deletes,
    )


def positions(rows: int, name: str = "d", sequence: int = 10) -> LakeDelete:
    return LakeDelete(path=name, content="positions", record_count=rows, sequence=sequence)


def by_key(name: str) -> LakeDelete:
    return LakeDelete(path=name, content="equality", record_count=1, sequence=10)


def names(files: list[LakeFile], policy: CompactionPolicy = POLICY) -> list[tuple[Why, list[str]]]:
    return [(g.why, [f.file.path for f in g.files]) for g in plan_compaction(files, policy).groups]


def test_neighbours_of_one_class_become_one_in_offset_order() -> None:
    files = [file(start, 5) for start in (15, 0, 10, 5)]
    assert names(files[:3]) == []
    assert names(files) == [(Why.MERGE, ["0/0", "0/5", "0/10", "0/15"])]


def test_a_larger_file_between_them_keeps_them_apart() -> None:
    small = [file(start, 5) for start in (0, 5)], [file(start, 5) for start in (1010, 1015)]
    assert names([*small[0], file(10, 400), *small[1]]) == []


def test_what_reaches_a_higher_class_is_merged_once() -> None:
    ready = [file(start, 16) for start in (0, 16, 32)] + [file(start, 4) for start in (48, 52, 56, 60)]
    assert names(ready) == [(Why.MERGE, [f.path for f in ready])]


def test_a_small_bucket_that_is_merged_by_key_becomes_one_file() -> None:
    files = [replace(f, is_merged=True) for f in (file(0, 5_000), file(5_000, 100))]
    assert names(files[:1]) == []
    assert names(files) == [(Why.MERGE, [f.path for f in files])]
    large = replace(files[0], size_bytes=2_000_000)
    assert names([large, files[1]]) == []
    unknown = replace(files[1], offsets=None)
    assert names([files[0], unknown]) == []


def test_sizes_that_take_turns_do_not_pile_up() -> None:
    files, start = [], 0
    for n in range(8):
        files.append(file(start, 1 if n % 2 else 8))
        start += 8
    ((why, merged),) = names(files)
    assert (why, len(merged)) == (Why.MERGE, 8)


def test_a_group_holds_no_more_than_the_target() -> None:
    files = [file(start, 300) for start in range(0, 6000, 300)]
    plan = plan_compaction(files, POLICY)
    assert sorted(len(g.files) for g in plan.groups) == [3, 3, 3, 3, 3, 3]
    assert all(g.bytes <= POLICY.target_bytes for g in plan.groups)


def test_full_files_are_left_alone() -> None:
    assert names([file(start, 600) for start in range(0, 6000, 600)]) == []


def test_a_file_with_many_deleted_rows_is_rewritten_alone() -> None:
    assert names([file(0, 200, deletes=(positions(40),))]) == []
    assert names([file(0, 200, deletes=(positions(41),))]) == [(Why.PURGE, ["0/0"])]


def test_fewer_deleted_rows_wear_a_small_file() -> None:
    """A quarter of the share, where it is far below the target size."""
    assert names([file(0, 20, deletes=(positions(1),))]) == []
    assert names([file(0, 30, deletes=(positions(1),))]) == []
    assert names([file(0, 30, deletes=(positions(2),))]) == [(Why.PURGE, ["0/0"])]


def test_a_delete_file_counts_for_each_file_it_names_by_its_rows() -> None:
    shared = positions(30)
    assert names([file(0, 600, deletes=(shared,)), file(600, 600, deletes=(shared,))]) == []


def test_counted_rows_go_before_guessed_ones() -> None:
    shared = positions(200)
    files = [file(0, 600, deletes=(shared,)), file(600, 600, deletes=(shared,))]
    assert [may_be_worn(f, POLICY) for f in (*files, file(0, 600), file(0, 600, deletes=(positions(120),)))] == [
        True,
        True,
        False,
        False,
    ]
    plan = plan_compaction(files, POLICY, {"0/0": 200, "0/600": 0})
    assert [(g.why, g.files[0].file.path, g.deleted) for g in plan.groups] == [(Why.PURGE, "0/0", 200)]


def test_a_vector_counts_for_its_file_alone_though_several_lie_in_one_place() -> None:
    vector = LakeDelete(path="v.puffin", content="vector", record_count=150, sequence=10)
    few = replace(vector, record_count=10)
    files = [file(0, 600, deletes=(vector,)), file(600, 600, deletes=(few,)), file(1200, 600, deletes=(few,))]
    assert names(files) == [(Why.PURGE, ["0/0"])]


def test_rounds_that_only_delete_have_their_delete_files_merged_by_a_rewrite_of_the_smallest_file() -> None:
    deletes = tuple(positions(1, f"d{n}") for n in range(16))
    assert names([file(0, 900, deletes=deletes[1:]), file(900, 600, deletes=deletes[1:])]) == []
    assert names([file(0, 900, deletes=deletes), file(900, 600, deletes=deletes)]) == [(Why.PURGE, ["0/900"])]


def test_fewer_neighbours_than_the_fan_in_are_left_though_they_reach_a_class() -> None:
    assert names([file(0, 7), file(7, 7), file(14, 7)]) == []


def test_deletes_by_key_are_waited_for_until_they_are_many() -> None:
    few, many = tuple(by_key(f"e{n}") for n in range(3)), tuple(by_key(f"e{n}") for n in range(4))
    assert names([file(0, 600, deletes=few)]) == []
    assert names([file(0, 600, deletes=many)]) == [(Why.PURGE, ["0/0"])]


def test_few_deletes_by_key_are_rewritten_once_no_more_come() -> None:
    worn, young = file(0, 900, deletes=(by_key("e"),)), file(900, 5, sequence=30)
    assert names([worn, young], replace(POLICY, quiet_sequence=9)) == []
    assert names([worn, young], replace(POLICY, quiet_sequence=10)) == [(Why.PURGE, ["0/0"])]


def test_files_without_offsets_are_neighbours_by_their_commits_where_order_means_nothing() -> None:
    files = [replace(file(start, 5, sequence=start), offsets=None) for start in (15, 5, 10, 20)]
    assert names(files) == []
    assert names(files, replace(POLICY, by_commit=True)) == [(Why.MERGE, ["0/5", "0/10", "0/15", "0/20"])]


def test_a_quiet_bucket_is_packed_once() -> None:
    quiet = replace(POLICY, quiet_sequence=10)
    files = [file(0, 300), file(300, 20), file(320, 2), file(0, 5, bucket=1, sequence=11), file(5, 5, bucket=1)]
    assert names(files, quiet) == [(Why.PACK, ["0/0", "0/300", "0/320"])]
    assert names([file(0, 322)], quiet) == []
    merged = replace(file(0, 322), is_merged=True)
    assert (names([merged]), names([merged], quiet)) == ([], [(Why.PACK, ["0/0"])])
    assert names([file(0, 322, deletes=(by_key("e"),))], quiet) == [(Why.PACK, ["0/0"])]
    assert names([file(0, 322, deletes=(positions(1, sequence=11),))], quiet) == []


def test_the_most_worthwhile_group_comes_first_and_the_budget_cuts_behind_it() -> None:
    files = [file(start, 200) for start in range(0, 800, 200)] + [file(s, 2, bucket=1) for s in range(0, 8, 2)]
    plan = plan_compaction(files, POLICY)
    assert [g.bucket.number for g in plan.groups] == [1, 0]
    assert [len(plan.within(n)) for n in (1, 1_000, 81_000)] == [1, 1, 2]
    assert (plan.files, plan.most_files, plan.saved_files) == (8, 4, 6)


def test_a_delete_file_on_several_groups_is_saved_once() -> None:
    shared = tuple(positions(300, name) for name in ("d", "e"))
    plan = plan_compaction([file(0, 600, deletes=shared), file(600, 600, deletes=shared)], POLICY)
    assert [(g.why, g.saved_files) for g in plan.groups] == [(Why.PURGE, 2)] * 2
    assert plan.saved_files == 2


def test_files_without_a_bucket_are_left_and_those_without_offsets_only_purged() -> None:
    foreign = [replace(file(n, 5), bucket=None) for n in range(8)]
    unsorted = [replace(file(n, 5), offsets=None) for n in range(8)]
    worn = replace(file(90, 5, deletes=(positions(5),)), offsets=None)
    assert names(foreign) == []
    assert (plan_compaction(foreign, POLICY).files, plan_compaction(foreign, POLICY).unplaced) == (0, 8)
    assert names(unsorted) == []
    assert names([worn]) == [(Why.PURGE, ["0/90"])]


def test_files_that_record_no_bucket_are_merged_within_a_partition_by_their_commits() -> None:
    files = [
        replace(file(n, 5, sequence=9 - n), bucket=None, offsets=None, partition={"day": day})
        for day in ("mon", "tue")
        for n in range(4)
    ]
    plan = plan_unplaced(files, POLICY)
    assert [(str(g.bucket), g.is_unplaced, len(g.files)) for g in plan.groups] == [
        ("mon/0", True, 4),
        ("tue/0", True, 4),
    ]
    assert [f.file.sequence for f in plan.groups[0].files] == [6, 7, 8, 9]
    assert (plan.files, plan.unplaced, describe_compaction(plan)[0]["bucket"]) == (8, 0, None)


def test_a_plan_can_be_printed() -> None:
    (row,) = describe_compaction(plan_compaction([file(s, 5, deletes=(positions(1),)) for s in (0, 5, 10, 15)], POLICY))
    assert row == {
        "bucket": "0",
        "why": "merge",
        "files": 4,
        "rows": 20,
        "deleted_rows": 0,
        "saves_files": 4,
        "rewrites_bytes": 2000,
    }
