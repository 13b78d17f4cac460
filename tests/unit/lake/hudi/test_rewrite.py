# SPDX-License-Identifier: Apache-2.0
"""A compaction plans neighbours of a bucket's files; of a Hudi table's file group all files become the base file."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from lakeward.lake.hudi.plugin import open_lake
from lakeward.tiering.compact.plan import plan_compaction
from lakeward.tiering.work.options import CompactionPolicy
from lakeward_testing.lakes.rewriting import LakeRewrite
from lakeward_testing.lakes.rounds import LakeRound, lake_rows
from lakeward_testing.lakes.suite import B0, LakeSuite, row


def test_some_files_of_a_bucket_are_rewritten_with_the_others(tmp_path: Path) -> None:
    lake = open_lake({"warehouse": str(tmp_path)})
    log = LakeSuite().make_log(lake, primary_key=("id",))
    for number in range(5):
        log.upsert(B0, row(1, f"version {number}"), row(10 + number))
        LakeRound.plan(lake, log).run()
    rewrite = LakeRewrite(lake=lake, table=log.table)
    (whole,) = rewrite.groups
    rewrite.groups = [replace(whole, files=whole.files[3:]), replace(whole, files=whole.files[1:3], index=1)]
    rewrite.write()
    log.upsert(B0, row(1, "since"))
    LakeRound.plan(lake, log).run()
    prepared = rewrite.prepare()
    assert prepared.left_out == (1,), "both would become the same base file"
    landed = rewrite.commit(prepared)
    assert lake_rows(lake, log.table) == log.expected(log.ends())
    assert len(rewrite.reader.files(landed.snapshot_id, B0)) == 2, "a base file, and the log file that came since"


def test_the_planner_finds_log_files_to_merge(tmp_path: Path) -> None:
    lake = open_lake({"warehouse": str(tmp_path)})
    log = LakeSuite().make_log(lake, primary_key=("id",))
    for number in range(9):
        log.upsert(B0, row(1, f"version {number}"), row(2))
        if number == 4:
            log.delete(B0, row(1))
        LakeRound.plan(lake, log).run()
    log.delete(B0, row(2))
    head = LakeRound.plan(lake, log).run()
    files = lake.open_reader(log.table).files(head.snapshot_id)
    assert [f.offsets is None for f in files] == [False] * 10
    assert plan_compaction(files, CompactionPolicy(fan_in=4)).groups
