# SPDX-License-Identifier: Apache-2.0
"""What operators and readers ask: pause, tier now, explain, admission, read plans, upkeep."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from lakeward.coordinator.schedule.simulator import Budget
from lakeward.errors import (
    InvalidRequest,
    LakeBehind,
    ReadTooFarAhead,
    SnapshotGone,
    TableBusy,
    TableNotFound,
    TimedOut,
)
from lakeward.model import TIER, Bucket, ExpiringSnapshot, Intent, LeaseId, OffsetMap, RoundId, SideId, TableState
from lakeward.protocol.heartbeat import Progress, TableInWork, Verdict
from lakeward.protocol.operate import AdmissionQuery, ResyncChoice
from lakeward.protocol.readplan import WriteToken
from lakeward.spi import WriteTask
from tests.kit.world import B0, PATH, CoordinatorWorld

S = TableState


def test_pause_stops_the_round_in_work_and_resume_goes_on(world: CoordinatorWorld) -> None:
    info = world.create().table
    world.hot.append(PATH, 3)
    world.clock.advance(200)
    job = world.job()
    (table,) = job.take()
    world.coordinator.operations.pause(PATH)
    world.coordinator.operations.pause(PATH)
    assert [v.verdict for v in job.work(table).verdicts] == [Verdict.PAUSED]
    with pytest.raises(LakeBehind):
        job.commit(table, 0, 3, "r1")
    world.commit_to_lake(info, 3, round_id=RoundId("r1"))
    assert job.commit(table, 0, 3, "r1").first, "what the lake holds is a fact, whoever tells it"
    world.hot.append(PATH, 3)
    world.clock.advance(600)
    assert job.take() == []
    world.coordinator.operations.resume(PATH)
    world.clock.advance(1)
    assert len(job.take()) == 1


def test_a_compaction_of_a_table_that_stands_or_is_not_here_is_refused_in_words(world: CoordinatorWorld) -> None:
    with pytest.raises(TableNotFound, match=r"no table db\.t; `lakeward table list` shows"):
        world.coordinator.operations.maintain_now(PATH)
    world.set_options(quarantine_after=1)
    world.create()
    world.hot.append(PATH)
    world.clock.advance(200)
    job = world.job()
    (handed,) = job.take()
    job.fail(handed)
    with pytest.raises(TableBusy, match=r"quarantined: 1 rounds failed .*; `lakeward resume db\.t` ends that"):
        world.coordinator.operations.maintain_now(PATH)
    world.coordinator.operations.resume(PATH)
    world.coordinator.operations.maintain_now(PATH)
    world.coordinator.operations.pause(PATH)
    with pytest.raises(
        TableBusy, match=r"table db\.t.*: it is paused: paused by call; `lakeward resume db\.t` ends that"
    ):
        world.coordinator.operations.maintain_now(PATH)


def test_tier_now_returns_once_its_data_is_in_the_lake(world: CoordinatorWorld) -> None:
    world.create()
    nothing_waits = world.coordinator.check_asked(world.coordinator.ask_now(PATH))
    assert nothing_waits is not None
    assert nothing_waits.rounds == 0
    world.hot.append(PATH, 3)
    asked = world.coordinator.ask_now(PATH)
    world.hot.append(PATH, 3)
    world.clock.advance(1)
    job = world.job()
    (table,) = job.take()
    assert world.coordinator.check_asked(asked) is None
    job.commit(table, 0, 3, "r1")
    done = world.coordinator.check_asked(asked)
    assert done is not None
    assert done.committed == OffsetMap({B0: 3})


def test_tier_now_says_at_once_that_rounds_fail(world: CoordinatorWorld) -> None:
    """It waited for its limit, two minutes by default."""
    world.create()
    world.hot.append(PATH)
    job = world.job()
    world.clock.advance(200)
    (handed,) = job.take()
    job.fail(handed, code="lake-schema-conflict", words="column x is gone")
    asked = world.coordinator.ask_now(PATH)
    assert world.coordinator.check_asked(asked) is None, "it is tried again first"
    world.clock.advance(1)
    (handed,) = job.take()
    job.fail(handed, code="lake-schema-conflict", words="column x is gone")
    with pytest.raises(TableBusy, match=r"its round failed: column x is gone; `lakeward rounds db\.t` shows"):
        world.coordinator.check_asked(asked)


def test_tier_now_outlives_one_round_that_could_not_reach_the_lake(world: CoordinatorWorld) -> None:
    world.create()
    world.hot.append(PATH)
    job = world.job()
    asked = world.coordinator.ask_now(PATH)
    for _ in range(2):
        assert world.coordinator.check_asked(asked) is None
        world.clock.advance(60)
        (handed,) = job.take()
        job.fail(handed, words="no answer", facts={"lake": "iceberg", "what": "commit", "reason": "no answer"})
    with pytest.raises(TableBusy, match="its round failed: no answer"):
        world.coordinator.check_asked(asked)


def test_tier_now_waits_for_a_resync_that_was_asked_for(world: CoordinatorWorld) -> None:
    world.create()
    world.coordinator.operations.resync(PATH, ResyncChoice.RESYNC)
    asked = world.coordinator.ask_now(PATH)
    assert world.coordinator.check_asked(asked) is None
    assert [handed.resync for handed in world.job().take()] == [True]


def test_what_is_left_of_a_resync_outlives_rounds_and_restarts(world: CoordinatorWorld) -> None:
    table = world.create().table
    world.hot.append(PATH, 3)
    world.coordinator.operations.resync(PATH, ResyncChoice.RESYNC)
    (first,) = world.job("a").take()
    world.commit_to_lake(table, 3, epoch=first.epoch, round_id=RoundId("r1"), generation=first.generation)
    left = (Bucket("", 1), Bucket("", 2))
    world.job("a").commit(first, 0, 3, "r1", generation=first.generation, resyncing=True, to_compare=left)
    world.job("a").finish(first, "r1", force=True)
    world.restart()
    (second,) = world.job("b").take()
    assert (first.to_compare, second.resync, second.to_compare) == (None, True, left)
    world.commit_to_lake(table, 3, epoch=second.epoch, round_id=RoundId("r2"), generation=second.generation)
    world.job("b").commit(second, 3, 3, "r2", generation=second.generation, resyncing=False)
    world.job("b").finish(second, "r2")
    world.hot.append(PATH, 1)
    world.clock.advance(600)
    (third,) = world.job("b").take()
    assert (third.resync, third.to_compare) == (False, None)


def test_tier_now_ends_at_its_limit_and_refuses_what_stands(world: CoordinatorWorld) -> None:
    world.create()
    world.hot.append(PATH, 3)
    asked = world.coordinator.ask_now(PATH)
    assert world.coordinator.check_asked(asked, 10) is None
    world.clock.advance(11)
    with pytest.raises(TimedOut) as caught:
        world.coordinator.check_asked(asked, 10)
    assert "3 rows wait" in caught.value.state
    world.coordinator.operations.pause(PATH)
    with pytest.raises(TableBusy):
        world.coordinator.ask_now(PATH)


def test_lag_is_explained_part_by_part(world: CoordinatorWorld) -> None:
    world.create(table__datalake__freshness="100 s")
    assert world.coordinator.views.explain(PATH).lag_ms == 0
    world.hot.append(PATH, 3)
    world.clock.advance(90)
    world.coordinator.schedule.tick()
    world.clock.advance(5)
    job = world.job()
    (table,) = job.take()
    world.clock.advance(7)
    shown = world.coordinator.views.explain(PATH)
    assert (shown.lag_ms, {k: shown.parts_ms[k] for k in ("not_due", "queue", "round")}) == (
        102_000,
        {"not_due": 90_000, "queue": 5_000, "round": 7_000},
    )
    assert "a round of job job has run for 7.0 s" in shown.words
    job.commit(table, 0, 3, "r1")
    job.finish(table, "r1", rows=3)
    (last,) = world.coordinator.views.rounds(PATH)
    assert (last.outcome, last.rows, last.phases.wait_s) == ("done", 3, 5.0)
    assert world.coordinator.views.table(PATH).misses == 0


def test_a_commit_that_nobody_answers_is_the_reason_that_people_see(world: CoordinatorWorld) -> None:
    world.create()
    world.hot.append(PATH, 3)
    world.clock.advance(200)
    job = world.job()
    (table,) = job.take()
    in_work = TableInWork(table_id=table.table_id, epoch=table.epoch, progress=Progress(trouble="no answer"))
    job.beat(tiering=(in_work,))
    assert "goes on once this is over: no answer" in world.coordinator.views.explain(PATH).words
    assert world.coordinator.views.table(PATH).reason == "no answer"
    job.beat(tiering=(replace(in_work, progress=Progress()),))
    assert world.coordinator.views.table(PATH).reason is None
    with pytest.raises(InvalidRequest, match="at most 1000 characters"):
        Progress(trouble="x" * 1_001)


def test_what_was_written_since_the_last_tick_waits_too(world: CoordinatorWorld) -> None:
    world.create()
    world.coordinator.schedule.tick()
    world.hot.append(PATH, 3)
    assert world.coordinator.views.explain(PATH).words.startswith("3 rows wait")


def test_rows_that_wait_for_a_paused_table_are_its_lag(world: CoordinatorWorld) -> None:
    world.create(table__datalake__freshness="10 s")
    world.coordinator.operations.pause(PATH)
    world.coordinator.schedule.tick()
    world.hot.append(PATH)
    world.clock.advance(1)
    world.coordinator.schedule.tick()
    world.clock.advance(20)
    status = world.coordinator.views.table(PATH)
    assert (status.state, status.waiting_rows) == (S.PAUSED, 1)
    assert status.lag_ms >= 20_000
    assert world.coordinator.views.explain(PATH).words.startswith("1 row waits; the table is paused")
    assert world.job().take() == []


def test_a_passed_deadline_counts_once(world: CoordinatorWorld) -> None:
    world.create(table__datalake__freshness="10 s")
    world.hot.append(PATH)
    world.clock.advance(9)
    (table,) = world.job().take()
    for _ in range(3):
        world.clock.advance(2)
        world.coordinator.schedule.tick()
    assert world.coordinator.views.table(PATH).misses == 1
    assert table.deadline_at_ms is not None


def test_admission_names_who_breaks_and_how_many_slots_would_do(world: CoordinatorWorld) -> None:
    names = [f"db.t{n}" for n in range(6)]
    query = AdmissionQuery(slots=1, freshness_ms=dict.fromkeys(names, 60_000), round_ms=dict.fromkeys(names, 20_000))
    answer = world.coordinator.forecast.answer(query)
    assert not answer.feasible
    assert answer.utilisation == pytest.approx(3.0)
    assert answer.slots_needed in (3, 4, 5, 6)
    enough = world.coordinator.forecast.answer(
        AdmissionQuery(slots=answer.slots_needed, freshness_ms=query.freshness_ms, round_ms=query.round_ms)
    )
    assert enough.feasible
    alone = world.coordinator.forecast.answer(
        AdmissionQuery(slots=9, freshness_ms={"db.x": 10_000}, round_ms={"db.x": 8_000})
    )
    assert not alone.feasible
    assert "no number of slots mends" in alone.words


def test_admission_of_hundreds_of_late_tables_ends_with_its_budget_and_says_so(world: CoordinatorWorld) -> None:
    """Without one it took 87 s for these."""
    names = [f"db.t{n}" for n in range(300)]
    query = AdmissionQuery(slots=4, freshness_ms=dict.fromkeys(names, 15_000), round_ms=dict.fromkeys(names, 900))
    seconds = itertools.count()
    answer = world.coordinator.forecast.answer(query, Budget(20, lambda: float(next(seconds))))
    assert (answer.complete, answer.slots_needed) == (False, None)
    assert "a partial answer: the time for it was over after" in answer.words
    assert "more slots do not help" not in answer.words
    assert 0 < answer.simulated_ms < 45_000
    cancelled = Budget(1_000, lambda: 0.0)
    cancelled.cancel()
    unanswered = world.coordinator.forecast.answer(query, cancelled)
    assert (unanswered.complete, unanswered.simulated_ms) == (False, 0)
    assert "no table was late in the part that was simulated" in unanswered.words


def test_admission_counts_no_table_that_never_had_a_round(world: CoordinatorWorld) -> None:
    world.create()
    assert world.coordinator.forecast.answer(AdmissionQuery(slots=1)).rows == ()
    asked = world.coordinator.forecast.answer(AdmissionQuery(slots=1, freshness_ms={str(PATH): 60_000}))
    assert [r.table for r in asked.rows] == [str(PATH)]
    info = world.hot.load_table(PATH)
    world.hot.append(PATH)
    world.clock.advance(200)
    job = world.job()
    (handed,) = job.take()
    world.clock.advance(1)
    world.commit_to_lake(info, 1, round_id=RoundId("r1"))
    job.commit(handed, 0, 1, "r1")
    job.finish(handed, "r1")
    assert [r.table for r in world.coordinator.forecast.answer(AdmissionQuery(slots=1)).rows] == [str(PATH)]


def test_a_read_plan_holds_its_snapshot_and_log_until_it_ends(world: CoordinatorWorld) -> None:
    table = world.create().table
    world.hot.append(PATH, 10)
    snapshot = world.commit_to_lake(table, 4)
    world.coordinator.read_lake(PATH)
    plan = world.coordinator.read_plan(PATH, lease_s=60)
    assert (plan.snapshot_id, plan.offsets) == (snapshot, OffsetMap({B0: 4}))
    assert [(t.bucket, t.range.start, t.range.stop) for t in plan.tails] == [(B0, 4, 10)]
    assert world.coordinator.retention.held_from(table.table_id, B0) == 4
    assert world.coordinator.leases.mark(SideId(table.table_id), [ExpiringSnapshot(snapshot_id=snapshot)]) == [], (
        "a leased snapshot cannot be marked"
    )
    world.restart()
    assert world.coordinator.retention.held_from(table.table_id, B0) == 4, "leases survive a restart"
    world.clock.advance(30)
    world.coordinator.renew_read(plan.lease_id, 60)
    world.clock.advance(59)
    assert world.coordinator.retention.held_from(table.table_id, B0) == 4
    world.clock.advance(2)
    with pytest.raises(SnapshotGone):
        world.coordinator.renew_read(plan.lease_id, 60)
    assert world.coordinator.retention.held_from(table.table_id, B0) is None
    assert world.coordinator.leases.mark(SideId(table.table_id), [ExpiringSnapshot(snapshot_id=snapshot)]) == [snapshot]
    with pytest.raises(TableBusy):
        world.coordinator.read_plan(PATH)


def test_a_read_covers_the_write_it_names(world: CoordinatorWorld) -> None:
    table = world.create().table
    world.hot.append(PATH, 10)
    token = WriteToken(table_id=table.table_id, offsets=OffsetMap({B0: 10}))
    world.coordinator.release_read(world.coordinator.read_plan(PATH, at_least=str(token)).lease_id)
    ahead = WriteToken(table_id=table.table_id, offsets=OffsetMap({B0: 11}))
    with pytest.raises(ReadTooFarAhead):
        world.coordinator.read_plan(PATH, at_least=str(ahead))
    assert world.coordinator.leases.count() == 0, "a refused plan leaves no lease"
    world.coordinator.release_read(LeaseId("unknown"))


def test_expiry_takes_old_snapshots_but_none_that_is_read(world: CoordinatorWorld) -> None:
    table = world.create(memory__history__expire__max_snapshot_age_ms="1000").table
    world.hot.append(PATH, 10)
    first = world.commit_to_lake(table, 2)
    world.coordinator.read_lake(PATH)
    plan = world.coordinator.read_plan(PATH, lease_s=3_000)
    for stop in (4, 6):
        world.clock.advance(10)
        world.commit_to_lake(table, stop, epoch=stop)
    world.clock.advance(600)
    world.coordinator.upkeep.run()
    kept = [s.snapshot_id for s in world.lake.open_reader(table).snapshots()]
    assert first in kept
    world.coordinator.release_read(plan.lease_id)
    world.coordinator.upkeep.run()
    assert first not in [s.snapshot_id for s in world.lake.open_reader(table).snapshots()]


def test_orphans_go_after_the_grace_behind_a_fence_and_not_under_a_lease(world: CoordinatorWorld) -> None:
    table = world.create().table
    world.hot.append(PATH, 10)
    world.commit_to_lake(table, 2)
    world.coordinator.read_lake(PATH)
    base = world.lake.open_reader(table).load_base()
    committer, round_id = world.lake.open_committer(table), RoundId("dead")
    intent = Intent(
        round_id=round_id,
        table_id=table.table_id,
        prefix=committer.prefix(round_id),
        token=base.token,
        fence=base.fence,
        recorded_at_ms=world.clock.now_ms(),
        kind=TIER,
    )
    world.coordinator.record_intent(intent)
    world.coordinator.record_intent(intent)
    write_file(world, committer.begin(round_id), round_id)
    world.coordinator.abandon_intent(round_id)
    world.clock.jump(3_600)
    world.clock.advance(200)
    (held,) = world.job().take()
    world.coordinator.upkeep.remove_orphans()
    assert world.coordinator.views.status().figures["orphanFilesRemoved"] == 0, (
        "a round holds the table: no fence, no deletion"
    )
    world.job().finish(held, None)
    world.coordinator.upkeep.remove_orphans()
    figures = world.coordinator.views.status().figures
    assert figures["orphanFilesRemoved"] == 1
    assert figures["orphanBytesReclaimed"] > 0
    after = world.lake.open_reader(table).load_base()
    assert after.fence == base.fence + 1
    assert world.coordinator.committed(PATH).token == after.token, "the coordinator knows its own fence"


def write_file(world: CoordinatorWorld, handle: bytes, round_id: RoundId) -> None:
    """What a round that died left behind."""
    import pyarrow as pa

    from lakeward.model import LogSplit, OffsetRange

    table = world.hot.load_table(PATH)
    split = LogSplit(bucket=B0, range=OffsetRange(2, 3))
    writer = world.lake.open_writer(WriteTask(round_id=round_id, table=table, split=split, attempt=0, handle=handle))
    at = pa.array([0], pa.timestamp("ms", "UTC"))
    writer.write(
        pa.record_batch(
            {
                "id": pa.array([1], pa.int64()),
                "v": pa.array(["x"]),
                "__offset": pa.array([2], pa.int64()),
                "__timestamp": at,
            }
        )
    )
    assert writer.complete() is not None


def test_state_stays_small(world: CoordinatorWorld) -> None:
    world.set_options(rounds_kept=5)
    world.create()
    job = world.job()
    for n in range(12):
        world.hot.append(PATH, 1)
        world.clock.advance(200)
        (table,) = job.take()
        job.commit(table, n, n + 1, f"r{n}")
        job.finish(table, f"r{n}")
    world.clock.advance(8 * 86_400)
    world.coordinator.upkeep.run()
    assert len(world.coordinator.views.rounds()) == 5
    (entry,) = world.coordinator.ledger(PATH)
    assert (str(entry.range), entry.rows) == ("[0, 12)", 12)
