# SPDX-License-Identifier: Apache-2.0
"""Processes that commit to one Lance table: each version is made once, and a killed one leaves the table whole."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from lakeward.lake.lance.plugin import open_lake
from lakeward.lake.lance.storage import LanceLakeStorage
from lakeward.model import TableId, new_table_id
from lakeward_testing.lakes import LakeRound, lake_rows
from lakeward_testing.lakes.removal import removal_of
from lakeward_testing.lakes.suite import B0, LakeSuite, row
from lakeward_testing.scripted_log import ScriptedLog

TURNS = 25
RACER = f"""
import sys
import lance
from lakeward.lake.lance.table import LanceTable
from lakeward.lake.tablefiles import LocalFiles
root, me = sys.argv[1:]
table = LanceTable(LocalFiles(), root, "t")
print("ready", flush=True)
sys.stdin.readline()
if me == "library":
    for _ in range({TURNS}):
        lance.LanceDataset.commit(root, lance.LanceOperation.Append([]), read_version=lance.dataset(root).version)
    print({TURNS})
else:
    print([h for h in range(2, {TURNS} + 2) if table.commit(h, lance.LanceOperation.Append([]), {{"who": me}})])
"""
DYING = """
import os, sys
from lakeward.lake.lance.plugin import open_lake
from lakeward.model.process import set_injector
from lakeward_testing.lakes import LakeRound
from tests.process.test_lance_race import make_log
lake, log = make_log(*sys.argv[1:3])
set_injector(lambda point, facts: os._exit(9) if point == sys.argv[3] else None)
LakeRound.plan(lake, log).run()
"""


def make_log(warehouse: str, table_id: str) -> tuple[LanceLakeStorage, ScriptedLog]:
    lake = open_lake({"warehouse": warehouse})
    log = ScriptedLog(LakeSuite().table_info(table_id=TableId(table_id), primary_key=("id",)))
    lake.catalog().create(log.table)
    log.upsert(B0, row(1), row(2))
    return lake, log


@pytest.mark.soak
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
    """The library's own commits go to the next free version; none of them replaces one of ours, nor the other way."""
    lake, info = open_lake({"warehouse": str(tmp_path)}), LakeSuite().table_info()
    lake.catalog().create(info)
    table = lake.table(info.path)
    racers = {
        name: subprocess.Popen(
            [sys.executable, "-c", RACER, table.root, name], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for name in ("one", "other", "library")
    }
    for racer in racers.values():
        assert racer.stdout is not None
        assert racer.stdout.readline() == "ready\n"
    for racer in racers.values():
        assert racer.stdin is not None
        racer.stdin.write("go\n")
        racer.stdin.flush()
    told = {name: json.loads(racer.communicate(timeout=300)[0]) for name, racer in racers.items()}
    made = {v: table.version(v).properties.get("who", "library") for v in table.versions()[1:]}
    for name in ("one", "other"):
        assert [v - 1 for v, who in made.items() if who == name] == told[name]
    assert [*made.values()].count("library") == TURNS
