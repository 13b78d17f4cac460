# SPDX-License-Identifier: Apache-2.0
"""A process that is killed or stopped while its commit to a Hudi table lands, with the table's lock in its hands."""

from __future__ import annotations

import multiprocessing
import os
import signal
import socket
import threading
from multiprocessing.context import SpawnProcess
from pathlib import Path

import pytest

from lakeward.errors import CommitConflict, LakeUnavailable
from lakeward.lake.hudi.meta.table import hudi_lock, locked
from lakeward.lake.hudi.plugin import HudiLakeStorage, open_lake
from lakeward.model import TableId, new_table_id
from lakeward_testing.faults import Faults
from lakeward_testing.lakes.rounds import LakeRound, lake_rows
from lakeward_testing.lakes.suite import B0, B1, LakeSuite, row
from lakeward_testing.scripted_log import ScriptedLog

SUITE, LIMIT_S = LakeSuite(), 120


def hurt(warehouse: str, table_id: TableId, point: str, number: signal.Signals) -> None:
    lake, log = open_lake({"warehouse": warehouse}), filled(table_id)
    with Faults() as faults:
        faults.arm(point, when=lambda _: bool(signal.raise_signal(number)))  # type: ignore[func-returns-value]
        LakeRound.plan(lake, log).run()


def start(warehouse: Path, table_id: TableId, point: str, number: signal.Signals) -> SpawnProcess:
    child = multiprocessing.get_context("spawn").Process(target=hurt, args=(str(warehouse), table_id, point, number))
    child.start()
    return child


def filled(table_id: TableId) -> ScriptedLog:
    log = ScriptedLog(SUITE.table_info(table_id=table_id, primary_key=("id",)))
    log.upsert(B0, row(1), row(2))
    log.upsert(B0, row(1, "new"))
    log.delete(B0, row(2))
    return log


POINTS = pytest.mark.parametrize(
    "point",
    [
        "hudi.moved-in",
        *(pytest.param(p, marks=pytest.mark.soak) for p in ("hudi.locked", "hudi.begun", "hudi.completed")),
    ],
)


@POINTS
def test_what_a_killed_commit_left_stops_nobody(tmp_path: Path, point: str) -> None:
    lake, table_id = open_lake({"warehouse": str(tmp_path)}), new_table_id()
    table = SUITE.make_log(lake, table_id=table_id, primary_key=("id",)).table
    child = start(tmp_path, table_id, point, signal.SIGKILL)
    child.join(LIMIT_S)
    assert child.exitcode == -signal.SIGKILL
    root = lake.table(table.path).root
    assert os.path.exists(hudi_lock(root)), "it died with the lock"
    log = filled(table_id)
    landed = lake.open_reader(table).load_base().offsets == log.ends()
    assert landed == (point == "hudi.completed")
    log.upsert(B0, row(3))
    LakeRound.plan(lake, log).run()
    assert lake_rows(lake, table) == log.expected(log.ends())
    assert not os.path.exists(hudi_lock(root))
    timeline = lake.table(table.path).load_timeline()
    assert not timeline.pending
    assert {f.instant for f in lake.table(table.path).list_data()} <= {i.requested for i in timeline.snapshots}


@POINTS
@pytest.mark.parametrize("is_ended", [False, pytest.param(True, marks=pytest.mark.soak)], ids=["goes on", "is ended"])
def test_a_stopped_commit_lets_nobody_pass_and_nothing_is_lost(tmp_path: Path, point: str, is_ended: bool) -> None:
    """Another writer waits in words; once the first goes on or is ended, each change is there once."""
    lake, table_id = open_lake({"warehouse": str(tmp_path)}), new_table_id()
    table = SUITE.make_log(lake, table_id=table_id, primary_key=("id",)).table
    child = start(tmp_path, table_id, point, signal.SIGSTOP)
    pid = child.pid
    assert pid is not None
    assert os.WIFSTOPPED(os.waitpid(pid, os.WUNTRACED)[1])
    log, root = filled(table_id), lake.table(table.path).root
    with pytest.raises(LakeUnavailable, match=f"process {pid} on {socket.gethostname()}.*resume it, or end it"):
        locked(root, str(table.path), wait_s=0).__enter__()
    log.upsert(B1, row(7))
    with Faults() as faults:
        at_lock = threading.Event()
        faults.arm("lake.before-commit", times=None, when=lambda _: bool(at_lock.set()))  # type: ignore[func-returns-value]
        other = threading.Thread(target=commit_all, args=(lake, log))
        other.start()
        assert at_lock.wait(LIMIT_S)
        assert lake.open_reader(table).load_base().offsets.get(B1, 0) == 0, "it has not landed"
        os.kill(pid, signal.SIGKILL if is_ended else signal.SIGCONT)
        child.join(LIMIT_S)
        other.join(LIMIT_S)
    assert child.exitcode == (-signal.SIGKILL if is_ended else 0)
    assert lake_rows(lake, table) == log.expected(log.ends())
    timeline = lake.table(table.path).load_timeline()
    assert len(timeline.snapshots) == (1 if is_ended and point != "hudi.completed" else 2)
    assert not timeline.pending
    assert not os.path.exists(hudi_lock(root))
    assert {f.instant for f in lake.table(table.path).list_data()} <= {i.requested for i in timeline.snapshots}


def commit_all(lake: HudiLakeStorage, log: ScriptedLog) -> None:
    while True:
        try:
            LakeRound.plan(lake, log).run()
            return
        except CommitConflict:
            continue
