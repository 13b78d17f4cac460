# SPDX-License-Identifier: Apache-2.0
"""Writing splits, in an executor's Python process: hot store batches go straight into lake writers, of one round or of
several that read the same part of the log.

Outcomes are returned, never raised: an exception would reach the driver as text only.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

from lakeward.errors import LakewardError, LeftBehind, SplitFailed
from lakeward.model import Clock, SideName, of_table
from lakeward.spi import PluginCache
from lakeward.tiering.work.outcome import WriteOutcome
from lakeward.tiering.work.stop import TaskStop
from lakeward.tiering.work.together import Writing, plan_reads
from lakeward.tiering.work.writeorder import WriteOrder
from lakeward.tiering.write import splitwrite
from lakeward.tiering.write.broadcast import Broadcast, Listener
from lakeward.tiering.write.logread import LogReader, LogSource, Signal
from lakeward.tiering.write.threads import SIDE_THREADS


def write_splits(order: WriteOrder, plugins: PluginCache, clock: Clock, attempt: int) -> list[WriteOutcome]:
    """Writes the splits of the order, and of those beside it, one read after another. Never raises."""
    orders = (order, *order.beside)
    signals = [_signal(o, plugins, clock) for o in orders]
    reads = plan_reads(orders) if order.beside else [(Writing(0, order, split),) for split in order.splits]
    outcomes, begun = list[WriteOutcome](), set[int]()
    for read in reads:
        tries = [_Try(w, plugins, clock, attempt, signals[w.number], w.number not in begun) for w in read]
        begun |= {w.number for w in read}
        outcomes += [tries[0].run()] if len(tries) == 1 else _write_together(tries)
    return outcomes


def _signal(order: WriteOrder, plugins: PluginCache, clock: Clock) -> TaskStop:
    return TaskStop(order, clock, lambda: plugins.hot(order.hot).coordinator().check_lease(order.lease))


@dataclass(frozen=True)
class _Try:
    """One split of one round, one attempt."""

    writing: Writing
    plugins: PluginCache
    clock: Clock
    attempt: int
    signal: TaskStop
    is_new: bool

    def run(self, source: LogSource | None = None) -> WriteOutcome:
        """Never raises."""
        order, split = self.writing.order, self.writing.split
        began, busy = self.clock.monotonic(), time.thread_time()
        try:
            with of_table(str(order.table.path)):
                is_first = order.is_first and self.is_new
                outcome = splitwrite.SplitWriter(
                    order, split, self.plugins, self.clock, self.attempt, self.signal, is_first=is_first, source=source
                ).run()
        except LakewardError as error:
            outcome = self.failed(error)
        except Exception as error:  # noqa: BLE001 - whatever a library raises must reach the driver typed
            text = str(error)[:2000]
            failed = SplitFailed(table=str(order.table.path), split=str(split), kind=type(error).__name__, text=text)
            outcome = self.failed(failed)
        return replace(outcome, seconds=self.clock.monotonic() - began, cpu_s=time.thread_time() - busy)

    def failed(self, error: LakewardError) -> WriteOutcome:
        split, round_id = self.writing.split, self.writing.order.round_id
        return WriteOutcome(split=split, stop=split.start, attempt=self.attempt, round_id=round_id, error=error)

    def reader(self, signal: Signal) -> LogReader:
        order, bucket = self.writing.order, self.writing.split.bucket
        store = self.plugins.hot(order.hot).store()
        return LogReader(store, order.table, bucket, signal, self.clock, order.server_wait_s)


class _SideWriter:
    """A try in a thread of its own."""

    def __init__(self, attempt: _Try, broadcast: Broadcast) -> None:
        self._attempt, self._broadcast = attempt, broadcast
        self._listener: Listener = broadcast.listener(attempt.signal, self._left_behind)
        self._outcome: WriteOutcome | None = None

    @property
    def side(self) -> SideName:
        return self._attempt.writing.order.side

    def run(self) -> None:
        try:
            self._outcome = self._attempt.run(self._listener)
        finally:
            self._broadcast.over(self._listener)

    def outcome(self) -> WriteOutcome:
        """Outcome of a writer that ended, or that fell behind."""
        error = self._listener.error
        if self._listener.is_left or self._outcome is None:
            return self._attempt.failed(error if isinstance(error, LeftBehind) else self._left_behind(0.0))
        return replace(self._outcome, bytes_read=self._listener.bytes_read)

    def _left_behind(self, silent_s: float) -> LeftBehind:
        order, split = self._attempt.writing.order, self._attempt.writing.split
        return LeftBehind(table=str(order.table.path), side=str(order.side), split=str(split), silent_s=int(silent_s))


def _write_together(tries: list[_Try]) -> list[WriteOutcome]:
    orders = [t.writing.order for t in tries]
    broadcast = Broadcast(tries[0].clock, min(o.patience_s for o in orders))
    writers = [_SideWriter(t, broadcast) for t in tries]
    for writer in writers:
        SIDE_THREADS.start(writer.run)
    busy = time.thread_time()
    broadcast.run(tries[0].reader)
    read_cpu_s = (time.thread_time() - busy) / len(writers)
    sides = {w.side for w in writers}
    return [
        replace(outcome, cpu_s=outcome.cpu_s + read_cpu_s, read_with=tuple(sorted(sides - {w.side}, key=str)))
        for w in writers
        if (outcome := w.outcome())
    ]
