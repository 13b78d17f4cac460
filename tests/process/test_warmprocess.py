# SPDX-License-Identifier: Apache-2.0
"""A warm start shows what a cold one shows: words, exit code, environment, signals."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from lakeward.model import FAULTS_ENV
from lakeward_testing.waiting import wait_until
from lakeward_testing.warmprocess import WarmProcess, start_module

LIMIT_S = 120.0


def test_words_and_exit_code_of_a_refused_command(tmp_path: Path) -> None:
    child = start_module("lakeward.cli", ["server", "--port", "80000"], tmp_path / "log", {})
    assert isinstance(child, WarmProcess)
    assert child.wait(LIMIT_S) == 2
    assert child.poll() == 2
    assert "65535" in (tmp_path / "log").read_text()


def test_its_environment_is_the_one_that_was_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAKEWARD_SERVER__PORT", "4710")
    asked = ["config", "server.port"]
    first = start_module("lakeward.cli", asked, tmp_path / "ours", {})
    second = start_module("lakeward.cli", asked, tmp_path / "given", {"LAKEWARD_SERVER__PORT": "4711"})
    assert first.wait(LIMIT_S) == second.wait(LIMIT_S) == 0
    assert "4710" in (tmp_path / "ours").read_text()
    assert "4711" in (tmp_path / "given").read_text()


def test_a_signal_ends_it_and_a_wait_has_a_limit(tmp_path: Path) -> None:
    arguments = ["server", "--port", "0", "--flight-port", "0", "--data", str(tmp_path / "data")]
    child = start_module(
        "lakeward.cli", [*arguments, "--ready-file", str(tmp_path / "ready")], tmp_path / "log", {}, own_group=True
    )
    wait_until(lambda: (tmp_path / "ready").exists(), limit_s=LIMIT_S, what="the server's start")
    assert os.getpgid(child.pid) == child.pid
    with pytest.raises(subprocess.TimeoutExpired):
        child.wait(0.01)
    child.send_signal(signal.SIGKILL)
    assert child.wait(LIMIT_S) == -signal.SIGKILL
    child.send_signal(signal.SIGKILL)  # nobody else gets it


def test_faults_start_cold(tmp_path: Path) -> None:
    child = start_module("lakeward.cli", ["version"], tmp_path / "log", {FAULTS_ENV: ""})
    assert isinstance(child, subprocess.Popen)
    assert child.wait(LIMIT_S) == 0
