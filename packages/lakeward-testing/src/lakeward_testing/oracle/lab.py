# SPDX-License-Identifier: Apache-2.0
"""The oracle's processes: a real server and two jobs with short intervals. A thread starts what died and wakes what was
stopped, so that the play itself may wait for an answer.
"""

from __future__ import annotations

import itertools
import signal
import threading
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import httpx

from lakeward.client import Client
from lakeward.client.options import ClientOptions
from lakeward.protocol import routes
from lakeward_testing.chaos.child import LabChild
from lakeward_testing.chaos.lab import HERE, SETTINGS, START_S
from lakeward_testing.chaos.plan import COMPACT_STEPS, JOB_STEPS, SERVER_STEPS
from lakeward_testing.chaos.switches import Switches
from lakeward_testing.oracle.engines.base import has_module
from lakeward_testing.ports import free_port
from lakeward_testing.waiting import wait_until

SERVER, JOBS = "server", ("job-a", "job-b")
SECOND, SECOND_FORMATS = (
    "second",
    {"iceberg": "paimon", "paimon": "delta", "delta": "lance", "lance": "delta", "hudi": "delta"},
)
"""The lake that some plays have beside the first, and its format by that of the first."""

LIBRARIES = {"paimon": "pypaimon", "delta": "deltalake", "lance": "lance"}
"""Without the library of its format there is no second lake."""

QUICK = {
    **SETTINGS,
    "coordinator.quarantine.failures": "6",
    "coordinator.backoff.max": "2 s",
}
"""A table that keeps failing is quarantined within seconds, so that `resume` is one of the ways out that are tried."""

JOB_SETTINGS = {
    "LAKEWARD_TIERING__HEARTBEAT__INTERVAL": "200 ms",
    "LAKEWARD_TIERING__SPLIT__TARGET_BYTES": "16 kb",
    "LAKEWARD_TIERING__ROUND__MIN_WORK": "1 ms",
}
WRITE_RETRY_S = 60.0
STEPS = {SERVER: SERVER_STEPS, **dict.fromkeys(JOBS, (*JOB_STEPS, *COMPACT_STEPS))}


class OracleLab:
    """One folder's server and jobs. Safe to close more than once."""

    def __init__(self, folder: Path, format: str, settings: Mapping[str, str] | None = None) -> None:
        """`settings`: of the server, beside the lab's own."""
        self.folder, self.format, self._settings = folder, format, settings or {}
        self.http_port, self.flight_port = free_port(), free_port()
        self.url = f"http://127.0.0.1:{self.http_port}"
        self.warehouse = folder / "data" / "warehouse"
        second = SECOND_FORMATS[format]
        self.second_format = second if has_module(LIBRARIES[second]) else None
        self.second_warehouse = folder / "data" / "lakes" / SECOND / "warehouse"
        self.faults: Counter[str] = Counter()
        folder.mkdir(parents=True)
        self._switches = {name: Switches(folder / "switches" / name) for name in (SERVER, *JOBS)}
        self._children: dict[str, LabChild] = {}
        self._wake_at: dict[str, float] = {}
        self._numbers = itertools.count()
        self._armed: dict[int, tuple[str, str, float]] = {}
        self._lock, self._ending = threading.RLock(), threading.Event()
        self._start()
        self._keeper = threading.Thread(target=self._keep, name="oracle-keeper", daemon=True)
        self._keeper.start()

    def connect(self) -> Client:
        return Client(self.url, options=ClientOptions(retry_s=WRITE_RETRY_S))

    def _start(self) -> None:
        pairs = {
            **QUICK,
            "datalake.format": self.format,
            "datalake.default-lake": "default",
            **({f"lakes.{SECOND}.format": self.second_format} if self.second_format else {}),
            "server.port": str(self.http_port),
            "server.flight-port": str(self.flight_port),
            "server.data-dir": str(self.folder / "data"),
            **self._settings,
        }
        arguments = [str(self._switches[SERVER].folder), str(self.folder / "ready")]
        self._add(SERVER, "serverprocess", [*arguments, *(f"{k}={v}" for k, v in pairs.items())], {})
        self.wait_ready()
        for name in JOBS:
            self._add(name, "jobprocess", [str(self._switches[name].folder), self.url, name, "2"], JOB_SETTINGS)

    def _add(self, name: str, module: str, arguments: list[str], environment: dict[str, str]) -> None:
        child = LabChild(name, f"{HERE}.{module}", arguments, self.folder / f"{name}.log", environment)
        self._children[name] = child
        child.start()

    def _answers(self) -> bool:
        try:
            return httpx.get(self.url + routes.READY, timeout=2).status_code == 200
        except httpx.HTTPError:
            return False

    # ---- faults ----------------------------------------------------------------------------------------------------
    def wait_ready(self) -> None:
        wait_until(self._answers, limit_s=START_S, what="the server", state=self.last_words)

    def kill(self, name: str) -> None:
        with self._lock:
            self.faults[f"kill {name}"] += 1
            self._children[name].send(signal.SIGKILL)

    def pause(self, name: str, seconds: float) -> None:
        with self._lock:
            self.faults[f"pause {name}"] += 1
            self._children[name].send(signal.SIGSTOP)
            self._wake_at[name] = time.monotonic() + seconds

    def arm(self, name: str, point: str, action: str, seconds: float) -> None:
        """The next time the process comes by that step it is killed, stops for `seconds`, or loses the answer."""
        with self._lock:
            number = next(self._numbers)
            self._armed[number] = (name, f"{action} at {point}", seconds if action == "pause" else 0.0)
            self._switches[name].arm(number, point, action)

    def heal(self) -> None:
        """Nothing is armed, and everything is awake."""
        with self._lock:
            self._take_happened()
            self._armed.clear()
            for switches in self._switches.values():
                switches.disarm()
            for name in list(self._wake_at):
                self._wake(name)
            for child in self._children.values():
                child.send(signal.SIGCONT)
        wait_until(self._answers, limit_s=START_S, what="the server after faults", state=self.last_words)

    def _keep(self) -> None:
        while not self._ending.wait(0.1):
            with self._lock:
                if self._ending.is_set():
                    return
                self._take_happened()
                now = time.monotonic()
                for name in [n for n, at in self._wake_at.items() if at <= now]:
                    self._wake(name)
                for child in self._children.values():
                    if not child.is_alive():
                        child.start()

    def _take_happened(self) -> None:
        for switches in self._switches.values():
            for number in switches.take_happened():
                if number in self._armed:
                    name, words, seconds = self._armed.pop(number)
                    self.faults[words] += 1
                    if seconds:
                        self._wake_at[name] = time.monotonic() + seconds

    def _wake(self, name: str) -> None:
        self._wake_at.pop(name, None)
        self._children[name].send(signal.SIGCONT)

    # ---- the end ---------------------------------------------------------------------------------------------------
    def last_words(self, count: int = 6) -> str:
        return "\n".join(f"{name}: {child.last_words(count)}" for name, child in self._children.items())

    @property
    def starts(self) -> int:
        return sum(child.starts for child in self._children.values())

    def close(self) -> None:
        self._ending.set()
        self._keeper.join(30)
        with self._lock:
            for child in self._children.values():
                child.send(signal.SIGCONT)
                child.kill()
