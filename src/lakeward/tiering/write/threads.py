# SPDX-License-Identifier: Apache-2.0
"""Threads that writers of several sides run in, used again from split to split: memory that a thread freed is taken
again by the same thread only, and a new one asks the kernel for all of it, page by page: a third of its CPU time.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from itertools import count

Task = Callable[[], None]


class WarmThreads:
    """Safe to use from several threads. Daemons, since one may hang in a lake that does not answer: it is not waited
    for when the process ends, and not used again before it is back."""

    def __init__(self) -> None:
        self._idle: list[queue.SimpleQueue[Task]] = []
        self._lock = threading.Lock()
        self._numbers = count()

    def start(self, task: Task) -> None:
        """`task` must not raise. Raises `RuntimeError` where no thread can be had."""
        with self._lock:
            box = self._idle.pop() if self._idle else self._new()
        box.put(task)

    def _new(self) -> queue.SimpleQueue[Task]:
        box: queue.SimpleQueue[Task] = queue.SimpleQueue()
        name = f"lakeward-side-{next(self._numbers)}"
        threading.Thread(target=self._serve, args=(box,), name=name, daemon=True).start()
        return box

    def _serve(self, box: queue.SimpleQueue[Task]) -> None:
        while True:
            box.get()()
            with self._lock:
                self._idle.append(box)


SIDE_THREADS = WarmThreads()
"""This process's."""
