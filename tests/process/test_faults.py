# SPDX-License-Identifier: Apache-2.0
"""Faults in a child that was told of them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from lakeward.model import FAULTS_ENV
from lakeward_testing import Fault, Faults

CHILD = """
from lakeward.model.process import fault_point
for number in range(4):
    print(number, flush=True)
    fault_point("child.step", number=number)
print("end", flush=True)
"""


def child(faults: Faults) -> subprocess.Popen[str]:
    environment = {**os.environ, FAULTS_ENV: faults.to_text()}
    return subprocess.Popen([sys.executable, "-c", CHILD], env=environment, stdout=subprocess.PIPE, text=True)


def test_a_child_is_killed_at_the_point_it_was_told() -> None:
    process = child(Faults(Fault.from_text("child.step=kill,hit=3")))
    output, _ = process.communicate(timeout=120)
    assert process.returncode == -signal.SIGKILL
    assert output.split() == ["0", "1", "2"]


def test_of_several_children_one_acts(tmp_path: Path) -> None:
    faults = Faults(Fault.from_text(f"child.step=kill,once={tmp_path / 'mark'}"))
    children = [child(faults) for _ in range(3)]
    for process in children:
        process.communicate(timeout=120)
    assert sorted(c.returncode for c in children) == [-signal.SIGKILL, 0, 0]


def test_a_child_pauses_until_a_file_appears(tmp_path: Path) -> None:
    pause = Fault.from_text(f"child.step=pause,hit=2,file={tmp_path / 'pause'}")
    process = child(Faults(pause))
    pause.wait_reached(120)
    assert process.poll() is None
    pause.release()
    output, _ = process.communicate(timeout=120)
    assert output.split()[-1] == "end"
    assert process.returncode == 0
