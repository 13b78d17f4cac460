# SPDX-License-Identifier: Apache-2.0
"""Two processes that commit to one Delta table: each version is made once, and a killed one leaves the table whole."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from lakeward.lake.delta.plugin import DeltaLakeStorage, open_lake
from lakeward.model import TableId, new_table_id
from lakeward_testing.lakes import LakeRound, lake_rows
from lakeward_testing.lakes.removal import removal_of
from lakeward_testing.lakes.suite import B0, LakeSuite, row
from lakeward_testing.scripted_log import ScriptedLog

VERSIONS = 60
RACER = f"""
import sys
from lakeward.lake.delta.meta.log import DeltaLog
from lakeward.lake.tablefiles import LocalFiles
log, me = DeltaLog(LocalFiles(), sys.argv[1], "t"), sys.argv[2]
print("ready", flush=True)
sys.stdin.readline()
entry = [{{"commitInfo": {{"operation": "WRITE", "who": me, "padding": "x" * 20_000}}}}]
print([v for v in range(1, {VERSIONS + 1}) if log.append(v, entry)])
"""
DYING = """
import os, sys
from lakeward.lake.delta.plugin import open_lake
from lakeward.model.process import set_injector
from lakeward_testing.lakes import LakeRound
from tests.process.test_delta_race import make_log
lake, log = make_log(*sys.argv[1:3])
set_injector(lambda point, facts: os._exit(9) if point == sys.argv[3] else None)
LakeRound.plan(lake, log).run()
"""


def make_log(warehouse: str, table_id: str) -> tuple[DeltaLakeStorage, ScriptedLog]:
    lake = open_lake({"warehouse": warehouse})
    log = ScriptedLog(LakeSuite().table_info(table_id=TableId(table_id), primary_key=("id",)))
    lake.catalog().create(log.table)
    log.upsert(B0, row(1), row(2))
    return lake, log


@pytest.mark.parametrize(
    ("point", "landed"),
    [("lake.after-file", 0), ("lake.before-commit", 0), ("lake.after-commit", 1)],
)
def test_a_process_that_dies_in_a_round_leaves_all_of_it_or_nothing(tmp_path: Path, point: str, landed: int) -> None:
    lake, log = make_log(str(tmp_path), new_table_id())
    child = [sys.executable, "-c", DYING, str(tmp_path), log.table.table_id, point]
    assert subprocess.run(child, timeout=300).returncode == 9
    assert len(lake.open_reader(log.table).snapshots()) == landed
    assert lake_rows(lake, log.table) == log.expected(log.ends() if landed else {})
    upkeep = lake.open_maintenance(log.table)
    assert bool({f.path for f in upkeep.list_files()} - upkeep.references()) is not bool(landed)
    log.upsert(B0, row(1, "after it"))
    LakeRound.plan(lake, log).run()
    assert lake_rows(lake, log.table) == log.expected(log.ends())
    removal_of(lake, log).sweep()
    assert {f.path for f in upkeep.list_files()} == upkeep.references()
    assert lake_rows(lake, log.table) == log.expected(log.ends())


def test_each_version_is_made_by_one_of_them(tmp_path: Path) -> None:
    lake, table = open_lake({"warehouse": str(tmp_path)}), LakeSuite().table_info()
    lake.catalog().create(table)
    log = lake.log(table.path)
    arguments = [sys.executable, "-c", RACER, log.root]
    racers = [
        subprocess.Popen([*arguments, name], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for name in ("one", "other")
    ]
    for racer in racers:
        assert racer.stdout is not None
        assert racer.stdout.readline() == "ready\n"
    for racer in racers:
        assert racer.stdin is not None
        racer.stdin.write("go\n")
        racer.stdin.flush()
    won = [json.loads(racer.communicate(timeout=300)[0]) for racer in racers]
    assert sorted(won[0] + won[1]) == list(range(1, VERSIONS + 1))
    by_log = [e.version for e in log.entries(range(1, VERSIONS + 1)) if e.info["who"] == "one"]
    assert by_log == won[0]
