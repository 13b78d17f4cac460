# SPDX-License-Identifier: Apache-2.0
"""Children of `up` and `demo`: started, watched, started again, stopped."""

from __future__ import annotations

import os
import signal
import socket
from pathlib import Path

import pytest

from lakeward.cli.run.children import Child, choose_port, wait_for_file
from lakeward.cli.run.up import Supervisor
from lakeward.cli.run.watchdog import answers
from lakeward.client.options import READY
from lakeward.errors import DataFolderLocked, StartFailed
from lakeward_testing.waiting import wait_until


def test_a_child_that_dies_before_it_is_ready_is_reported_with_its_last_words(tmp_path: Path) -> None:
    log = tmp_path / "logs" / "server.log"
    log.parent.mkdir()
    log.write_text("what an older one said\n")
    child = Child("server", ["table", "drop"], log)
    child.start()
    with pytest.raises(StartFailed, match="the server ended with code 2") as caught:
        wait_for_file(tmp_path / "ready", child)
    assert "Missing argument" in caught.value.message
    assert "older" not in caught.value.message
    child.stop()


def test_a_second_up_leaves_the_first_where_it_can_be_found(tmp_path: Path) -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        address = f"http://127.0.0.1:{server.getsockname()[1]}"
        (tmp_path / READY).write_text(address)
        with pytest.raises(DataFolderLocked, match=address):
            Supervisor(tmp_path, 0, slots=1, master="local[1]").start()
    assert (tmp_path / READY).read_text() == address


def test_a_taken_port_is_replaced_by_a_free_one() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert choose_port(port) not in (0, port)
    assert choose_port(port) == port


def test_what_ends_is_started_again_after_a_pause(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    supervisor = Supervisor(tmp_path, 0, slots=1, master="local[1]")
    supervisor.server = Child("server", ["version"], tmp_path / "server.log")
    supervisor.job = Child("job", ["version"], tmp_path / "job.log")
    for child in (supervisor.server, supervisor.job):
        supervisor._launch(child)

    def started_twice() -> bool:
        supervisor.watch()
        return all(c.log.read_text().count("protocol") >= 2 for c in (supervisor.server, supervisor.job))

    wait_until(started_twice, what="a second start of both")
    assert "the job ended with code 0; starting it again" in capsys.readouterr().err
    supervisor.stop()


def test_a_server_that_stops_answering_is_started_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    supervisor = Supervisor(tmp_path, choose_port(0), slots=1, master="local[1]", patience_s=5.0)
    supervisor.job = Child("job", ["version"], tmp_path / "job.log")

    def another_than(pid: int | None) -> bool:
        supervisor.watch()
        return supervisor.server.pid not in (None, pid) and answers(supervisor.url, 1.0)

    try:
        supervisor.start()
        wait_until(lambda: another_than(None) and supervisor._watchdog.has_answered, what="a first answer")
        first = supervisor.server.pid
        assert first is not None
        os.kill(first, signal.SIGSTOP)
        wait_until(lambda: another_than(first), what="another server")
    finally:
        supervisor.stop()
    assert "the server runs and does not answer any more" in capsys.readouterr().err


def test_up_brings_a_lake_only_where_none_is_configured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    brought = "datalake.format=iceberg"
    assert brought in Supervisor(tmp_path, 0, slots=1, master="local[1]").server.arguments
    (tmp_path / "lakeward.toml").write_text('[lakes.main]\nformat = "paimon"\n')
    assert brought not in Supervisor(tmp_path, 0, slots=1, master="local[1]").server.arguments
    (tmp_path / "lakeward.toml").write_text('datalake.format = "delta"\n')
    assert brought not in Supervisor(tmp_path, 0, slots=1, master="local[1]").server.arguments


def test_up_keeps_the_flight_port_that_was_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert "--flight-port" in Supervisor(tmp_path, 0, slots=1, master="local[1]").server.arguments
    monkeypatch.setenv("LAKEWARD_SERVER__FLIGHT_PORT", "9951")
    assert "--flight-port" not in Supervisor(tmp_path, 0, slots=1, master="local[1]").server.arguments


def test_up_goes_by_the_settings_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert Supervisor(tmp_path, 0, slots=None, master=None).job.arguments[-2:] == ("--slots", "2")
    (tmp_path / "lakeward.toml").write_text("tiering.slots = 7\n")
    assert Supervisor(tmp_path, 0, slots=None, master=None).job.arguments[-2:] == ("--slots", "7")
    assert Supervisor(tmp_path, 0, slots=3, master=None).job.arguments[-2:] == ("--slots", "3")


def test_up_takes_port_and_folder_from_the_settings_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        (tmp_path / "lakeward.toml").write_text(f'server.data-dir = "rows"\nserver.port = {port}\n')
        (tmp_path / "rows").mkdir()
        (tmp_path / "rows" / READY).write_text(f"http://127.0.0.1:{port}")
        child = Child("up", ["up"], tmp_path / "up.log")
        child.start()
        with pytest.raises(StartFailed, match=rf"(?s)rows.*127\.0\.0\.1:{port}"):
            wait_for_file(tmp_path / "ready", child)
