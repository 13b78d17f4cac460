# SPDX-License-Identifier: Apache-2.0
"""Runs orders on Spark: big rounds in a job of their own, small rounds of several tables in one job together."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from typing import Any

from lakeward.errors import SplitFailed
from lakeward.tiering.work.control import RoundControl
from lakeward.tiering.work.dispatch import Dispatcher, Progressed, pack_order
from lakeward.tiering.work.order import Order
from lakeward.tiering.work.packedorder import PackedOrder, run_order

SHARED_JOBS = 2
"""Shared jobs at a time: what arrives while they run is gathered for the next one."""

SHARED_PATIENCE_S = 10.0
"""A small round whose shared job is held up by another table's trouble goes on alone after this."""

POLL_S = 0.05

PROGRESS_POLLS = 10
"""Asking Spark how far it is takes several calls into the JVM: about as often as a heartbeat tells it."""

Answers = list[list[bytes]]


class _Waiting:
    """Orders of one round on their way through Spark. `error`: the Spark job itself failed."""

    def __init__(self, orders: Sequence[PackedOrder]) -> None:
        self.orders = orders
        self.answers: Answers | None = None
        self.error: BaseException | None = None
        self.done = threading.Event()

    def finish(self, answers: Answers | None, error: BaseException | None = None) -> None:
        self.answers, self.error = answers, error
        self.done.set()


class SparkDispatcher(Dispatcher):
    """`start_thread` makes threads that carry Spark's settings (`pyspark.InheritableThread`)."""

    def __init__(
        self,
        context: Any,
        start_thread: Callable[[Callable[[], None], str], None],
        patience_s: float = SHARED_PATIENCE_S,
    ) -> None:
        self._context, self._start, self._patience_s = context, start_thread, patience_s
        self._parallelism = max(1, int(context.defaultParallelism))
        self._queue: queue.SimpleQueue[_Waiting | None] = queue.SimpleQueue()
        for number in range(SHARED_JOBS):
            start_thread(self._share, f"lakeward-shared-{number}")

    def run(
        self, orders: Sequence[Order], control: RoundControl, *, is_small: bool, progressed: Progressed
    ) -> list[bytes]:
        packed, table = [pack_order(o) for o in orders], str(orders[0].table.path)
        try:
            answers = self._run_shared(packed, control) if is_small else None
            if answers is None:
                answers = self._run_alone(packed, control, orders[0].round_id, progressed)
        except _JobFailed as failed:
            raise SplitFailed(table=table, split="Spark job", kind=failed.kind, text=failed.text) from None
        outcomes = [data for answer in answers for data in answer]
        progressed(len(outcomes))
        return outcomes

    def close(self) -> None:
        for _ in range(SHARED_JOBS):
            self._queue.put(None)

    # ---- a job of its own ------------------------------------------------------------------------------------------
    def _run_alone(
        self, orders: Sequence[PackedOrder], control: RoundControl, group: str, progressed: Progressed
    ) -> Answers:
        waiting = _Waiting(orders)
        self._start(lambda: self._collect(waiting, [waiting], group), f"lakeward-round-{group}")
        polls = 0
        while not waiting.done.wait(POLL_S):
            if control.stopped_by is not None:
                self._context.cancelJobGroup(
                    group
                )  # queued tasks never start; running ones see the flag or their lease
                control.check()
            polls += 1
            if polls % PROGRESS_POLLS == 0:
                progressed(self._splits_done(group))
        return self._answers(waiting)

    def _splits_done(self, group: str) -> int:
        tracker = self._context.statusTracker()
        stages = [
            s for job in tracker.getJobIdsForGroup(group) if (info := tracker.getJobInfo(job)) for s in info.stageIds
        ]
        return sum(int(info.numCompletedTasks) for stage in stages if (info := tracker.getStageInfo(stage)))

    # ---- a job together --------------------------------------------------------------------------------------------
    def _run_shared(self, orders: Sequence[PackedOrder], control: RoundControl) -> Answers | None:
        """None: the shared job takes too long for reasons of others. Its late result counts for nothing."""
        waiting = _Waiting(orders)
        self._queue.put(waiting)
        waited = 0.0
        while not waiting.done.wait(POLL_S):
            control.check()
            waited += POLL_S
            if waited >= self._patience_s:
                return None
        return self._answers(waiting)

    def _share(self) -> None:
        """One of the threads that run shared jobs: takes what is there, all of it, and runs it as one job."""
        while (first := self._queue.get()) is not None:
            gathered = [first]
            while True:
                try:
                    more = self._queue.get_nowait()
                except queue.Empty:
                    break
                if more is None:
                    self._queue.put(None)
                    break
                gathered.append(more)
            shared_order = _Waiting([o for w in gathered for o in w.orders])
            self._collect(shared_order, gathered, "lakeward-small-rounds")

    # ---- Spark -----------------------------------------------------------------------------------------------------
    def _collect(self, whole: _Waiting, members: Sequence[_Waiting], group: str) -> None:
        """Runs the orders as one job and hands each member its part. Never raises."""
        is_shared = members[0] is not whole
        partitions = min(len(whole.orders), self._parallelism) if is_shared else len(whole.orders)
        try:
            self._context.setJobGroup(group, f"{len(whole.orders)} orders", interruptOnCancel=False)
            answers = self._context.parallelize(list(whole.orders), partitions).map(run_order).collect()
        except Exception as error:  # noqa: BLE001 - py4j raises what it likes; each round gets it as its own failure
            for member in members:
                member.finish(None, error)
            return
        at = 0
        for member in members:
            member.finish(answers[at : at + len(member.orders)])
            at += len(member.orders)

    def _answers(self, waiting: _Waiting) -> Answers:
        if waiting.error is not None:
            raise _JobFailed(type(waiting.error).__name__, _first_lines(waiting.error))
        assert waiting.answers is not None
        return waiting.answers

    def is_alive(self) -> bool:
        """Asks the JVM: a Spark application that ended, or a JVM that is gone, comes back only with a new process."""
        try:
            return not self._context._jsc.sc().isStopped()
        except Exception:  # noqa: BLE001 - py4j raises what it likes when nobody answers
            return False


class _JobFailed(Exception):
    """A Spark job failed as a whole: its tasks died more often than Spark retries, or Spark did."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(kind, text)
        self.kind, self.text = kind, text


def _first_lines(error: BaseException) -> str:
    lines = [line for line in str(error).splitlines() if line.strip()]
    return "\n".join(lines[:12])[:2000]
