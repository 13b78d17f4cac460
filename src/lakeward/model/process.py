# SPDX-License-Identifier: Apache-2.0
"""The process: where its time comes from, threads in the background, the signal to stop, its memory, and fault points:
named steps of the protocol where a test may raise, pause or kill. Without an injector they cost a call."""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

_log = logging.getLogger(__name__)

PATIENCE_S = 900.0
"""One turn may take this long without a beat: an upload of many segments, a lake that does not answer."""


@dataclass(frozen=True, kw_only=True)
class Heartbeat:
    """`failure` is what the last turn ended with; it is tried again."""

    name: str
    age_s: float
    is_well: bool
    failure: str | None = None


class BackgroundThread:
    """Runs `work` every `every_s` until `stop`; a number that `work` returns is the pause before the next run. An
    exception is logged once and the thread continues: only `stop` ends it."""

    def __init__(
        self, name: str, work: Callable[[], float | None], every_s: float, *, patience_s: float = PATIENCE_S
    ) -> None:
        self.name, self.stopping = name, threading.Event()
        self._work, self._every_s, self._patience_s = work, every_s, patience_s
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._due_at = time.monotonic()
        self._failure: str | None = None

    def start(self) -> None:
        self.beat()
        self._thread.start()

    def stop(self, limit_s: float | None = None) -> None:
        """Waits for the turn that runs, at most so long. Safe to repeat, and without a start."""
        self.stopping.set()
        if self._thread.is_alive():
            self._thread.join(limit_s)

    def beat(self) -> None:
        """Called by work that takes long, on each step of it."""
        self._due_at = time.monotonic()

    def is_current(self) -> bool:
        return self._thread is threading.current_thread()

    def heartbeat(self) -> Heartbeat:
        age_s = max(0.0, time.monotonic() - self._due_at)
        is_well = self._thread.is_alive() and age_s <= self._patience_s
        return Heartbeat(name=self.name, age_s=age_s, is_well=is_well, failure=self._failure)

    def _run(self) -> None:
        while not self.stopping.is_set():
            with suppress(BaseException):  # also what comes between two turns
                self._take_turns()

    def _take_turns(self) -> None:
        while not self.stopping.is_set():
            self.beat()
            pause_s = self._turn()
            self._due_at = time.monotonic() + pause_s
            self.stopping.wait(pause_s)

    def _turn(self) -> float:
        try:
            pause_s = self._work()
            self._failure = None
            return self._every_s if pause_s is None else pause_s
        except BaseException as error:  # noqa: BLE001 - nothing may end it but the stop
            if self._failure != str(error):
                _log.exception("%s failed; it goes on", self.name)
            self._failure = str(error) or type(error).__name__
            return self._every_s


class Clock(Protocol):
    def now_ms(self) -> int:
        """Wall time in milliseconds since 1970: for records and people; it may jump."""
        ...

    def monotonic(self) -> float:
        """Seconds that never go back: for leases, timers and durations."""
        ...


class SystemClock:
    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()


POLL_S = 0.1
"""A signal that arrives just before a wait begins does not end it, so every wait must be short."""


class StopSignal:
    """Made in the main thread. The handler sets a flag and nothing more: a `threading.Event` has a lock, which the very
    code that the handler interrupts may hold.
    """

    def __init__(self, *numbers: signal.Signals) -> None:
        self._came = False
        for number in numbers or (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._note)

    def wait(self, limit_s: float = float("inf")) -> bool:
        """Whether it came, at the latest after so long."""
        until = time.monotonic() + limit_s
        while not self._came and (left := until - time.monotonic()) > 0:
            time.sleep(min(POLL_S, left))
        return self._came

    def _note(self, *_: object) -> None:
        self._came = True


def resident_bytes() -> int | None:
    """None where the system does not tell."""
    with suppress(OSError, ValueError, IndexError):
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return None


FAULTS_ENV = "LAKEWARD_FAULTS"
"""Tells a child process what to inject where; `lakeward_testing.faults` reads it."""

Injector = Callable[[str, dict[str, Any]], None]

_injector: Injector | None = None
_told_by_environment = FAULTS_ENV in os.environ


def fault_point(name: str, **facts: Any) -> None:
    """Marks a step. Names read `package.step`, for instance `round.before-lake-commit`."""
    if _told_by_environment:
        _install_from_environment()
    if _injector is not None:
        _injector(name, facts)


def set_injector(injector: Injector | None) -> Injector | None:
    """Puts an injector in place for this process and returns the one before it. Called by `lakeward_testing` only."""
    global _injector
    before, _injector = _injector, injector
    return before


def _install_from_environment() -> None:
    """By name, as `testing` stands above this package: also executors and servers that a test starts must find it."""
    global _told_by_environment
    _told_by_environment = False
    import_module("lakeward_testing.faults").install_from_environment()
