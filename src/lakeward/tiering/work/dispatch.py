# SPDX-License-Identifier: Apache-2.0
"""Who runs orders: the interface that work uses, and the one that runs them here, in threads of this process."""

from __future__ import annotations

import queue
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from itertools import count

from lakeward.model import Clock, SystemClock
from lakeward.spi import PluginCache
from lakeward.tiering.work.control import RoundControl
from lakeward.tiering.work.kinds import load_runner
from lakeward.tiering.work.order import Order
from lakeward.tiering.work.packedorder import PackedOrder

Progressed = Callable[[int], None]
"""Told how many splits of a call are done so far."""


def pack_order(order: Order) -> PackedOrder:
    return order.kind, order.to_bytes()


class Dispatcher(ABC):
    """Safe to use from several threads, one call per round at a time."""

    @abstractmethod
    def run(
        self, orders: Sequence[Order], control: RoundControl, *, is_small: bool, progressed: Progressed
    ) -> list[bytes]:
        """Runs one round's orders and returns the outcome of every split that was tried; blocks until all are back.

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
        self._attempts = count()
        self._queue: queue.SimpleQueue[tuple[PackedOrder, Future[list[bytes]]] | None] = queue.SimpleQueue()
        self._threads = threads
        for number in range(threads):
            threading.Thread(target=self._serve, name=f"lakeward-write-{number}", daemon=True).start()

    def run(
        self, orders: Sequence[Order], control: RoundControl, *, is_small: bool, progressed: Progressed
    ) -> list[bytes]:
        outcomes: list[bytes] = []
        for done in [self._submit(pack_order(o)) for o in orders]:
            outcomes += done.result()
            progressed(len(outcomes))
        control.check()
        return outcomes

    def _submit(self, order: PackedOrder) -> Future[list[bytes]]:
        answer: Future[list[bytes]] = Future()
        self._queue.put((order, answer))
        return answer

    def _serve(self) -> None:
        """Threads of a pool of Python's are waited for when a process ends, however long their order takes; this is
        not."""
        while (taken := self._queue.get()) is not None:
            order, answer = taken
            try:
                answer.set_result(self._run_order(order))
            except Exception as error:  # noqa: BLE001 - whoever waits gets it
                answer.set_exception(error)

    def _run_order(self, order: PackedOrder) -> list[bytes]:
        kind, data = order
        return load_runner(kind).run_order(data, self._plugins, self._clock, next(self._attempts))

    def close(self) -> None:
        for _ in range(self._threads):
            self._queue.put(None)
