# SPDX-License-Identifier: Apache-2.0
"""What was read of a log is not read again, and is forgotten when another table took its place."""

from __future__ import annotations

import shutil

import pytest

from lakeward.errors import LakeTableGone
from lakeward.lake.delta.meta.log import DeltaLog, LogCache
from lakeward.lake.delta.plugin import DeltaLakeStorage
from lakeward.lake.tablefiles import LocalFiles
from lakeward_testing.deltaforeign import DeltaForeignEngine
from lakeward_testing.lakes import LakeRound, lake_rows
from lakeward_testing.lakes.suite import B0, LakeSuite, row
from lakeward_testing.scripted_log import ScriptedLog


class CountingFiles(LocalFiles):
    def __init__(self) -> None:
        self.reads = list[str]()

    def read(self, path: str) -> str | None:
        self.reads.append(path.rpartition("/")[2])
        return super().read(path)

    def taken(self) -> list[int]:
        """Versions that were read since the last call."""
        versions, self.reads = [int(name.removesuffix(".json")) for name in self.reads], []
        return versions


def grow(lake: DeltaLakeStorage, log: ScriptedLog, rounds: int) -> None:
    for number in range(rounds):
        log.upsert(B0, row(number % 5, f"change {number}"))
        LakeRound.plan(lake, log).run()


@pytest.fixture
def log(lake: DeltaLakeStorage) -> ScriptedLog:
    return LakeSuite().make_log(lake, primary_key=("id",))


def test_each_load_replays_what_is_new(lake: DeltaLakeStorage, log: ScriptedLog) -> None:
    grow(lake, log, 4)
    files = CountingFiles()
    seen = DeltaLog(files, lake.log(log.table.path).root, "t", LogCache())
    assert seen.load().version == 4
    assert files.taken() == [0, 1, 2, 3, 4]
    grow(lake, log, 2)
    state = seen.load()
    assert files.taken() == [5, 6]
    assert state.files == lake.log(log.table.path).load().files
    assert [e.version for e in seen.snapshots()] == [1, 2, 3, 4, 5, 6]
    assert seen.load(4).version == 4
    assert files.taken() == []


def test_an_older_version_is_no_start_for_what_was_cleaned_away(lake: DeltaLakeStorage, log: ScriptedLog) -> None:
    grow(lake, log, 2)
    delta = lake.log(log.table.path)
    seen = DeltaLog(LocalFiles(), delta.root, "t", LogCache())
    seen.load()
    grow(lake, log, 3)
    seen.load()
    grow(lake, log, 2)
    DeltaForeignEngine(delta).clean_log()
    assert delta.listing().entries == (7,)
    assert seen.load().files == DeltaLog(LocalFiles(), delta.root, "t", LogCache()).load().files


def test_a_table_that_took_the_place_of_another_is_read_anew(lake: DeltaLakeStorage, log: ScriptedLog) -> None:
    grow(lake, log, 3)
    delta = lake.log(log.table.path)
    first = delta.load().metadata["id"]
    shutil.rmtree(delta.root)
    with pytest.raises(LakeTableGone):
        delta.load()
    anew = LakeSuite().make_log(lake, primary_key=("id",))
    grow(lake, anew, 4)
    assert delta.load().metadata["id"] != first
    assert lake_rows(lake, anew.table) == anew.expected(anew.ends())
