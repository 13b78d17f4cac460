# SPDX-License-Identifier: Apache-2.0
"""`make fluss-up` and `make fluss-down`, as people use them: twice up is one cluster, and down leaves nothing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import psutil
import pytest

pytestmark = [pytest.mark.fluss, pytest.mark.soak]


def run(action: str, home: Path) -> str:
    command = [sys.executable, "-m", "tests.kit.fluss", action, "--home", str(home)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout


def processes_of(home: Path) -> set[int]:
    return {
        p.pid for p in psutil.process_iter(["cmdline"]) if any(str(home) in part for part in p.info["cmdline"] or [])
    }


def test_up_up_down_up_down(tmp_path: Path) -> None:
    home = tmp_path / "home"
    try:
        first = run("up", home)
        started = processes_of(home)
        assert len(started) == 3
        assert run("up", home) == first
        assert processes_of(home) == started
        run("down", home)
        assert processes_of(home) == set()
        run("up", home)
        assert len(processes_of(home)) == 3
    finally:
        run("down", home)
    assert processes_of(home) == set()
    run("down", home)
