# SPDX-License-Identifier: Apache-2.0
"""Orders on their way through Spark, with a scripted Spark context: jobs of their own, jobs together, stops and
failures.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from lakeward.errors import LeaseLost, SplitFailed
from lakeward.model import Bucket, LogSplit, OffsetRange, RoundId, new_round_id
from lakeward.spi import Plugin
from lakeward.tiering.job.sparkdispatch import SHARED_JOBS, SparkDispatcher
from lakeward.tiering.work.control import RoundControl
from lakeward.tiering.work.outcome import WriteOutcome
from lakeward.tiering.work.packedorder import PackedOrder
from lakeward.tiering.work.writeorder import WriteOrder
from lakeward_testing.waiting import wait_until
from tests.unit.tiering.world import World


class ScriptedJob:
    """One Spark job: `collect` waits until the test lets it go, or fails it."""

    def __init__(self, context: ScriptedContext, orders: list[PackedOrder], partitions: int) -> None:
        self.context, self.orders, self.partitions = context, orders, partitions
        self.group = context.groups.get(threading.get_ident(), "")
        self.go = threading.Event()
        self.error: Exception | None = None

    def map(self, _function: Callable[[PackedOrder], list[bytes]]) -> ScriptedJob:
        return self

    def collect(self) -> list[list[bytes]]:
        self.context.jobs.append(self)
        assert self.go.wait(120)
        if self.error is not None:
            raise self.error
        return [[outcome_of(WriteOrder.from_bytes(data)).to_bytes()] for _, data in self.orders]


class ScriptedContext:
    defaultParallelism = 2

    def __init__(self) -> None:
        self.jobs: list[ScriptedJob] = []
        self.groups: dict[int, str] = {}
        self.cancelled: list[str] = []

    def setJobGroup(self, group: str, _text: str, interruptOnCancel: bool) -> None:
        assert not interruptOnCancel
        self.groups[threading.get_ident()] = group

    def parallelize(self, orders: list[PackedOrder], partitions: int) -> ScriptedJob:
        return ScriptedJob(self, orders, partitions)

    def cancelJobGroup(self, group: str) -> None:
        self.cancelled.append(group)

    def statusTracker(self) -> Any:
        class Tracker:
            def getJobIdsForGroup(self, _group: str) -> list[int]:
                return []

        return Tracker()

    def wait_jobs(self, count: int) -> list[ScriptedJob]:
        wait_until(lambda: len(self.jobs) >= count, what=f"{count} Spark jobs")
        return self.jobs


class Call:
    """A round that waits for its orders in a thread of its own."""

    def __init__(self, dispatcher: SparkDispatcher, orders: list[WriteOrder], *, is_small: bool = True) -> None:
        self.control = RoundControl()
        self.outcomes: list[WriteOutcome] | None = None
        self.error: Exception | None = None
        self._thread = threading.Thread(target=self._run, args=(dispatcher, orders, is_small))
        self._thread.start()

    def _run(self, dispatcher: SparkDispatcher, orders: list[WriteOrder], is_small: bool) -> None:
        try:
            answers = dispatcher.run(orders, self.control, is_small=is_small, progressed=lambda _n: None)
            self.outcomes = [WriteOutcome.from_bytes(data) for data in answers]
        except (LeaseLost, SplitFailed) as error:
            self.error = error

    def join(self) -> Call:
        self._thread.join(120)
        assert not self._thread.is_alive()
        return self


WORLD = World()


def order_of(round_id: RoundId | None = None) -> WriteOrder:
    split = LogSplit(bucket=Bucket("", 0), range=OffsetRange(0, 7), index=0)
    return WriteOrder(
        round_id=round_id or new_round_id(),
        owner=WORLD.owner(1),
        table=WORLD.table,
        handle=b"",
        hot=Plugin(name="h"),
        lake=Plugin(name="l"),
        splits=(split,),
    )


def outcome_of(order: WriteOrder) -> WriteOutcome:
    return WriteOutcome(split=order.splits[0], stop=7, attempt=0, rows=len(order.round_id))


def lost() -> LeaseLost:
    return LeaseLost(table="db.t", round_id="r", job="j", reason="fenced")


@pytest.fixture
def context() -> ScriptedContext:
    return ScriptedContext()


def start_thread(target: Callable[[], None], name: str) -> None:
    threading.Thread(target=target, name=name, daemon=True).start()


@pytest.fixture
def dispatcher(context: ScriptedContext) -> Iterator[SparkDispatcher]:
    made = SparkDispatcher(context, start_thread)
    yield made
    for job in context.jobs:
        job.go.set()
    made.close()


def test_small_rounds_that_arrive_meanwhile_share_the_next_job(
    context: ScriptedContext, dispatcher: SparkDispatcher
) -> None:
    first = []
    for n in range(SHARED_JOBS):
        first.append(Call(dispatcher, [order_of()]))
        context.wait_jobs(n + 1)
    later = [Call(dispatcher, [order_of()]) for _ in range(5)]
    wait_until(lambda: dispatcher._queue.qsize() == 5, what="the queue")
    for job in context.jobs[:SHARED_JOBS]:
        job.go.set()
    jobs = context.wait_jobs(SHARED_JOBS + 1)
    wait_until(lambda: sum(len(j.orders) for j in jobs[SHARED_JOBS:]) == 5, what="all orders in jobs")
    assert len(jobs) - SHARED_JOBS <= SHARED_JOBS, "five rounds, one job or two"
    for job in jobs[SHARED_JOBS:]:
        job.go.set()
        assert job.partitions <= context.defaultParallelism
    for call in (*first, *later):
        outcomes = call.join().outcomes
        assert outcomes is not None
        assert [o.stop for o in outcomes] == [7]


def test_stopping_one_round_of_a_shared_job_leaves_the_others_alone(
    context: ScriptedContext, dispatcher: SparkDispatcher
) -> None:
    blockers = []
    for n in range(SHARED_JOBS):
        blockers.append(Call(dispatcher, [order_of()]))
        context.wait_jobs(n + 1)
    stopped, other = Call(dispatcher, [order_of()]), Call(dispatcher, [order_of()])
    wait_until(lambda: dispatcher._queue.qsize() == 2, what="the queue")
    context.jobs[0].go.set()
    (shared,) = context.wait_jobs(SHARED_JOBS + 1)[SHARED_JOBS:]
    assert len(shared.orders) == 2
    stopped.control.stop(lost())
    assert isinstance(stopped.join().error, LeaseLost), "it does not wait for the job"
    assert context.cancelled == [], "the job is others' too"
    shared.go.set()
    assert other.join().outcomes is not None


def test_a_small_round_whose_shared_job_is_held_up_goes_on_alone(context: ScriptedContext) -> None:
    dispatcher = SparkDispatcher(context, start_thread, patience_s=0.1)
    order = order_of()
    call = Call(dispatcher, [order])
    shared, alone = context.wait_jobs(2)
    assert (shared.group, alone.group) == ("lakeward-small-rounds", order.round_id)
    alone.go.set()
    assert call.join().outcomes == [outcome_of(order)]
    shared.go.set()
    dispatcher.close()


def test_stopping_a_big_round_cancels_its_own_group_only(context: ScriptedContext, dispatcher: SparkDispatcher) -> None:
    orders = [order_of(), order_of()]
    stopped, other = (Call(dispatcher, [o], is_small=False) for o in orders)
    context.wait_jobs(2)
    stopped.control.stop(lost())
    assert isinstance(stopped.join().error, LeaseLost)
    assert context.cancelled == [orders[0].round_id]
    for job in context.jobs:
        job.go.set()
    assert other.join().outcomes == [outcome_of(orders[1])]


def test_a_spark_job_that_fails_is_the_failure_of_its_rounds_in_few_words(
    context: ScriptedContext, dispatcher: SparkDispatcher
) -> None:
    call = Call(dispatcher, [order_of()], is_small=False)
    (job,) = context.wait_jobs(1)
    job.error = RuntimeError("\n".join(["Job aborted", "", *(f"at line {n}" for n in range(50))]))
    job.go.set()
    error = call.join().error
    assert isinstance(error, SplitFailed)
    assert "Job aborted" in str(error)
    assert "at line 40" not in str(error)
