# SPDX-License-Identifier: Apache-2.0
"""Python processes that start warm: forked from one that has Lakeward's modules loaded already.

A server's start is mostly imports. Such a child is a process like any other (its own pid, memory, files, signals); it
only begins behind the imports. Off unless `switch_on` was called; what measures or shows the start itself starts cold.
"""

from __future__ import annotations

import atexit
import multiprocessing
import os
import runpy
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from multiprocessing.context import ForkServerContext
from multiprocessing.util import get_temp_dir
from pathlib import Path
from typing import Final

from lakeward.model import FAULTS_ENV
from lakeward_testing.waiting import wait_until

LOADED: Final = (
    "lakeward.cli.app",
    "lakeward.cli.run.server",
    "lakeward.lake.iceberg.plugin",
    "lakeward.lake.iceberg.connect.sqlcatalog",
    "lakeward.server.process",
    "lakeward.server.routes",
    "lakeward.tiering.job.job",
    "pandas",
    "sqlalchemy.dialects.sqlite",
)
"""What a server and a job import. One that is not there is left out in silence, as `multiprocessing` does it."""

_context: ForkServerContext | None = None


def switch_on() -> None:
    """From now on `start_module` forks, wherever that shows the same as a cold start."""
    global _context
    _context = multiprocessing.get_context("forkserver")
    _context.set_forkserver_preload(list(LOADED))
    get_temp_dir()  # where it is now: a folder that is set later may be gone before it


class WarmProcess:
    """The part of `subprocess.Popen` that our processes use."""

    def __init__(self, process: multiprocessing.process.BaseProcess, pid: int) -> None:
        self._process = process
        self.pid = pid

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        self._process.join(timeout)
        code = self._process.exitcode
        if code is None:
            raise subprocess.TimeoutExpired(str(self._process), timeout or 0.0)
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)


def start_module(
    module: str, arguments: Sequence[str], log: Path, environment: Mapping[str, str], *, own_group: bool = False
) -> subprocess.Popen[bytes] | WarmProcess:
    """`python -m module arguments`, its words in `log`, its environment ours and `environment`."""
    variables = {**os.environ, **environment}
    if _context is None or FAULTS_ENV in variables:  # faults are armed by imports
        with log.open("ab") as out:
            return subprocess.Popen(  # noqa: S603 - our own modules
                [sys.executable, "-m", module, *arguments],
                stdout=out,
                stderr=subprocess.STDOUT,
                env=variables,
                start_new_session=own_group,
            )
    made = _context.Process(target=_run, args=(module, list(arguments), log, variables, own_group), daemon=True)
    made.start()
    pid = made.pid
    assert pid is not None
    if own_group:  # a signal to the group must find it
        wait_until(
            lambda: made.exitcode is not None or os.getpgid(pid) == pid,
            poll_s=0.002,
            what=f"group {pid}",
            tolerate=(ProcessLookupError,),
        )
    return WarmProcess(made, pid)


def _run(module: str, arguments: list[str], log: Path, variables: dict[str, str], own_group: bool) -> None:
    if own_group:
        os.setsid()
    with log.open("ab") as out:
        os.dup2(out.fileno(), 1)
        os.dup2(out.fileno(), 2)
    os.environ.clear()
    os.environ.update(variables)
    sys.argv = [module, *arguments]
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    finally:
        atexit._run_exitfuncs()
