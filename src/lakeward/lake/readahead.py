# SPDX-License-Identifier: Apache-2.0
"""Runs iterators on threads that read a little ahead of the consumer: one file is decoded while another is
processed.
"""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")

WIDTH, DEPTH = 2, 4
"""Sources that run at once, and items that each may be ahead: memory stays constant."""

_LOOK_S = 0.1
"""How often a source that waits for space checks whether it still has a consumer."""


@dataclass(frozen=True)
class _End:
    error: BaseException | None = None


class _Source(Generic[T]):
    def __init__(self, make: Callable[[], Iterator[T]]) -> None:
        self._items: queue.Queue[T | _End] = queue.Queue(DEPTH)
        self._is_unwanted = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(make,), name="read-ahead", daemon=True)
        self._thread.start()

    def _run(self, make: Callable[[], Iterator[T]]) -> None:
        try:
            for item in make():
                if not self._put(item):
                    return
            self._put(_End())
        except BaseException as error:  # noqa: BLE001 - raised where the items are consumed
            self._put(_End(error))

    def _put(self, item: T | _End) -> bool:
        while not self._is_unwanted.is_set():
            try:
                self._items.put(item, timeout=_LOOK_S)
                return True
            except queue.Full:
                continue
        return False

    def __iter__(self) -> Iterator[T]:
        while True:
            item = self._items.get()
            if isinstance(item, _End):
                if item.error is not None:
                    raise item.error
                return
            yield item

    def close(self) -> None:
        self._is_unwanted.set()
        self._thread.join()


def read_ahead(makers: Iterable[Callable[[], Iterator[T]]]) -> Iterator[T]:
    """Yields the items of all iterators, in order. An error is raised in the place of its item; closing early ends
    every thread."""
    waiting, running = deque(makers), deque[_Source[T]]()
    try:
        while waiting or running:
            while waiting and len(running) < WIDTH:
                running.append(_Source(waiting.popleft()))
            yield from running[0]
            running.popleft().close()
    finally:
        for source in running:
            source.close()
