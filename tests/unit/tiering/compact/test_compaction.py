# SPDX-License-Identifier: Apache-2.0
"""A compaction from plan to commit, and everything that can come between: design.md 13, case by case."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from lakeward.errors import CommitConflict, CommitUnknown, FaultInjected, LeaseLost, ServerUnavailable
from lakeward.lake.core.committer import CoreCommitter
from lakeward.lake.memory.log import MemoryGround
from lakeward.lake.memory.plugin import MemoryLakeStorage
from lakeward.model import Bucket, Epoch, IntentState, TableInfo, WorkKind, new_round_id, set_injector
from lakeward.model.side import COMPACT
from lakeward.protocol.heartbeat import TableFailed, TableFinished
from lakeward.spi import (
    Committable,
    LakeCommitter,
    LakeSnapshot,
    PluginCache,
    Precondition,
    RewriteGroup,
    RewriteTask,
    SupportsRewrite,
    SupportsRewriteCommit,
)
from lakeward.tiering.compact.order import RewriteOrder
from lakeward.tiering.compact.runner import CompactRunner
from lakeward.tiering.work.control import RoundControl
from lakeward.tiering.work.dispatch import DirectDispatcher
from lakeward.tiering.work.options import CompactionPolicy
from lakeward.tiering.work.order import Order
from lakeward.tiering.work.runner import LeasedWork, RoundEnd
from tests.kit.memoryforeign import MemoryForeignEngine
from tests.unit.tiering.world import World, make_table

PK = ("id BIGINT NOT NULL", "name STRING")


def rows(start: int, stop: int, name: str = "n") -> list[dict[str, object]]:
    return [{"id": i, "name": f"{name}{i}"} for i in range(start, stop)]


def at_point(point: str, act: Callable[[], object]) -> Callable[[str, dict[str, Any]], None]:
    """An injector that acts once, at the first hit of one point."""
    done: list[int] = []

    def inject(name: str, _facts: dict[str, Any]) -> None:
        if name == point and not done:
            done.append(1)
            act()

    return inject


@pytest.fixture
def inject() -> Any:
    before = set_injector(None)
    yield set_injector
    set_injector(before)


def compacting(world: World, **policy: Any) -> World:
    options = replace(world.options, compaction=CompactionPolicy(fan_in=4, **policy))
    world.shared = replace(world.shared, options=options)
    return world


@pytest.fixture
def log() -> World:
    """Four rounds of five rows: one group."""
    world = compacting(World())
    for n in range(4):
        world.store.append(rows(5 * n, 5 * n + 5))
        world.run()
    return world


@pytest.fixture
def pk() -> World:
    world = compacting(World(make_table(*PK, key=("id",))))
    for n in range(4):
        world.store.upsert(rows(3 * n, 3 * n + 5, f"v{n}."))
        world.run()
    return world


def compact(world: World, control: RoundControl | None = None, **handed: Any) -> RoundEnd:
    work = LeasedWork(
        handed=world.hand_out(kind=COMPACT, **handed),
        owner=world.owner(),
        round_id=new_round_id(),
        control=control or RoundControl(),
    )
    return CompactRunner().run(work, world.shared)


def files(world: World) -> int:
    base = world.reader.load_base()
    return 0 if base.head is None else len(world.reader.files(base.head))


def rewrite(world: World, bucket: Bucket) -> None:
    """Somebody else's compaction of one bucket."""
    base, committer = world.reader.load_base(), world.lake.open_committer(world.table)
    assert base.head is not None
    snapshot, round_id = world.reader.load_snapshot(base.head), new_round_id()
    assert snapshot is not None
    inputs = tuple(world.reader.files(base.head, bucket))
    group = RewriteGroup(bucket=bucket, files=inputs, sequence=snapshot.sequence)
    handle = committer.begin(round_id)
    task = RewriteTask(round_id=round_id, table=world.table, group=group, attempt=0, handle=handle)
    assert isinstance(world.lake, SupportsRewrite)
    assert isinstance(committer, SupportsRewriteCommit)
    result = world.lake.rewrite(task)
    assert result is not None
    committable = committer.prepare_rewrite([result], base, round_id).committable
    assert committable is not None
    committer.commit(committable, Precondition(table_id=world.table.table_id, token=base.token, fence=base.fence))


def finished(end: RoundEnd) -> TableFinished:
    assert isinstance(end, TableFinished), end
    return end


def test_small_files_become_one_and_no_reader_sees_a_difference(log: World) -> None:
    before, old = log.reader.load_base(), log.lake_rows()
    end = finished(compact(log))
    after = log.reader.load_base()
    assert (files(log), log.lake_rows()) == (1, old)
    assert (after.token, after.offsets, after.fence) == (before.token, before.offsets, before.fence)
    assert end.result is not None
    assert (end.result.files, end.result.files_replaced, end.result.rows) == (1, 4, 20)
    assert (end.kind, end.force_finished, end.result.debt_files) == (COMPACT, False, 3)
    assert before.head is not None
    assert log.rows_of(before.head) == old, "a reader of the old snapshot goes on"
    head = log.reader.load_snapshot(after.head)
    assert head is not None
    assert head.job == log.owner().job


def test_deleted_rows_are_left_out_of_the_new_file(pk: World) -> None:
    finished(compact(pk))
    head = pk.reader.load_base().head
    assert head is not None
    left = pk.reader.files(head)
    assert (len(left), sum(f.record_count for f in left)) == (1, len(pk.store.rows()))
    assert not any(f.deletes for f in left)
    assert pk.lake_rows() == pk.store.rows()


def test_what_did_not_fit_is_left_with_its_deleted_rows(pk: World) -> None:
    """And the delete files on it: none where all is done."""
    pk.store.upsert(rows(0, 14, "late"))
    pk.run()
    pk.shared = replace(pk.shared, options=replace(pk.options, compaction_bytes=1))
    debts, more = list[tuple[int, int]](), True
    while more:
        end = finished(compact(pk))
        assert end.result is not None
        assert end.result.debt_files is not None
        # As the coordinator counts it.
        files_left = end.result.debt_files - end.result.files_replaced + end.result.files
        debts.append((files_left, end.result.debt_rows))
        more = end.force_finished
    assert len(debts) > 1
    assert debts == sorted(debts, reverse=True)
    assert debts[0] > (0, 0) == debts[-1]


def test_where_nothing_is_to_be_done_nothing_is_written(log: World) -> None:
    compact(log)
    snapshots, intents = log.snapshots(), len(log.coordinator.intents)
    assert finished(compact(log)).result is None
    assert (log.snapshots(), len(log.coordinator.intents)) == (snapshots, intents)


def test_a_table_that_was_never_tiered_has_nothing_to_compact() -> None:
    assert finished(compact(compacting(World()))).result is None


def test_a_round_that_lands_beside_it_costs_no_work_and_its_deletes_go_along(pk: World, inject: Any) -> None:
    def a_round() -> None:
        pk.store.upsert(rows(0, 2, "late"))
        pk.store.delete([{"id": 4}])
        finished(pk.run())

    inject(at_point("compact.before-lake-commit", a_round))
    end = finished(compact(pk))
    assert end.result is not None
    assert (end.result.groups_left_out, end.result.deletes) == (0, 3)
    assert pk.lake_rows() == pk.store.rows()


def test_a_compaction_that_lands_beside_a_round_costs_the_round_no_work(pk: World, inject: Any) -> None:
    pk.store.upsert(rows(0, 2, "late"))
    inject(at_point("round.before-lake-commit", lambda: finished(compact(pk))))
    assert isinstance(pk.run(), TableFinished)
    assert pk.lake_rows() == pk.store.rows()


def test_a_group_that_lost_an_input_is_left_out_alone(inject: Any) -> None:
    world = compacting(World(make_table(buckets=2)))
    for n in range(4):
        for bucket in (0, 1):
            world.store.append(rows(5 * n, 5 * n + 5), Bucket("", bucket))
        world.run()
    inject(at_point("compact.before-rebase", lambda: rewrite(world, Bucket("", 0))))
    end = finished(compact(world))
    assert end.result is not None
    assert (end.result.groups_left_out, end.result.files_replaced, files(world)) == (1, 4, 2)
    assert world.lake_rows() == world.store.rows()


def test_when_every_group_lost_an_input_nothing_is_committed(log: World, inject: Any) -> None:
    engine = MemoryForeignEngine(log.memory, log.table.path)
    inject(at_point("compact.before-rebase", engine.compact))
    end = finished(compact(log))
    assert end.result is not None
    assert (end.result.snapshot_id, end.result.groups_left_out) == (None, 1)
    (intent,) = (i for i in log.coordinator.intents.values() if i.kind == COMPACT)
    assert intent.state is IntentState.ABANDONED


def test_a_fence_stops_it(log: World, inject: Any) -> None:
    upkeep = log.lake.open_maintenance(log.table)
    inject(at_point("compact.written", lambda: upkeep.fence(log.reader.load_base(), new_round_id(), 1)))
    end = compact(log)
    assert isinstance(end, TableFailed)
    assert (end.given_back, end.error["code"]) == (True, "commit-conflict")
    assert (files(log), log.lake_rows()) == (4, log.store.rows())


def test_without_its_lease_nothing_is_committed(log: World, inject: Any) -> None:
    def lose() -> None:
        log.coordinator.holder = Epoch(7)

    inject(at_point("compact.before-lease-check", lose))
    end = compact(log)
    assert isinstance(end, TableFailed)
    assert (end.given_back, end.error["code"]) == (True, "lease-lost")
    assert files(log) == 4


def test_a_coordinator_that_does_not_answer_is_a_lease_that_is_gone(log: World) -> None:
    def away() -> None:
        raise ServerUnavailable(address="here", reason="away")

    log.shared = replace(
        log.shared, options=replace(log.shared.options, commit=replace(log.options.commit, server_wait_s=0))
    )
    log.coordinator.before_check = away
    end = compact(log)
    assert isinstance(end, TableFailed)
    assert (end.error["code"], files(log)) == ("lease-lost", 4)


class LossyCommitter(CoreCommitter[MemoryGround]):
    """Loses the answer of its first commit, after or before it took effect, or says conflict."""

    takes_effect, error = True, "unknown"

    def commit(self, committable: Committable, precondition: Precondition) -> LakeSnapshot:
        if LossyCommitter.error == "":
            return super().commit(committable, precondition)
        kind, LossyCommitter.error = LossyCommitter.error, ""
        if self.takes_effect:
            super().commit(committable, precondition)
        if kind == "unknown":
            raise CommitUnknown(table="t", round_id="r", reason="no answer")
        raise CommitConflict(table="t", round_id="r", reason="the transport's retry met its own commit")


class LossyLake(MemoryLakeStorage):
    def open_committer(self, table: TableInfo) -> LakeCommitter:
        return LossyCommitter(self.open_table(table))


def lose_answer(world: World, error: str, *, takes_effect: bool) -> None:
    """The world's next commit to the lake ends like this."""
    lossy, hot = LossyLake(world.memory), world.shared.hot
    plugins = PluginCache(open_hot=lambda _n, _o: hot, open_lake=lambda _n, _o: lossy)
    world.shared = replace(world.shared, plugins=plugins)
    LossyCommitter.error, LossyCommitter.takes_effect = error, takes_effect


@pytest.mark.parametrize("error", ["unknown", "conflict"])
@pytest.mark.parametrize("takes_effect", [True, False])
def test_an_answer_that_is_lost_is_looked_for(log: World, error: str, takes_effect: bool) -> None:
    lose_answer(log, error, takes_effect=takes_effect)
    snapshots = log.snapshots()
    end = finished(compact(log))
    assert end.result is not None
    assert end.result.snapshot_id is not None
    assert (files(log), log.snapshots(), log.lake_rows()) == (1, snapshots + 1, log.store.rows())
    assert LossyCommitter.error == "", "the answer was lost"


def test_it_records_what_it_will_write_before_it_does(log: World, inject: Any) -> None:
    seen: list[WorkKind] = []
    inject(at_point("compact.before-write", lambda: seen.extend(i.kind for i in log.coordinator.intents.values())))
    compact(log)
    assert seen.count(COMPACT) == 1


def test_it_tells_the_coordinator_what_the_lake_holds_now(log: World) -> None:
    compact(log)
    report = log.coordinator.reports[-1]
    (intent,) = (i for i in log.coordinator.intents.values() if i.kind == COMPACT)
    assert (report.work, report.round_id, report.lake_files) == (COMPACT, intent.round_id, 1)


def test_a_stop_ends_it_before_the_commit(log: World, inject: Any) -> None:
    control = RoundControl()
    lost = LeaseLost(table="t", round_id="r", job="j", reason="another job has it")
    inject(at_point("compact.before-write", lambda: control.stop(lost)))
    end = compact(log, control)
    assert isinstance(end, TableFailed)
    assert (end.given_back, files(log)) == (True, 4)


def test_what_came_due_is_left_for_the_next_one(log: World) -> None:
    end = finished(compact(log, limit_ms=0))
    assert (end.force_finished, files(log)) == (True, 4)


class RecordingDispatcher(DirectDispatcher):
    """Keeps the bytes of what it is given."""

    def __init__(self, plugins: PluginCache) -> None:
        super().__init__(plugins, threads=1)
        self.sent: list[bytes] = []

    def run(self, orders: Sequence[Order], control: RoundControl, **more: Any) -> list[bytes]:
        self.sent += [o.to_bytes() for o in orders]
        return super().run(orders, control, **more)


def test_an_order_travels_as_bytes(log: World) -> None:
    dispatcher = RecordingDispatcher(log.shared.plugins)
    log.shared = replace(log.shared, dispatcher=dispatcher)
    finished(compact(log))
    (data,) = dispatcher.sent
    assert RewriteOrder.from_bytes(data).to_bytes() == data


STEPS = (
    "compact.planned",
    "compact.before-write",
    "group.before-rewrite",
    "rewrite.written",
    "compact.written",
    "compact.before-rebase",
    "compact.before-lease-check",
    "compact.before-lake-commit",
    "compact.before-find",
    "compact.after-lake-commit",
)


@pytest.mark.parametrize("step", STEPS)
def test_wherever_it_breaks_the_next_one_and_the_next_round_go_on(pk: World, inject: Any, step: str) -> None:
    def break_() -> None:
        raise FaultInjected(point=step)

    if step == "compact.before-find":
        lose_answer(pk, "unknown", takes_effect=True)
    inject(at_point(step, break_))
    assert isinstance(compact(pk), TableFailed)
    assert pk.lake_rows() == pk.store.rows()
    pk.store.upsert(rows(0, 3, "after"))
    assert isinstance(pk.run(), TableFinished)
    finished(compact(pk))
    assert pk.lake_rows() == pk.store.rows()
    assert finished(compact(pk)).result is None
