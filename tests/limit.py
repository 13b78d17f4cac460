# SPDX-License-Identifier: Apache-2.0
"""A limit on every phase of every test. When it is hit, or one of a wait in the test, the stacks of this process and of
all that it started go into the test's report; then the test fails.

A thread watches, so that stacks come out of a test that waits inside a C library too. The test is interrupted by a
signal; where that is not heard, what the test started is killed, which ends what it waits for.
"""

from __future__ import annotations

import contextlib
import faulthandler
import math
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest

from lakeward_testing.waiting import at_limit

LIMIT_S = 600.0
"""No test of `make test` takes a minute on a quiet machine; others may keep it busy."""
SOAK_LIMIT_S = 3600.0
HEARD_S = 30.0
"""So long an interrupted test has to fail before what it started is killed."""
DUMP_LIMIT_S = 20.0
MOST = 20_000
"""Characters of one process: a JVM with hundreds of threads says enough in these."""


@dataclass
class Phase:
    limit_s: float
    due_at: float
    is_over: bool = False
    stacks: list[str] = field(default_factory=list)


class Watch(threading.Thread):
    """Looks every half second whether the phase that runs is over its limit."""

    def __init__(self) -> None:
        super().__init__(name="limit of tests", daemon=True)
        self.phase: Phase | None = None
        self.main = threading.main_thread()

    def run(self) -> None:
        while self.main.is_alive():
            time.sleep(0.5)
            phase = self.phase
            if phase is not None and time.monotonic() >= phase.due_at:
                self._interrupt(phase)

    def _interrupt(self, phase: Phase) -> None:
        if phase.is_over:
            kill_started()
        else:
            phase.stacks.append(all_stacks())
            phase.is_over = True
        phase.due_at = time.monotonic() + HEARD_S
        assert self.main.ident is not None
        signal.pthread_kill(self.main.ident, signal.SIGALRM)

    def fail(self, *_: object) -> None:
        """The handler of the signal; runs in the main thread, between two of its steps."""
        if self.phase is not None and self.phase.is_over:
            pytest.fail(f"not done after {self.phase.limit_s:g} s; see the stacks of all processes in this report")

    def note(self) -> None:
        """A wait is about to give up; of several in one phase the first one tells most."""
        if self.phase is not None and not self.phase.stacks:
            self.phase.stacks.append(all_stacks())

    @contextlib.contextmanager
    def over(self, item: pytest.Item, when: str) -> Iterator[None]:
        limit_s = item.config.getoption("limit") or (SOAK_LIMIT_S if item.get_closest_marker("soak") else LIMIT_S)
        phase = self.phase = Phase(limit_s, time.monotonic() + limit_s)
        try:
            yield
        finally:
            self.phase = None
            phase.due_at = math.inf
            for stacks in phase.stacks:
                item.add_report_section(when, "stacks", stacks)


watch = Watch()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--limit", type=float, help=f"seconds for each phase of a test; {LIMIT_S:g} if not said")


def pytest_sessionstart() -> None:
    if not watch.is_alive():
        signal.signal(signal.SIGALRM, watch.fail)
        at_limit.append(watch.note)
        watch.start()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, object, object]:
    with watch.over(item, "setup"):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    with watch.over(item, "call"):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, object, object]:
    with watch.over(item, "teardown"):
        return (yield)


def all_stacks() -> str:
    """Of this process, and of every process below it."""
    with tempfile.TemporaryFile("w+") as file:
        faulthandler.dump_traceback(file, all_threads=True)
        file.seek(0)
        own = file.read()
    return "\n\n".join([f"this process\n{own}", *(stacks_of(process) for process in started())])


def started() -> list[psutil.Process]:
    return list(psutil.Process().children(recursive=True))


def kill_started() -> None:
    for process in started():
        with contextlib.suppress(psutil.Error):
            process.kill()


def stacks_of(process: psutil.Process) -> str:
    try:
        command, name = " ".join(process.cmdline())[:300], process.name()
        head = f"process {process.pid} ({process.status()}): {command}"
        if "java" in name:
            return f"{head}\n{java_stacks(process)}"
        return f"{head}\n{python_stacks(process)}" if "python" in name else head
    except psutil.Error as error:
        return f"process {process.pid}: {error}"


def java_stacks(process: psutil.Process) -> str:
    """By the JDK's own tool, or by SIGQUIT, upon which a JVM writes them to its output."""
    tool = Path(process.exe()).with_name("jstack")
    program = str(tool) if tool.exists() else shutil.which("jstack")
    return (program and ask(program, str(process.pid))) or written_on(process, signal.SIGQUIT, 1)


def python_stacks(process: psutil.Process) -> str:
    """By py-spy; where it may not look into other processes, by SIGUSR1 if the process listens to that."""
    program = Path(sys.executable).with_name("py-spy")
    return ask(str(program), "dump", "--pid", str(process.pid)) or written_on(process, signal.SIGUSR1, 2)


def ask(*command: str) -> str | None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=DUMP_LIMIT_S)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout[:MOST] if done.returncode == 0 else None


def written_on(process: psutil.Process, number: signal.Signals, descriptor: int) -> str:
    """What a process writes to a file upon a signal that it handles."""
    output = Path(f"/proc/{process.pid}/fd/{descriptor}")
    if not (handles(process, number) and output.is_file()):
        return "no stacks: no tool may look into it, and its output is not a file"
    before = output.stat().st_size
    process.send_signal(number)
    give_up_at = time.monotonic() + DUMP_LIMIT_S
    while output.stat().st_size == before and time.monotonic() < give_up_at:
        time.sleep(0.1)
    time.sleep(1.0)  # the rest of it
    return output.read_bytes()[before:].decode(errors="replace")[:MOST]


def handles(process: psutil.Process, number: signal.Signals) -> bool:
    status = Path(f"/proc/{process.pid}/status").read_text()
    caught = next(line for line in status.splitlines() if line.startswith("SigCgt:"))
    return bool(int(caught.split()[1], 16) >> (number - 1) & 1)
