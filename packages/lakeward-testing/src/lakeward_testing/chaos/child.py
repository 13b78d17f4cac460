# SPDX-License-Identifier: Apache-2.0
"""The lab's processes: each in a group of its own, with a log, killed, stopped and continued as a whole or in part."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from lakeward_testing.warmprocess import WarmProcess, start_module

STOP_S = 20.0


class LabChild:
    """One Python module as a process; `start` again after an end."""

    def __init__(
        self, name: str, module: str, arguments: Sequence[str], log: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        self.name, self.log, self.starts = name, log, 0
        self._module, self._arguments, self._environment = module, arguments, environment or {}
        self._process: subprocess.Popen[bytes] | WarmProcess | None = None

    def start(self) -> None:
        self.starts += 1
        self._process = start_module(self._module, self._arguments, self.log, self._environment, own_group=True)

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def is_alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def send(self, number: signal.Signals) -> None:
        """To all of it: a machine that stands still, or is gone."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)

    def send_part(self, part: str, number: signal.Signals) -> bool:
        """To its JVM (`executor`) or one Python worker of it; false when there is none."""
        for pid in _descendants(self.pid):
            if _is_jvm(pid) if part == "executor" else _is_worker(pid):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)
                    return True
        return False

    @property
    def pids(self) -> list[int]:
        """Of it and of what it started."""
        return [self.pid, *_descendants(self.pid)] if self.is_alive() else []

    def kill(self) -> None:
        """Safe to repeat; also wakes what stands still."""
        if self._process is not None:
            self.send(signal.SIGKILL)
            self._process.wait(STOP_S)

    def stop(self, limit_s: float = STOP_S) -> None:
        """An orderly end, or else a kill."""
        if self._process is None:
            return
        self.send(signal.SIGCONT)
        if self.is_alive():
            self._process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(limit_s)
        self.kill()

    def last_words(self, count: int = 30) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-count:]) if self.log.exists() else ""


def _descendants(root: int) -> list[int]:
    """From /proc; empty where there is none."""
    parents = {int(p.name): _parent(int(p.name)) for p in Path("/proc").glob("[0-9]*")}
    process_ids, level = [], {root}
    while level:
        level = {pid for pid, parent in parents.items() if parent in level}
        process_ids += sorted(level)
    return process_ids


def _parent(pid: int) -> int:
    try:
        return int((Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()[1])
    except (OSError, ValueError, IndexError):
        return 0


def _is_jvm(pid: int) -> bool:
    return _command_line(pid).split("\0")[0].endswith("java")


def _is_worker(pid: int) -> bool:
    """Forked by PySpark's daemon, whose command line it keeps."""
    return all("daemon" in _command_line(p) and "pyspark" in _command_line(p) for p in (pid, _parent(pid)))


def _command_line(pid: int) -> str:
    try:
        return (Path("/proc") / str(pid) / "cmdline").read_text()
    except OSError:
        return ""
