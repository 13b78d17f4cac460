# SPDX-License-Identifier: Apache-2.0
"""A table's way through its states, as jobs move it."""

from __future__ import annotations

import pytest

from lakeward.errors import LedgerGap, Superseded
from lakeward.model import InstanceId, JobName, LedgerKind, OffsetMap, RoundId, TableState
from lakeward.protocol.heartbeat import LeaseCheck, Verdict
from tests.kit.world import B0, PATH, CoordinatorWorld

S = TableState


def test_a_due_table_is_handed_out_once_and_comes_back_scheduled(world: CoordinatorWorld) -> None:
    world.create(table__datalake__freshness="60 s")
    job, other = world.job(), world.job("other")
    assert job.take() == []
    world.hot.append(PATH, 10)
    world.clock.advance(5)
    assert job.take() == [], "it is not due: it starts as late as still meets the deadline"
    world.clock.advance(50)
    (table,) = job.take(4)
    assert (table.path, table.epoch, table.limit_ms) == (PATH, 1, 30_000)
    assert other.take(4) == []
    assert job.commit(table, 0, 10, "r1").first
    assert world.coordinator.committed(PATH).offsets == OffsetMap({B0: 10})
    assert [v.verdict for v in job.finish(table, "r1").verdicts] == [Verdict.OK]
    assert world.coordinator.board.find(PATH).state is S.SCHEDULED
    world.clock.advance(120)
    assert job.take() == [], "nothing waits: no round"


def test_repeating_finish_and_fail_changes_nothing(world: CoordinatorWorld) -> None:
    world.create()
    world.hot.append(PATH)
    world.clock.advance(200)
    job = world.job()
    (table,) = job.take()
    job.finish(table)
    for _ in range(2):
        (verdict,) = job.finish(table).verdicts
        assert (verdict.verdict, verdict.reason) == (Verdict.OK, "recorded before")
        assert [v.verdict for v in job.fail(table).verdicts] == [Verdict.OK]
    assert world.coordinator.board.find(PATH).tier.failures == 0


def test_commit_is_idempotent_contiguous_and_forward_only(world: CoordinatorWorld) -> None:
    world.create()
    world.hot.append(PATH, 30)
    world.clock.advance(200)
    job = world.job()
    (table,) = job.take()
    assert job.commit(table, 0, 10, "r1").first
    again = job.commit(table, 0, 10, "r1")
    assert (again.first, again.offsets) == (False, OffsetMap({B0: 10}))
    with pytest.raises(LedgerGap) as caught:
        job.commit(table, 11, 20, "r2")
    assert (caught.value.start, caught.value.ledger_end) == (11, 10)
    with pytest.raises(LedgerGap):
        job.commit(table, 5, 20, "r3")
    job.commit(table, 0, 20, "r4", kind=LedgerKind.ADOPTED, ranges=())
    assert world.coordinator.committed(PATH).offsets == OffsetMap({B0: 20})
    job.commit(table, 0, 15, "r5", kind=LedgerKind.ADOPTED, ranges=())
    assert world.coordinator.committed(PATH).offsets == OffsetMap({B0: 20}), "adopting never lowers an offset"
    assert world.coordinator.knows_round(table.table_id, RoundId("r1"))
    assert not world.coordinator.knows_round(table.table_id, RoundId("r3"))


def test_a_new_instance_supersedes_at_once_and_the_old_one_is_told(world: CoordinatorWorld) -> None:
    world.create()
    world.hot.append(PATH)
    world.clock.advance(200)
    old, new = world.job(instance="old"), world.job(instance="new")
    (table,) = old.take()
    (again,) = new.take()
    assert (again.table_id, again.epoch) == (table.table_id, table.epoch + 1)
    with pytest.raises(Superseded) as caught:
        old.work(table)
    assert (caught.value.instance, caught.value.by) == ("old", "new")
    check = LeaseCheck(
        job=JobName("job"),
        instance=InstanceId("old"),
        table_id=table.table_id,
        epoch=table.epoch,
        round_id=RoundId("r"),
    )
    assert not world.coordinator.check_lease(check).held
    assert world.coordinator.board.find(PATH).tier.failures == 0


def test_a_commit_notes_from_where_to_where_the_lag_fell(world: CoordinatorWorld) -> None:
    world.create(table__datalake__freshness="60 s")
    world.hot.append(PATH, 10)
    world.clock.advance(50)
    job = world.job()
    (table,) = job.take()
    world.clock.advance(5)
    job.commit(table, 0, 10, "r1")
    job.commit(table, 0, 10, "r1")
    (drop,) = world.coordinator.board.lag_drops
    assert (drop.path, drop.at_ms, drop.before_ms, drop.after_ms) == (PATH, world.clock.now_ms(), 55_000, 0)
