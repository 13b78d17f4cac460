# SPDX-License-Identifier: Apache-2.0
"""File handles of buckets: as many as are in use, however many buckets there are; those idle longest go first."""

from __future__ import annotations

import resource
import threading
import time
from contextlib import suppress
from typing import Protocol

from lakeward.errors import LakewardError

IDLE_S = 300.0
"""Opening a bucket's keys again takes milliseconds; a bucket that was not used for five minutes can wait that long."""

_MOST = 16_384
_LEAST = 32


class Closable(Protocol):
    """Something with files that it opens again by itself when it is next used."""

    used_at: float

    @property
    def handles(self) -> int:
        """How many it has open now."""
        ...

    def close_idle(self) -> bool:
        """Puts everything to disk and closes the files. False: it is in use. The caller holds no lock."""
        ...


class OpenFiles:
    """Limits the number of open files. Thread-safe. `add` counts and `make_room` closes, separately, because the caller
    of `add` holds locks. Files that several threads open in between may exceed the budget slightly; the other half of
    the process's limit covers them."""

    def __init__(self, budget: int) -> None:
        self.budget = budget
        self._lock = threading.Lock()
        self._closing = threading.Lock()
        self._open: dict[int, Closable] = {}
        self._has_grown = False

    def add(self, opened: Closable) -> None:
        with self._lock:
            self._open[id(opened)] = opened
            self._has_grown = True

    def remove(self, closed: Closable) -> None:
        with self._lock:
            self._open.pop(id(closed), None)

    @property
    def handles(self) -> int:
        with self._lock:
            return sum(one.handles for one in self._open.values())

    def make_room(self) -> None:
        """Called without locks before something may be opened: on every call, so it counts only after an opening."""
        if self._has_grown:
            self._has_grown = False
            if self.handles > self.budget:
                self._close_idle(keep=self.budget * 7 // 8)

    def close_unused(self, idle_s: float = IDLE_S) -> None:
        """Closes files that were not used for this long, even if there is room."""
        self._close_idle(keep=self.budget * 7 // 8, unused_since=time.monotonic() - idle_s)

    def _close_idle(self, keep: int, unused_since: float = 0.0) -> None:
        if not self._closing.acquire(blocking=False):
            return  # somebody makes room already
        try:
            with self._lock:
                oldest_first = sorted(self._open.values(), key=lambda one: one.used_at)
            held = sum(one.handles for one in oldest_first)
            for one in oldest_first:
                if held <= keep and one.used_at >= unused_since:
                    return
                handles = one.handles
                with suppress(LakewardError, OSError):  # it stays open, and whoever uses it next hears why
                    held -= handles if one.close_idle() else 0
        finally:
            self._closing.release()


def raise_limit() -> int:
    """Lets this process open as many files as the system allows it; returns how many those are."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with suppress(ValueError, OSError):  # macOS refuses its own "unlimited"
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def default_budget() -> int:
    """Half of what this process may open: the rest is for connections, readers and the state's databases."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _MOST if soft == resource.RLIM_INFINITY else max(_LEAST, min(soft // 2, _MOST))
