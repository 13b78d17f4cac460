# SPDX-License-Identifier: Apache-2.0
"""Child processes of `up` and `demo`: started with a log file, watched, stopped in order."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from lakeward.errors import StartFailed, TimedOut

STOP_GRACE_S = 30.0
READY_S = 60.0


class Child:
    """One `lakeward` command in a process of its own; its output goes to `log`."""

    def __init__(
        self, name: str, arguments: Sequence[str], log: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        self.name, self.arguments, self.log = name, tuple(arguments), log
        self._environment = {**os.environ, **(environment or {})}
        self._process: subprocess.Popen[bytes] | None = None
        self._log_start = 0

    def start(self) -> None:
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as out:
            self._log_start = out.tell()
            # A session of its own: Ctrl-C reaches us alone, and we stop children in order.
            self._process = subprocess.Popen(  # noqa: S603 - our own interpreter and commands
                [sys.executable, "-m", "lakeward.cli", *self.arguments],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                env=self._environment,
                start_new_session=True,
            )

    @property
    def exit_code(self) -> int | None:
        """None while it runs."""
        return None if self._process is None else self._process.poll()

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    def stop(self, grace_s: float = STOP_GRACE_S) -> None:
        """SIGTERM, then SIGKILL after the grace, for it and whatever it started. Safe to repeat."""
        if self._process is None:
            return
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(grace_s)
            except subprocess.TimeoutExpired:
                self._signal_group(signal.SIGKILL)
                self._process.wait()
        self._signal_group(signal.SIGKILL)

    def _signal_group(self, number: signal.Signals) -> None:
        assert self._process is not None
        try:
            os.killpg(self._process.pid, number)
        except (ProcessLookupError, PermissionError):
            return

    def last_lines(self, count: int = 15) -> str:
        """The end of what it said since its last start, for error messages."""
        try:
            with self.log.open(errors="replace") as said:
                said.seek(self._log_start)
                return "\n".join(said.read().splitlines()[-count:])
        except OSError:
            return ""


def wait_for_file(path: Path, child: Child, limit_s: float = READY_S) -> str:
    """Content of the file that the child writes once it is ready. Raises `StartFailed` if it died, `TimedOut` if it is
    late, both with the end of its log."""
    until = time.monotonic() + limit_s
    while time.monotonic() < until:
        if path.exists() and (text := path.read_text().strip()):
            return text
        if child.exit_code is not None:
            raise StartFailed(child=child.name, exit_code=child.exit_code, said=child.last_lines())
        time.sleep(0.05)
    raise TimedOut(
        what=f"start of the {child.name}", limit_s=limit_s, state=f"its log {child.log} ends:\n{child.last_lines()}"
    )


def choose_port(wanted: int) -> int:
    """`wanted` where it is free, else any free one."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", wanted))
        except OSError:
            probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
