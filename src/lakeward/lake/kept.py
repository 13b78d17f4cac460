# SPDX-License-Identifier: Apache-2.0
"""A cache of contents of files that never change, shared by all readers of this process, up to a total weight."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

Value = TypeVar("Value")


class Kept(Generic[Value]):
    """A cache that drops the least recently used value first. Safe for threads; two that miss at once both load, and
    both are right."""

    def __init__(self, limit: int, weigh: Callable[[Value], int]) -> None:
        self._limit, self._weigh = limit, weigh
        self._values: OrderedDict[str, Value] = OrderedDict()
        self._size = 0
        self._lock = threading.Lock()

    def find(self, path: str) -> Value | None:
        with self._lock:
            value = self._values.get(path)
            if value is not None:
                self._values.move_to_end(path)
            return value

    def put(self, path: str, value: Value) -> None:
        with self._lock:
            if path in self._values:
                self._size -= self._weigh(self._values.pop(path))
            self._values[path] = value
            self._size += self._weigh(value)
            while self._size > self._limit and self._values:
                self._size -= self._weigh(self._values.popitem(last=False)[1])

    def clear(self) -> None:
        """Empties the cache."""
        with self._lock:
            self._values.clear()
            self._size = 0

    def load(self, path: str, load: Callable[[], Value]) -> Value:
        value = self.find(path)
        if value is None:
            value = load()
            self.put(path, value)
        return value
