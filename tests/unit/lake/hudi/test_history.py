# SPDX-License-Identifier: Apache-2.0
"""Instants that expire leave the timeline for Hudi's archive, and no file is read otherwise for it."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from hudi import HudiTableBuilder

from lakeward.errors import FaultInjected
from lakeward.lake.hudi.ground import HudiGround
from lakeward.lake.hudi.log import KEPT_INSTANTS, plan_archive, protected
from lakeward.lake.hudi.meta.history import ArchivedInstant, archive, load_completions
from lakeward.lake.hudi.plugin import HudiLakeStorage, open_lake
from lakeward.lake.tablefiles import LocalFiles
from lakeward_testing.faults import Faults
from lakeward_testing.lakes.removal import LATER_MS
from lakeward_testing.lakes.rewriting import LakeRewrite
from lakeward_testing.lakes.rounds import LakeRound, lake_rows
from lakeward_testing.lakes.suite import B0, B1, LakeSuite, row
from lakeward_testing.scripted_log import ScriptedLog

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


def test_hudi_rs_shows_a_quiet_bucket_of_log_files_in_a_long_life(tmp_path: Path) -> None:
    """hudi-rs passes over a log file without a base file once its instant is archived."""
    lake = open_lake({"warehouse": str(tmp_path)})
    log = SUITE.make_log(lake, primary_key=("id",), properties={"hudi.history.expire.max-snapshot-age-ms": "1"})
    for number in range(5):
        log.upsert(B0, row(1_000 + number))
        LakeRound.plan(lake, log).run()
    for number in range(KEPT_INSTANTS + 10):
        if number == KEPT_INSTANTS:
            log.upsert(B0, row(2_000))
        log.upsert(B1, row(number % 7, f"version {number}"))
        LakeRound.plan(lake, log).run()
    upkeep, table = lake.open_maintenance(log.table), lake.table(log.table.path)
    upkeep.expire([s.snapshot_id for s in upkeep.expirable(LATER_MS)])
    assert shown_by_hudi_rs(lake, log) == [row for _, _, row in lake_rows(lake, log.table)]
    LakeRewrite(lake=lake, table=log.table, buckets=(B0,)).run()
    LakeRewrite(lake=lake, table=log.table, buckets=(B1,)).run()
    upkeep.expire([s.snapshot_id for s in upkeep.expirable(LATER_MS)])
    assert len(table.load_timeline().instants) == KEPT_INSTANTS
    assert shown_by_hudi_rs(lake, log) == [row for _, _, row in lake_rows(lake, log.table)]


def shown_by_hudi_rs(lake: HudiLakeStorage, log: ScriptedLog) -> list[dict[str, object]]:
    """Rows by bucket and offset, as `lake_rows` has them."""
    batches = HudiTableBuilder.from_base_uri(lake.table(log.table.path).root).build().read()
    rows = pa.Table.from_batches(batches).sort_by([("__bucket", "ascending"), ("__offset", "ascending")])
    shown_rows: list[dict[str, object]] = rows.select(log.table.schema.names).to_pylist()
    return shown_rows
