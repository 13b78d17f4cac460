# SPDX-License-Identifier: Apache-2.0
"""A commit of a Hudi table that ends at any step: it landed, or it is as if it had never been and can be sent again."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from lakeward.errors import CommitConflict, CommitUnknown, LakeUnavailable
from lakeward.lake.hudi.meta.table import hudi_lock, locked
from lakeward.lake.hudi.plugin import HudiLakeStorage, open_lake
from lakeward.model import new_round_id
from lakeward_testing.faults import Faults
from lakeward_testing.lakes.rounds import LakeRound, lake_rows
from lakeward_testing.lakes.suite import B0, B1, LakeSuite, row
from lakeward_testing.scripted_log import ScriptedLog

SUITE = LakeSuite()
STEPS = ("hudi.locked", "hudi.begun", "hudi.moved-in")


@pytest.fixture
def lake(tmp_path: Path) -> HudiLakeStorage:
    return open_lake({"warehouse": str(tmp_path)})


def hurt(lake: HudiLakeStorage, point: str, *, pk: bool) -> tuple[ScriptedLog, LakeRound]:
    """A second round whose commit ends at a step, as by a process that is gone."""
    log = SUITE.make_log(lake, primary_key=("id",) if pk else ())
    for number in (1, 2):
        (log.upsert if pk else log.append)(B0, row(1, f"version {number}"), row(10 + number))
        (log.upsert if pk else log.append)(B1, row(20 + number))
        lake_round = LakeRound.plan(lake, log)
        if number == 1:
            lake_round.run()
    lake_round.write(B0).write(B1)
    with Faults() as faults:
        faults.arm(point)
        with pytest.raises(CommitUnknown):
            lake_round.commit()
    return log, lake_round


@pytest.mark.parametrize("pk", [False, True], ids=["log", "pk"])
@pytest.mark.parametrize("point", STEPS)
def test_a_commit_that_ended_before_its_last_step_is_sent_again(lake: HudiLakeStorage, point: str, pk: bool) -> None:
    log, lake_round = hurt(lake, point, pk=pk)
    assert lake_round.committer.find(lake_round.round_id) is None
    assert lake_rows(lake, log.table) == log.expected(dict(lake_round.base.offsets))
    assert lake_round.commit().offsets == log.ends()
    assert lake_rows(lake, log.table) == log.expected(log.ends())


@pytest.mark.parametrize("pk", [False, True], ids=["log", "pk"])
@pytest.mark.parametrize("point", STEPS)
def test_another_round_undoes_what_one_left(lake: HudiLakeStorage, point: str, pk: bool) -> None:
    log, zombie = hurt(lake, point, pk=pk)
    LakeRound.plan(lake, log).run()
    assert lake_rows(lake, log.table) == log.expected(log.ends())
    with pytest.raises(CommitConflict) as refused:
        zombie.commit()
    assert refused.value.lost
    table = lake.table(log.table.path)
    timeline = table.load_timeline()
    assert not timeline.pending
    known = {i.requested for i in timeline.snapshots}
    assert {f.instant for f in table.list_data()} <= known, "no file lies where others look for it"
    upkeep = lake.open_maintenance(log.table)
    left = {f.path for f in upkeep.list_files(zombie.committer.prefix(zombie.round_id))}
    assert left
    assert not left & upkeep.references()


def test_an_undoing_that_ends_in_the_middle_is_done_by_the_next(lake: HudiLakeStorage) -> None:
    log, lake_round = hurt(lake, "hudi.moved-in", pk=True)
    with Faults() as faults:
        faults.arm("hudi.moved-back")
        with pytest.raises(CommitUnknown):
            lake_round.commit()
    lake_round.commit()
    assert lake_rows(lake, log.table) == log.expected(log.ends())


def test_a_fence_stops_a_round_that_had_begun_to_land(lake: HudiLakeStorage) -> None:
    log, zombie = hurt(lake, "hudi.moved-in", pk=True)
    base = zombie.reader.load_base()
    lake.open_maintenance(log.table).fence(base, new_round_id(), 1)
    with pytest.raises(CommitConflict) as refused:
        zombie.commit()
    assert refused.value.lost
    assert lake_rows(lake, log.table) == log.expected(dict(zombie.base.offsets))


def test_a_round_that_landed_and_died_is_finished_by_the_next(lake: HudiLakeStorage) -> None:
    log, lake_round = hurt(lake, "hudi.completed", pk=True)
    assert lake_round.committer.find(lake_round.round_id) is not None
    log.upsert(B0, row(5))
    LakeRound.plan(lake, log).run()
    assert lake_rows(lake, log.table) == log.expected(log.ends())


def test_a_metadata_table_that_was_half_removed_stops_nobody(lake: HudiLakeStorage) -> None:
    """A process ended there, and another engine made it anew."""
    log = SUITE.make_log(lake)
    folder = Path(lake.table(log.table.path).root, ".hoodie")
    for name in ("metadata", "metadata.lakeward-removed"):
        (folder / name / "files").mkdir(parents=True)
        (folder / name / "files" / "f").touch()
    log.append(B0, row(1))
    LakeRound.plan(lake, log).run()
    assert not [p for p in folder.iterdir() if p.name.startswith("metadata")]


# ---- the lock --------------------------------------------------------------------------------------------------------
def test_a_lock_file_that_a_killed_process_of_ours_left_is_taken_away(lake: HudiLakeStorage) -> None:
    log = SUITE.make_log(lake)
    path = hudi_lock(lake.table(log.table.path).root)
    Path(path).write_text(json.dumps({"lockOwner": "lakeward", "host": "elsewhere", "pid": 1}))
    log.append(B0, row(1))
    LakeRound.plan(lake, log).run()
    assert not os.path.exists(path)


def test_another_engines_lock_is_waited_for_and_never_taken_away(lake: HudiLakeStorage) -> None:
    log = SUITE.make_log(lake)
    root = lake.table(log.table.path).root
    path = Path(hudi_lock(root))
    path.write_bytes(b"")
    with pytest.raises(LakeUnavailable, match="remove that file"), locked(root, "t", wait_s=0.05):
        raise AssertionError("nobody has it")
    assert path.exists()
    path.unlink()
    with locked(root, "t", wait_s=0.05), pytest.raises(LakeUnavailable), locked(root, "t", wait_s=0.05):
        raise AssertionError("two have it")
