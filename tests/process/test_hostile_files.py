# SPDX-License-Identifier: Apache-2.0
"""Hostile files of lake tables in a process with limits of memory and processor time (`tests/process/hostilefiles.py`).
A call that hangs is ended by the program itself, with its stacks.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FORMATS = ("iceberg", "delta", "paimon", "lance", "hudi")


def attack(folder: Path, first: int, stop: int, *formats: str) -> None:
    given = [str(folder), str(first), str(stop), *formats]
    command = [sys.executable, "-m", "tests.process.hostilefiles", *given]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, f"{ended.returncode}\n{ended.stdout}\n{ended.stderr}"


def test_every_call_ends_with_an_answer_or_an_error_of_ours(tmp_path: Path) -> None:
    attack(tmp_path, 0, 2, *FORMATS)


@pytest.mark.soak
@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("start", range(0, 100, 25))
def test_every_call_ends_for_many_seeds(name: str, start: int, tmp_path: Path) -> None:
    attack(tmp_path, start, start + 25, name)
