# SPDX-License-Identifier: Apache-2.0
"""Faults at fault points: raise, pause or kill, armed by name and n-th hit, in this process or in a child's
environment.

The environment form:
`LAKEWARD_FAULTS="seed=7;round.before-lake-commit=kill,hit=2;lake.before-commit=pause,file=/tmp/p"`.
"""

from __future__ import annotations

import os
import random
import signal
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from types import TracebackType
from typing import Any

from lakeward.errors import FaultInjected, InvalidRequest, TimedOut
from lakeward.model import FAULTS_ENV, Injector, set_injector
from lakeward_testing.waiting import wait_until

PAUSE_LIMIT_S = 120.0
"""A pause that nobody ends fails in the end: a test must not hang for ever."""


class FaultAction(StrEnum):
    RAISE = "raise"
    PAUSE = "pause"
    KILL = "kill"


@dataclass(kw_only=True)
class Fault:
    """One armed fault. It acts on hits `hit` to `hit + times - 1` (times None: on every later one), each with `chance`.

    `file` names the files through which a pause in another process is seen (`.reached`) and ended (`.release`);
    `once` a file that the first to act makes, so that of several processes one acts; `table` the only one it is for.
    """

    point: str
    action: FaultAction = FaultAction.RAISE
    hit: int = 1
    times: int | None = 1
    chance: float = 1.0
    file: str | None = None
    once: str | None = None
    table: str | None = None
    error: Callable[[], Exception] | None = None
    when: Callable[[Mapping[str, Any]], bool] | None = None
    hits: int = 0
    acted: int = 0
    _reached: threading.Event = field(default_factory=threading.Event, repr=False)
    _released: threading.Event = field(default_factory=threading.Event, repr=False)

    def wait_reached(self, limit_s: float = 120.0) -> None:
        """Blocks until a pause here has begun."""
        wait_until(self.is_reached, limit_s=limit_s, what=f"fault point {self.point}")

    def is_reached(self) -> bool:
        return self._reached.is_set() or (self.file is not None and Path(self.file + ".reached").exists())

    def release(self) -> None:
        """Ends the pause, now or when it comes."""
        self._released.set()
        if self.file is not None:
            Path(self.file + ".release").touch()

    def is_released(self) -> bool:
        return self._released.is_set() or (self.file is not None and Path(self.file + ".release").exists())

    def to_text(self) -> str:
        """The environment form."""
        parts = [
            f"{self.point}={self.action}",
            f"hit={self.hit}",
            f"times={'all' if self.times is None else self.times}",
        ]
        named = (("file", self.file), ("once", self.once), ("table", self.table))
        parts += [f"{name}={value}" for name, value in named if value is not None]
        return ",".join([*parts, f"chance={self.chance}"] if self.chance < 1 else parts)

    @classmethod
    def from_text(cls, text: str) -> Fault:
        head, *rest = text.split(",")
        point, _, action = head.partition("=")
        options = dict(part.partition("=")[::2] for part in rest)
        unknown = set(options) - {"hit", "times", "chance", "file", "once", "table"}
        if unknown or action not in set(FaultAction):
            raise InvalidRequest(
                what=f"{FAULTS_ENV} entry {text!r}", reason="write POINT=raise|pause|kill[,hit=N][,times=N|all]..."
            )
        times = options.get("times", "1")
        return cls(
            point=point,
            action=FaultAction(action),
            hit=int(options.get("hit", "1")),
            times=None if times == "all" else int(times),
            chance=float(options.get("chance", "1")),
            file=options.get("file"),
            once=options.get("once"),
            table=options.get("table"),
        )


class Faults:
    """The faults of a test: a context manager that puts them in place for this process and takes them out again."""

    def __init__(self, *faults: Fault, seed: int = 0) -> None:
        self.seed = seed
        self.seen: list[str] = []
        self._faults = list(faults)
        self._random = random.Random(seed)  # noqa: S311 - choice of faults, not of secrets
        self._lock = threading.RLock()  # a `when` may come to fault points itself
        self._before: Injector | None = None

    def arm(self, point: str, action: str = FaultAction.RAISE, **options: Any) -> Fault:
        fault = Fault(point=point, action=FaultAction(action), **options)
        with self._lock:
            self._faults.append(fault)
        return fault

    def disarm(self, fault: Fault) -> None:
        with self._lock:
            self._faults.remove(fault)
        fault.release()

    def __enter__(self) -> Faults:
        self._before = set_injector(self.hit)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        set_injector(self._before)
        for fault in self._faults:
            fault.release()

    def hit(self, point: str, facts: dict[str, Any]) -> None:
        """The injector: called at each fault point."""
        with self._lock:
            self.seen.append(point)
            due = [f for f in self._faults if f.point == point and self._is_due(f, facts)]
        for fault in due:
            _act(fault)

    def to_text(self) -> str:
        """What to put into a child's environment under `LAKEWARD_FAULTS`."""
        return ";".join([f"seed={self.seed}", *(f.to_text() for f in self._faults)])

    @classmethod
    def from_text(cls, text: str) -> Faults:
        entries = [part.strip() for part in text.split(";") if part.strip()]
        seeds = [int(e.removeprefix("seed=")) for e in entries if e.startswith("seed=")]
        return cls(*(Fault.from_text(e) for e in entries if not e.startswith("seed=")), seed=seeds[0] if seeds else 0)

    def _is_due(self, fault: Fault, facts: dict[str, Any]) -> bool:
        if fault.when is not None and not fault.when(facts):
            return False
        if fault.table is not None and str(facts.get("table")) != fault.table:
            return False
        fault.hits += 1
        nth = fault.hits - fault.hit
        if nth < 0 or (fault.times is not None and nth >= fault.times) or self._random.random() >= fault.chance:
            return False
        if fault.once is not None and not _is_first(fault.once):
            return False
        fault.acted += 1
        return True


def install_from_environment() -> Faults | None:
    """Called on a process's first fault point when `LAKEWARD_FAULTS` is set. The faults stay for the process's life."""
    text = os.environ.get(FAULTS_ENV, "")
    return Faults.from_text(text).__enter__() if text else None


def _act(fault: Fault) -> None:
    match fault.action:
        case FaultAction.RAISE:
            raise fault.error() if fault.error else FaultInjected(point=fault.point)
        case FaultAction.KILL:
            os.kill(os.getpid(), signal.SIGKILL)
        case FaultAction.PAUSE:
            _pause(fault)


def _pause(fault: Fault) -> None:
    if fault.file is not None:
        Path(fault.file + ".reached").touch()
    fault._reached.set()
    try:
        wait_until(fault.is_released, limit_s=PAUSE_LIMIT_S, what=f"release of the pause at {fault.point}")
    except TimedOut:
        raise FaultInjected(point=fault.point) from None
    if fault.error is not None:
        raise fault.error()


def _is_first(marker: str) -> bool:
    try:
        os.close(os.open(marker, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
    except FileExistsError:
        return False
    return True
