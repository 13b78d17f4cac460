# SPDX-License-Identifier: Apache-2.0
"""Lake and Fluss that disagree: a lake that is ahead is taken over, a Fluss that is ahead stops the table, races have
one winner.
"""

from __future__ import annotations

import threading

import pytest

from lakeward.hot.fluss.handout.beats import beat_entry
from lakeward.hot.fluss.handout.epochs import join_epoch
from lakeward.hot.fluss.lakehistory import Registered
from lakeward.model import (
    Bucket,
    Epoch,
    InstanceId,
    JobName,
    LedgerKind,
    OffsetMap,
    RoundId,
    RoundOwner,
    SnapshotId,
    new_round_id,
)
from lakeward.protocol.heartbeat import LeaseCheck, TableFailed, TableFinished
from lakeward.spi import COMMIT_USER, COMMIT_USER_KEY, OFFSETS_KEY
from lakeward.tiering.round.reconcile import adoption
from lakeward_testing.faults import FaultAction, Faults
from tests.fluss.ondemand import OnDemand
from tests.fluss.steps import EVENTS, USERS, Append, Delete, MakeTable, Upsert, events
from tests.fluss.world import FlussWorld

pytestmark = [pytest.mark.fluss, pytest.mark.soak]


def ids(world: FlussWorld, name: str) -> list[int]:
    return sorted(world.rows(name).column("id").to_pylist())


def take_over_ahead(world: FlussWorld, rounds: OnDemand) -> None:
    """A round that told Fluss nothing; the next one does, and goes on from there. On any lake."""
    world.produce(MakeTable(name="ahead", schema=EVENTS, freshness="1h"), Append(table="ahead", rows=events(0, 50)))
    with Faults() as faults:
        faults.arm("round.before-coordinator-commit")
        assert isinstance(rounds.run("ahead"), TableFailed)
    assert world.committed("ahead") == OffsetMap()
    world.produce(Append(table="ahead", rows=events(50, 60)))
    assert isinstance(rounds.run("ahead"), TableFinished)
    assert ids(world, "ahead") == list(range(60))
    assert world.committed("ahead") == world.ends("ahead")


def stop_behind(world: FlussWorld, rounds: OnDemand) -> None:
    """Fluss knows more than the lake holds. On any lake."""
    world.produce(
        MakeTable(name="behind", schema=EVENTS, buckets=1, freshness="1h"), Append(table="behind", rows=events(0, 10))
    )
    assert isinstance(rounds.run("behind"), TableFinished)
    coordinator, table = rounds.plugin.coordinator(), world.table("behind")
    path = coordinator.prepare_commit(table, RoundId("bogus"), {Bucket("", 0): 99})["fluss-offsets"]
    coordinator._register(table, Registered(SnapshotId("12345"), path), {})
    end = rounds.run("behind")
    assert isinstance(end, TableFailed)
    assert end.error["code"] == "lake-behind"
    assert "resync" in end.error["message"]


def test_a_lake_that_is_ahead_is_taken_over(world: FlussWorld, rounds: OnDemand) -> None:
    take_over_ahead(world, rounds)
    ledger = rounds.plugin.coordinator().ledger(world.table("ahead").path)
    assert {e.kind for e in ledger} == {LedgerKind.ROUND}
    assert sum(len(e.range) for e in ledger) == 60


def test_a_lake_that_moved_on_is_not_told_of_as_it_was(world: FlussWorld, rounds: OnDemand) -> None:
    """Two jobs find the lake ahead; the slower one tells of what it saw after the other has gone on."""
    world.produce(MakeTable(name="slow", schema=EVENTS, freshness="1h"), Append(table="slow", rows=events(0, 50)))
    with Faults() as faults:
        faults.arm("round.before-coordinator-commit")
        assert isinstance(rounds.run("slow"), TableFailed)
    table, coordinator = world.table("slow"), world.plugin.coordinator()
    owner = RoundOwner(job=JobName("slow"), instance=InstanceId("two"), epoch=Epoch(1))
    seen = adoption(table, world.lake("slow").open_reader(table).load_base(), owner)
    world.produce(Append(table="slow", rows=events(50, 60)))
    assert isinstance(rounds.run("slow"), TableFinished)
    coordinator.committed(table.path)
    assert not coordinator.commit(seen).first
    assert world.committed("slow") == world.ends("slow")


def test_fluss_ahead_of_the_lake_stops_the_table_and_names_the_choices(world: FlussWorld, rounds: OnDemand) -> None:
    stop_behind(world, rounds)


def test_of_two_rounds_on_the_same_ground_one_wins(world: FlussWorld, rounds: OnDemand) -> None:
    """A zombie: Fluss's epochs do not guard the lake, our precondition does."""
    world.produce(MakeTable(name="race", schema=EVENTS, freshness="1h"), Append(table="race", rows=events(0, 50)))
    late: list[object] = []
    with Faults() as faults:
        pause = faults.arm("round.before-lake-commit", action=FaultAction.PAUSE)
        zombie = threading.Thread(target=lambda: late.append(rounds.run("race", 1)))
        zombie.start()
        pause.wait_reached()
        assert isinstance(rounds.run("race", 2), TableFinished)
        pause.release()
        zombie.join(120)
    (end,) = late
    assert isinstance(end, TableFailed)
    assert end.given_back
    assert ids(world, "race") == list(range(50))
    assert world.committed("race") == world.ends("race")


def commit_late(world: FlussWorld, rounds: OnDemand, name: str) -> None:
    """As a Flink job that comes back after its lease: its rows and its older offsets, on whatever head there is."""
    coordinator, table = rounds.plugin.coordinator(), world.table(name)
    path = coordinator._write_offsets(table, {Bucket("", 0): 20})
    lake = world.lake(name).connection.load(table.path)
    lake.append(
        lake.scan(row_filter="id < 20").to_arrow(),
        snapshot_properties={COMMIT_USER_KEY: COMMIT_USER, OFFSETS_KEY: path},
    )
    head = lake.current_snapshot()
    assert head is not None
    coordinator._register(table, Registered(SnapshotId(str(head.snapshot_id)), path), {Bucket("", 0): 20})


def test_a_late_commit_of_another_job_stops_the_table_until_main_is_moved_back(
    world: FlussWorld, rounds: OnDemand
) -> None:
    world.produce(
        MakeTable(name="late", schema=EVENTS, buckets=1, freshness="1h"), Append(table="late", rows=events(0, 50))
    )
    assert isinstance(rounds.run("late"), TableFinished)
    ours = world.lake("late").open_reader(world.table("late")).load_snapshot()
    assert ours is not None
    commit_late(world, rounds, "late")
    assert len(ids(world, "late")) == 70
    assert world.plugin.coordinator()._known(world.table("late")) is not None
    world.produce(Append(table="late", rows=events(50, 60)))
    for _ in range(2):
        end = rounds.run("late")
        assert isinstance(end, TableFailed)
        assert end.error["code"] == "lake-overlap"
        assert f"Move main back to snapshot {ours.snapshot_id}" in end.error["message"]
    lake = world.lake("late").connection.load(world.table("late").path)
    lake.manage_snapshots().set_current_snapshot(snapshot_id=int(ours.snapshot_id)).commit()
    assert isinstance(rounds.run("late"), TableFinished)
    assert ids(world, "late") == list(range(60))
    assert world.committed("late") == world.ends("late")


def test_sub_splits_of_a_pk_table_and_its_log_tail_fit_in_one_commit(world: FlussWorld, rounds: OnDemand) -> None:
    world.produce(
        MakeTable(name="cut", schema=USERS, primary_key=("id",), buckets=1, freshness="1h"),
        Upsert(table="cut", rows=[{"id": n, "name": f"user {n} " * 5} for n in range(1000)]),
        Upsert(table="cut", rows=[{"id": n, "name": f"again {n} " * 5} for n in range(0, 1000, 3)]),
        Delete(table="cut", keys=[{"id": n} for n in range(0, 1000, 9)]),
    )
    end = rounds.run("cut")
    assert isinstance(end, TableFinished)
    head = world.lake("cut").open_reader(world.table("cut")).load_snapshot()
    assert head is not None
    expected = {n: f"again {n} " * 5 if n % 3 == 0 else f"user {n} " * 5 for n in range(1000) if n % 9}
    assert {k: r["name"] for k, r in world.by_key("cut").items()} == expected


def test_a_lease_that_fluss_never_gave_is_not_held(world: FlussWorld) -> None:
    world.produce(MakeTable(name="unleased", schema=EVENTS, freshness="1h"))
    table = world.table("unleased")
    check = LeaseCheck(
        job=JobName("j"),
        instance=InstanceId("i"),
        table_id=table.table_id,
        epoch=join_epoch(0, 40),
        round_id=new_round_id(),
    )
    verdict = world.plugin.coordinator().check_lease(check)
    assert not verdict.held
    assert beat_entry(table.table_id, check.epoch)["tiering_epoch"] == 40
