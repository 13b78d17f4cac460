# SPDX-License-Identifier: Apache-2.0
"""A test over its limit fails and shows the stacks of what it started; one of tests/unit may start nothing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
STUCK = """
import subprocess, sys
CHILD = "import time\\ndef wait_for_nothing(): print(flush=True); time.sleep(600)\\nwait_for_nothing()"
child = subprocess.Popen([sys.executable, "-c", CHILD], stdout=subprocess.PIPE)
child.stdout.readline()
def test_stuck():
    with child:
        try:
            wait_for_a_child()
        finally:
            child.kill()
def wait_for_a_child():
    child.wait()
def test_next():
    pass
"""
"""The child is where it waits before the test begins, and with it the limit."""

WAITING = STUCK.replace("child.wait()", "wait_until(lambda: child.poll() is not None, limit_s=1)").replace(
    "import subprocess, sys", "import subprocess, sys\nfrom lakeward_testing.waiting import wait_until"
)


def run_pytest(folder: Path, code: str, *arguments: str) -> str:
    """What a pytest of its own says of a file with that code."""
    file = folder / "tests" / "unit" / "test_it.py"
    file.parent.mkdir(parents=True)
    file.write_text(code)
    command = [sys.executable, "-m", "pytest", "--rootdir", str(folder), "-c", "/dev/null", "-p", "no:cacheprovider"]
    run = subprocess.run([*command, *arguments, str(file)], cwd=ROOT, capture_output=True, text=True, timeout=240)
    return run.stdout


def test_a_limit_that_is_hit_shows_the_stacks_of_all_processes(tmp_path: Path) -> None:
    shown = run_pytest(tmp_path, STUCK, "-p", "tests.limit", "--limit", "2")
    assert "not done after 2 s" in shown
    own, started = shown.partition("Captured stacks call")[2].split("\nprocess ")
    assert "in wait_for_a_child" in own
    assert "wait_for_nothing (<string>:2)" in started
    assert "1 failed, 1 passed" in shown, "the tests after it go on"


def test_a_wait_that_gives_up_shows_them_too(tmp_path: Path) -> None:
    """The test kills what it started on its way out: the stacks are from before that."""
    shown = run_pytest(tmp_path, WAITING, "-p", "tests.limit")
    assert "TimedOut" in shown
    own, started = shown.partition("Captured stacks call")[2].split("\nprocess ")
    assert "in wait_for_a_child" in own
    assert "wait_for_nothing (<string>:2)" in started


def test_a_unit_test_that_starts_a_process_fails(tmp_path: Path) -> None:
    code = "import subprocess\ndef test_it():\n    subprocess.run(['true'])\n"
    shown = run_pytest(tmp_path, code, "-p", "tests.alone")
    assert "its place is tests/process" in shown
    assert "1 failed" in shown
