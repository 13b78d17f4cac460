# SPDX-License-Identifier: Apache-2.0
"""Group commit: one fsync for all appenders that wait for one."""

from __future__ import annotations

import threading
from collections.abc import Callable


class GroupCommit:
    """The first to wait flushes for everybody who has written by then; the others wait for it or lead the next one.

    `flush` forces to disk what is written and returns the offset up to which that is; it runs in one thread at a time.
    """

    def __init__(self, flush: Callable[[], int], synced: int, on_synced: Callable[[], None]) -> None:
        self._flush, self._synced, self._on_synced = flush, synced, on_synced
        self._changed = threading.Condition()
        self._flushing = False

    @property
    def synced(self) -> int:
        return self._synced

    def wait(self, offset: int) -> None:
        """Returns once everything below `offset` is on disk. Raises what `flush` raised in
        this thread's own attempt.
        """
        while self._synced < offset:
            if self._lead(offset):
                self._run()

    def between(self, run: Callable[[], bool]) -> bool:
        """Runs this while no flush does; False when one is under way."""
        with self._changed:
            if self._flushing:
                return False
            self._flushing = True
        try:
            return run()
        finally:
            with self._changed:
                self._flushing = False
                self._changed.notify_all()

    def drain(self) -> None:
        """Returns when no flush is under way."""
        with self._changed:
            while self._flushing:
                self._changed.wait()

    def _lead(self, offset: int) -> bool:
        with self._changed:
            while self._flushing and self._synced < offset:
                self._changed.wait()
            if self._synced >= offset:
                return False
            self._flushing = True
            return True

    def _run(self) -> None:
        reached = self._synced
        try:
            reached = self._flush()
        finally:
            with self._changed:
                self._flushing = False
                self._synced = max(self._synced, reached)
                self._changed.notify_all()
        self._on_synced()
