# SPDX-License-Identifier: Apache-2.0
"""Who runs write orders: the interface a round uses, and the one that runs them here, in threads of this process."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import count

from lakeward.model.clock import Clock, SystemClock
from lakeward.model.outcome import WriteOutcome
from lakeward.tiering.plugins import PluginCache
from lakeward.tiering.round.control import RoundControl
from lakeward.tiering.round.order import WriteOrder
from lakeward.tiering.task.write import write_splits

Progressed = Callable[[int], None]
"""Told how many splits of a call are done so far."""


class Dispatcher(ABC):
    """Safe to use from several threads, one call per round at a time."""

    @abstractmethod
    def run(
        self, orders: Sequence[WriteOrder], control: RoundControl, *, is_small: bool, progressed: Progressed
    ) -> list[WriteOutcome]:
        """Writes the orders and returns the outcome of every split that was tried; blocks until all are back.

        A split that is missing in the answer was lost with its task. Raises why the round was stopped, if it was,
        without waiting for tasks to end; stopping one round stops no other."""

    def is_alive(self) -> bool:
        """False: what runs the orders is gone for good, and the job must end."""
        return True

    @abstractmethod
    def close(self) -> None:
        """Lets go of threads. Safe to repeat."""


class DirectDispatcher(Dispatcher):
    """Runs orders in threads of this process, through the same bytes as Spark would: for tests and tools."""

    def __init__(self, plugins: PluginCache, clock: Clock | None = None, threads: int = 2) -> None:
        self._plugins, self._clock = plugins, clock or SystemClock()
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="lakeward-write")
        self._attempts = count()

    def run(
        self, orders: Sequence[WriteOrder], control: RoundControl, *, is_small: bool, progressed: Progressed
    ) -> list[WriteOutcome]:
        outcomes: list[WriteOutcome] = []
        for done in self._pool.map(self._write, [o.to_bytes() for o in orders]):
            outcomes += [WriteOutcome.from_bytes(data) for data in done]
            progressed(len(outcomes))
        control.check()
        return outcomes

    def _write(self, data: bytes) -> list[bytes]:
        order = WriteOrder.from_bytes(data)
        return [o.to_bytes() for o in write_splits(order, self._plugins, self._clock, next(self._attempts))]

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)
