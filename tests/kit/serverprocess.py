# SPDX-License-Identifier: Apache-2.0
"""A real server as a process of its own: started on free ports, killed or stopped, started again on the same folder."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from lakeward.client import Client, connect
from lakeward.errors import TimedOut
from lakeward_testing.warmprocess import WarmProcess, start_module

START_LIMIT_S = 120.0


@dataclass
class ServerProcess:
    """`settings` are option keys and values. After a restart the ports are the same, so that clients find it again."""

    data: Path
    settings: Mapping[str, str] = field(default_factory=dict)
    arguments: Sequence[str] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    port: int = 0
    flight_port: int = 0
    url: str = ""
    process: subprocess.Popen[bytes] | WarmProcess | None = None
    clients: list[Client] = field(default_factory=list)

    @property
    def pid(self) -> int:
        assert self.process is not None, "the server is not running"
        return self.process.pid

    @property
    def log(self) -> Path:
        return self.data.with_name(self.data.name + ".log")

    def start(self) -> ServerProcess:
        """Returns once the server answers. Raises `TimedOut` with its last words when it does not come up."""
        ready = self.data.with_name(self.data.name + ".ready")
        ready.unlink(missing_ok=True)
        self.data.parent.mkdir(parents=True, exist_ok=True)
        self.process = start_module("lakeward.cli", self._arguments(ready), self.log, self.environment)
        self._wait(ready)
        self.url = ready.read_text().strip()
        if not self.port:
            self.port = int(self.url.rpartition(":")[2])
        return self

    def client(self, *, token: str | None = None, ca: str | None = None) -> Client:
        """Closed by `close`, unless the caller does it before."""
        client = connect(self.url, token=token, ca=ca)
        self.clients.append(client)
        return client

    def close(self) -> None:
        """For the end of a test: its clients are closed, the process is killed."""
        for client in self.clients:
            client.close()
        self.kill()

    def kill(self) -> None:
        """`kill -9`: no last words."""
        self._end(signal.SIGKILL)

    def stop(self) -> int:
        """An orderly end; the exit code."""
        return self._end(signal.SIGTERM)

    def restart(self) -> ServerProcess:
        """After `kill` or `stop`."""
        return self.start()

    def _end(self, number: signal.Signals) -> int:
        process, self.process = self.process, None
        if process is None:
            return 0
        if process.poll() is None:
            process.send_signal(number)
        return process.wait(START_LIMIT_S)

    def _arguments(self, ready: Path) -> list[str]:
        given = ["server", "--port", str(self.port), "--flight-port", str(self.flight_port)]
        given += ["--data", str(self.data), "--ready-file", str(ready), *self.arguments]
        for key, value in self.settings.items():
            given += ["--set", f"{key}={value}"]
        return given

    def _wait(self, ready: Path) -> None:
        assert self.process is not None
        give_up_at = time.monotonic() + START_LIMIT_S
        while not ready.exists():
            if self.process.poll() is not None or time.monotonic() > give_up_at:
                raise TimedOut(what="start of the server", limit_s=START_LIMIT_S, state=self.last_words())
            time.sleep(0.01)

    def last_words(self) -> str:
        return self.log.read_text(errors="replace")[-2000:]
