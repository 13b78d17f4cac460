# SPDX-License-Identifier: Apache-2.0
"""Switches between the lab and its processes: files in a folder, so that a fault begins and ends while a process runs."""

from __future__ import annotations

import errno
import os
import signal
from pathlib import Path
from typing import Any

from lakeward.errors import FaultInjected
from lakeward.hot.embedded.disk import free_bytes
from lakeward.model.clock import SystemClock
from lakeward.model.faults import set_injector

DISK_FULL, CLOCK, READ_ONLY, ARMED = "disk-full", "clock", "read-only", "armed"

LAKE_WRITES = ("lake.before-row-group", "lake.before-deletes", "lake.before-manifests")
"""Where a round writes to the lake's storage. A superuser writes to read-only folders too, so these points refuse in their place."""


class Switches:
    """One process's folder. The lab turns switches; the process looks at them where they matter."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

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

    def arm(self, point: str, action: str) -> None:
        """The next time the process comes by that point: `kill`, `pause` (it stops itself) or `lose` (an error there)."""
        self.turn(ARMED, f"{point} {action}")

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
        armed = self.read(ARMED)
        if armed is None or armed.split()[0] != point or not self._claim():
            return
        _act(point, armed.split()[1])

    def _claim(self) -> bool:
        """Of several threads one gets it."""
        try:
            (self.folder / ARMED).rename(self.folder / f"{ARMED}.taken")
        except FileNotFoundError:
            return False
        return True

    def was_taken(self) -> bool:
        """Whether the armed fault happened, since the last call."""
        try:
            (self.folder / f"{ARMED}.taken").unlink()
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
        case _:
            raise FaultInjected(point=point)
