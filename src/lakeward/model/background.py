# SPDX-License-Identifier: Apache-2.0
"""A thread that works in the background until it is stopped, and a heartbeat that tells whether it still does."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

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
