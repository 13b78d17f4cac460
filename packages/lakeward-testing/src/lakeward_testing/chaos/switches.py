# SPDX-License-Identifier: Apache-2.0
"""Switches between the lab and its processes: files in a folder, so that a fault begins and ends while a
process runs.
"""

from __future__ import annotations

import errno
import os
import signal
from pathlib import Path
from typing import Any

from lakeward.errors import FaultInjected
from lakeward.model import SystemClock, free_bytes, set_injector

DISK_FULL, CLOCK, READ_ONLY = "disk-full", "clock", "read-only"

LAKE_WRITES = ("lake.before-row-group", "lake.before-deletes", "lake.before-manifests")
"""Where a round writes to the lake's storage. A superuser writes to read-only folders too, so these points refuse in
their place.
"""


class Switches:
    """One process's folder. The lab turns switches; the process looks at them where they matter."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._armed, self._taken = folder / "armed", folder / "taken"
        for path in (self._armed, self._taken):
            path.mkdir(parents=True, exist_ok=True)

    # ---- the lab's side --------------------------------------------------------------------------------------------
    def turn(self, name: str, text: str | None) -> None:
        """On with that text, off with None."""
        path = self.folder / name
        if text is None:
            path.unlink(missing_ok=True)
            return
        fresh = path.with_suffix(".new")
        fresh.write_text(text)
        fresh.replace(path)

    def arm(self, number: int, point: str, action: str) -> None:
        """The next time the process comes by that point: `kill`, `pause` (it stops itself), `end` (what ends a thread)
        or `lose` (an error there).
        """
        (self._armed / f"{number}={point}={action}").touch()

    def take_happened(self) -> list[int]:
        """Numbers of the armed faults that happened since the last call."""
        numbers = []
        for path in sorted(self._taken.iterdir()):
            path.unlink()
            numbers.append(int(path.name.partition("=")[0]))
        return numbers

    def disarm(self) -> None:
        for path in (*self._armed.iterdir(), *self._taken.iterdir()):
            path.unlink(missing_ok=True)

    # ---- the process's side ----------------------------------------------------------------------------------------
    def read(self, name: str) -> str | None:
        try:
            return (self.folder / name).read_text()
        except FileNotFoundError:
            return None

    def install(self) -> None:
        """Puts itself in place as this process's injector."""
        set_injector(self.hit)

    def hit(self, point: str, facts: dict[str, Any]) -> None:
        if point in LAKE_WRITES and self.read(READ_ONLY) is not None:
            raise OSError(errno.EROFS, "read-only file system", facts.get("path"))
        for name in os.listdir(self._armed):
            _, armed_point, action = name.split("=")
            if armed_point == point and self._claim(name):
                _act(point, action)
                return

    def _claim(self, name: str) -> bool:
        """Of several threads one gets it."""
        try:
            (self._armed / name).rename(self._taken / name)
        except FileNotFoundError:
            return False
        return True

    def free_bytes(self, folder: Path) -> int:
        return 0 if self.read(DISK_FULL) is not None else free_bytes(folder)


class SteppedClock(SystemClock):
    """Wall time that the lab moves; monotonic time goes on by itself, as a machine's does."""

    def __init__(self, switches: Switches) -> None:
        self._switches = switches

    def now_ms(self) -> int:
        return super().now_ms() + int(self._switches.read(CLOCK) or 0)


def _act(point: str, action: str) -> None:
    match action:
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "pause":
            os.kill(os.getpid(), signal.SIGSTOP)
        case "end":
            raise SystemExit
        case _:
            raise FaultInjected(point=point)
