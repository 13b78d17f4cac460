# SPDX-License-Identifier: Apache-2.0
"""Instants that expire leave the timeline for Hudi's archive, and no file is read otherwise for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakeward.errors import FaultInjected
from lakeward.lake.hudi.ground import HudiGround
from lakeward.lake.hudi.log import KEPT_INSTANTS, plan_archive, protected
from lakeward.lake.hudi.meta.history import ArchivedInstant, archive, load_completions
from lakeward.lake.hudi.plugin import open_lake
from lakeward.lake.tablefiles import LocalFiles
from lakeward_testing.faults import Faults
from lakeward_testing.lakes.removal import LATER_MS
from lakeward_testing.lakes.rewriting import LakeRewrite
from lakeward_testing.lakes.rounds import LakeRound, lake_rows
from lakeward_testing.lakes.suite import B0, LakeSuite, row

SUITE = LakeSuite()


def test_many_archives_become_one_file(tmp_path: Path) -> None:
    files, folder = LocalFiles(), str(tmp_path)
    assert load_completions(files, folder) == {}
    wanted = {}
    for number in range(25):
        instant = ArchivedInstant(f"{number:017d}", f"{number + 1:017d}", "commit", b"x")
        archive(files, folder, [instant])
        wanted[instant.requested] = instant.completed
        assert load_completions(files, folder) == wanted
    archive(files, folder, [instant])
    assert load_completions(files, folder) == wanted
    assert len(list(tmp_path.glob("*.parquet"))) < 20


@pytest.mark.parametrize("pk", [False, True], ids=["log", "pk"])
def test_a_long_life_leaves_a_short_timeline(tmp_path: Path, pk: bool) -> None:
    """Rounds that began before a compaction and landed after it, too: their log files are read by when they landed."""
    lake = open_lake({"warehouse": str(tmp_path)})
    age = {"hudi.history.expire.max-snapshot-age-ms": "1"}
    log = SUITE.make_log(lake, primary_key=("id",) if pk else (), properties=age)
    upkeep = lake.open_maintenance(log.table)
    for number in range(60):
        (log.upsert if pk else log.append)(B0, row(number % 7, f"version {number}"))
        lake_round = LakeRound.plan(lake, log).write(B0)
        if number % 9 == 5:
            LakeRewrite(lake=lake, table=log.table).run()
        lake_round.commit()
        if number % 10 == 9:
            upkeep.expire([s.snapshot_id for s in upkeep.expirable(LATER_MS)])
            assert lake_rows(lake, log.table) == log.expected(log.ends())
    table = lake.table(log.table.path)
    assert len(table.load_timeline().instants) < 45
    ground = HudiGround.load(table)
    assert plan_archive(ground, table.expired()) == []
    going = plan_archive(ground, {i.requested for i in ground.timeline.snapshots}, keep=1)
    assert len(going) < len(ground.timeline.instants)
    table.archive(going)
    assert lake_rows(lake, log.table) == log.expected(log.ends())
    assert protected(HudiGround.load(table)) == protected(ground)


def test_upkeep_that_ends_before_its_archive_is_done_by_the_next(tmp_path: Path) -> None:
    lake = open_lake({"warehouse": str(tmp_path)})
    log = SUITE.make_log(lake, properties={"hudi.history.expire.max-snapshot-age-ms": "1"})
    for number in range(KEPT_INSTANTS + 5):
        log.append(B0, row(number))
        LakeRound.plan(lake, log).run()
    upkeep, table = lake.open_maintenance(log.table), lake.table(log.table.path)
    going = [s.snapshot_id for s in upkeep.expirable(LATER_MS)]
    with Faults() as faults:
        faults.arm("hudi.before-archive")
        with pytest.raises(FaultInjected):
            upkeep.expire(going)
    assert len(table.load_timeline().instants) > KEPT_INSTANTS
    assert lake_rows(lake, log.table) == log.expected(log.ends())
    upkeep.expire(going)
    assert len(table.load_timeline().instants) == KEPT_INSTANTS
    assert lake_rows(lake, log.table) == log.expected(log.ends())
