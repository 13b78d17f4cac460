# SPDX-License-Identifier: Apache-2.0
"""Looks for lake commits that pass no server, again and again, often enough to see each before it expires."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod


class CommitWatch(ABC):
    EVERY_S = 0.2

    def __init__(self) -> None:
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, name="chaos-commits", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._done.set()
        self._thread.join()
        self.look()

    def _run(self) -> None:
        while not self._done.wait(self.EVERY_S):
            self.look()

    @abstractmethod
    def look(self) -> None:
        """Notes what came since the last look."""
