# SPDX-License-Identifier: Apache-2.0
"""Commands that `lakeward doctor`, the tiles and warnings recommend, run on a real server until what they are for is
gone. What needs days, another clock or thousands of files is in test_doctor_made.py."""

from __future__ import annotations

import os
import shlex
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from lakeward.server.show.facts import BACKED_UP
from lakeward_testing.faults import Fault, FaultAction
from lakeward_testing.waiting import wait_until
from tests.kit.advice import Operator, commands_of, put, start_job, wait_for_job
from tests.spark.processes import Job, Process, Server

WEST = "west"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """It expects a job that is not there."""
    settings = {"jobs.expected": WEST, "table.datalake.auto-compaction": "true"}
    made = Server(tmp_path_factory.mktemp("advised"), settings)
    yield made
    made.kill()


@pytest.fixture
def operator(server: Server, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Operator:
    monkeypatch.setenv("LAKEWARD_SERVER", server.url)
    monkeypatch.delenv("SPARK_HOME", raising=False)
    return Operator(server, capsys)


@contextmanager
def job(command: str, server: Server) -> Iterator[Process]:
    started = start_job(command, server)
    try:
        yield started
    finally:
        started.send(signal.SIGTERM)
        started.wait()


@pytest.fixture
def west(server: Server) -> Iterator[Process]:
    with job(f"lakeward tier --name {WEST}", server) as started:
        yield started


def test_a_server_without_jobs_gets_one(operator: Operator) -> None:
    made = operator.call("table", "create", "jobs.t", "id bigint", "--freshness", "1 h")
    with operator.server.connect() as client:
        put(client, "jobs.t", 1)
    commands = {"create": made.partition("on its way: ")[2].strip(), "doctor": operator.mend_of("jobs", WEST)}
    commands["warning"] = f"lakeward {commands_of(made)[0]}"
    wait_until(lambda: not operator.tiles()["jobs"]["ok"], what="the tile of jobs")
    assert WEST in operator.tiles()["jobs"]["advice"]
    for told_by, command in commands.items():
        with job(command, operator.server):
            operator.works("tier-now", "jobs.t")
            operator.works("status", "jobs.t")
            if told_by == "doctor":
                assert operator.is_well("jobs", WEST)
                assert operator.tiles()["jobs"]["ok"]
    operator.works("table", "drop", "jobs.t", "--yes")


def test_a_pool_without_a_job_gets_one(operator: Operator, west: Process) -> None:
    made = operator.call("table", "create", "jobs.far", "id bigint", "--property", "table.datalake.pool=far")
    commands = [
        made.partition("on its way: ")[2].strip(),
        operator.mend_of("jobs", "jobs.far"),
        f"lakeward {commands_of(operator.tiles()['jobs']['advice'])[0]}",
        f"lakeward {commands_of(made)[0]}",
    ]
    assert all("--pool far" in command for command in commands), commands
    for command in commands:
        with job(command, operator.server):
            assert operator.is_well("jobs", "jobs.far")
            assert operator.tiles()["jobs"]["ok"]
        wait_until(lambda: not operator.is_well("jobs", "jobs.far"), what="the end of the job")
    operator.works("table", "drop", "jobs.far", "--yes")


def test_a_queue_that_grows_gets_another_job(operator: Operator, server: Server, tmp_path: Path) -> None:
    """The only slot is busy with rounds that do not end, and its job still sends heartbeats: the advice for a job
    that is silent is another one."""
    names = [f"queue.t{n}" for n in range(6)]
    pause = Fault(point="round.before-lake-commit", action=FaultAction.PAUSE, times=None, file=str(tmp_path / "pause"))
    busy = Job(server, WEST, slots=1, spark=False, faults=pause.to_text())
    try:
        wait_for_job(server, busy)
        with server.connect() as client:
            for name in names:
                client.create_table(name, "id bigint", freshness="1 s")
                put(client, name, 1)
        wait_until(pause.is_reached, what="the round that does not end", state=busy.text)
        advised = wait_until(lambda: commands_of(operator.tiles()["queue"]["advice"]), what="the tile of the queue")
        with job(f"lakeward {advised[0]}", server):
            wait_until(lambda: operator.tiles()["queue"]["figure"].startswith("0 "), what="the queue to be served")
            assert operator.tiles()["queue"]["ok"]
    finally:
        pause.release()
        busy.stop()
    for name in names:
        operator.works("table", "drop", name, "--yes")


def test_a_late_table_is_explained(operator: Operator, west: Process) -> None:
    """The log lives for four times the freshness: below three times, the doctor first advises to keep it longer."""
    with operator.server.connect() as client:
        client.create_table("doc.late", "id bigint", freshness="500 ms", properties={"table.log.ttl": "2 s"})
        west.send_all(signal.SIGSTOP)
        put(client, "doc.late", 1)
    try:
        wait_until(lambda: not operator.is_well("freshness", "doc.late"), what="the late table", poll_s=0.3)
        wait_until(lambda: not operator.is_well("retention", "doc.late"), what="the log past its time", poll_s=0.3)
        for check in ("freshness", "retention"):
            words = operator.works(*shlex.split(operator.mend_of(check, "doc.late"))[1:])
            assert "1 row" in words, words
    finally:
        west.send_all(signal.SIGCONT)
    operator.works("tier-now", "doc.late")
    operator.works("table", "drop", "doc.late", "--yes")


def test_settings_that_do_not_fit_are_altered(operator: Operator, west: Process, server: Server) -> None:
    properties = {"table.log.ttl": "1 min", "table.datalake.auto-compaction": "false"}
    with server.connect() as client:
        client.create_table("doc.odd", "id bigint", freshness="1 min", buckets=4, properties=properties)
        client.create_table("doc.quick", "id bigint", freshness="1 ms")
        for _ in range(3):
            client.table("doc.odd").append([{"id": n} for n in range(8)])
            client.tier_now("doc.odd")
        put(client, "doc.quick", 1, tier=True)
    wait_until(lambda: operator.is_well("freshness", "doc.odd"), what="its round to be over")
    for check, name in (
        ("files", "doc.odd"),
        ("retention", "doc.odd"),
        ("buckets", "doc.odd"),
        ("freshness", "doc.quick"),
    ):
        command = operator.mend_of(check, name).partition(";")[0].partition(", unless")[0]
        operator.works(*shlex.split(command)[1:])
        assert operator.is_well(check, name), (check, operator.findings())
    for name in ("doc.odd", "doc.quick"):
        operator.works("table", "drop", name, "--yes")


def test_rounds_that_fail_without_a_command_are_shown_and_resumed(
    operator: Operator, west: Process, server: Server
) -> None:
    with server.connect() as client:
        client.create_table("doc.barred", "id bigint", freshness="1 h")
        (folder,) = (server.folder / "data" / "warehouse").glob("**/barred*")
        barrier = folder / "data"
        barrier.write_text("a file where a folder should be")
        put(client, "doc.barred", 1)
    operator.fails("tier-now", "doc.barred")
    rounds, resume = operator.mend_of("freshness", "doc.barred").split("; when the cause is gone: ")
    assert "failed" in operator.works(*rounds.split()[1:])
    barrier.unlink()
    operator.works(*resume.split()[1:])
    operator.works("tier-now", "doc.barred")
    assert operator.is_well("freshness", "doc.barred")
    operator.works("table", "drop", "doc.barred", "--yes")


def test_an_old_backup_is_followed_by_a_new_one(operator: Operator, server: Server, tmp_path: Path) -> None:
    (server.folder / "data" / BACKED_UP).touch()
    os.utime(server.folder / "data" / BACKED_UP, (0, 1_000_000_000))
    command = operator.mend_of("backups", "server").partition(", by a timer")[0].replace("TARGET", str(tmp_path / "b"))
    operator.works(*shlex.split(command)[1:])
    assert operator.is_well("backups", "server")


def test_maintenance_that_is_asked_for_says_where_it_is_seen(operator: Operator, west: Process, server: Server) -> None:
    with server.connect() as client:
        client.create_table("doc.small", "id bigint", freshness="1 h")
        for number in range(3):
            put(client, "doc.small", number, tier=True)
    told = operator.works("maintain", "doc.small", "--now")
    assert "doc.small" in operator.follow(told, "maintain doc.small")
    assert "doc.small" in operator.follow(told, "rounds doc.small")
    operator.works("table", "drop", "doc.small", "--yes")
