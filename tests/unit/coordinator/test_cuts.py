# SPDX-License-Identifier: Apache-2.0
"""Cuts as the coordinator keeps them: over restarts, from expiry, and what it says where one cannot be."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from lakeward.errors import CutExists, CutNotFound, CutNotReady, CutScheduleNotFound, InvalidRequest
from lakeward.model import (
    DEFAULT_SIDE,
    CutSchedule,
    CutState,
    ExpiringSnapshot,
    SideId,
    SideName,
    SnapshotId,
    TablePath,
)
from lakeward.protocol.operate import ResyncChoice
from lakeward.protocol.tables import AlterTable, CutStatus
from lakeward.read.request import ReadRequest, at_cut, request_of
from tests.kit.world import B0, PATH, CoordinatorWorld

OTHER = TablePath("db", "other")


@pytest.fixture
def world(tmp_path: Path) -> Iterator[CoordinatorWorld]:
    made = CoordinatorWorld(tmp_path, named=("finance",))
    yield made
    made.close()


def make_cut(world: CoordinatorWorld, name: str = "c", *paths: TablePath) -> CutStatus:
    return world.coordinator.cuts.create(name, paths or (PATH,))


def settled(world: CoordinatorWorld, name: str = "c") -> CutStatus:
    world.coordinator.read_lake(PATH)
    world.coordinator.upkeep.read_lakes()
    return world.coordinator.load_cut(name)


def lake_at(world: CoordinatorWorld, *stops: int, lake: str = "default") -> list[SnapshotId]:
    table = world.hot.load_table(PATH)
    return [world.commit_to_lake(table, stop, lake=lake) for stop in stops]


def test_a_cut_is_ready_once_every_side_has_a_snapshot_there_and_outlives_a_restart(world: CoordinatorWorld) -> None:
    world.create(table__datalake__lakes="default, finance")
    world.hot.append(PATH, 5)
    made = make_cut(world)
    assert (made.state, len(made.notes)) == (CutState.OPEN, 2)
    assert made.notes[0].startswith("db.t (default): bucket 0 is at 0 of 5 (the side is scheduled")
    world.hot.append(PATH, 5)
    world.hot.cuts.clear()
    world.restart()
    assert list(world.hot.cuts) == ["c"], "rounds are told of it again"
    first = lake_at(world, 5)[0]
    assert settled(world).state is CutState.OPEN
    with pytest.raises(CutNotReady, match=r"cut c is open: db.t \(finance\): bucket 0 is at 0 of 5"):
        at_cut(request_of("db.t", cut="c"), world.coordinator.load_cut("c"))
    second = lake_at(world, 5, lake="finance")[0]
    status = settled(world)
    assert (status.state, status.notes, world.hot.cuts) == (CutState.READY, (), {})
    for lake, snapshot in ((None, first), ("default", first), ("finance", second)):
        read = at_cut(request_of("db.t", cut="c", lake=lake), status)
        assert (read.as_of, read.side) == (snapshot, SideName(lake or "default"))


def test_what_a_cut_needs_does_not_expire_until_it_is_dropped(world: CoordinatorWorld) -> None:
    table = world.create(table__datalake__lakes="default").table
    world.hot.append(PATH, 5)
    early, late = lake_at(world, 3, 4)
    side = SideId(table.table_id, DEFAULT_SIDE)

    def expiring(*snapshots: SnapshotId) -> list[SnapshotId]:
        leases = world.coordinator.leases
        marked = leases.mark(side, [ExpiringSnapshot(snapshot_id=s) for s in snapshots])
        leases.unmark(side, marked)
        return marked

    assert expiring(early) == [early]
    make_cut(world)
    assert expiring(early, late) == [], "the side is on its way there"
    exact = lake_at(world, 5)[0]
    assert settled(world).state is CutState.READY
    assert expiring(early, exact) == [early]
    world.coordinator.cuts.drop("c")
    assert expiring(exact) == [exact]
    with pytest.raises(CutNotFound, match="there is no cut c; `lakeward cut list`"):
        world.coordinator.cuts.drop("c")


def test_a_table_without_rows_is_empty_at_the_cut(world: CoordinatorWorld) -> None:
    world.create(table__datalake__lakes="default")
    make_cut(world)
    status = settled(world)
    assert status.state is CutState.READY
    assert at_cut(request_of("db.t", cut="c"), status).is_empty


def test_a_side_that_never_gets_there_says_why(world: CoordinatorWorld) -> None:
    world.create(table__datalake__lakes="default, finance")
    world.hot.append(PATH, 5)
    make_cut(world)
    world.hot.append(PATH, 5)
    lake_at(world, 7)
    lake_at(world, 5, lake="finance")
    status = settled(world)
    assert status.state is CutState.READY, "one side of the table is enough"
    assert "no snapshot at exactly this moment" in status.notes[0]
    with pytest.raises(InvalidRequest, match=r"db\.t in lake default: its lake has no snapshot at exactly this moment"):
        at_cut(request_of("db.t", cut="c", lake="default"), status)
    make_cut(world, "d")
    world.federation.alter(PATH, AlterTable(properties={"table.datalake.lakes": "default"}))
    assert "lake finance was taken from the table" in " ".join(settled(world, "d").notes)
    world.federation.drop(PATH)
    world.coordinator.upkeep.read_lakes()
    assert world.coordinator.load_cut("d").state is CutState.LOST
    world.restart()
    assert world.coordinator.load_cut("d").state is CutState.LOST
    world.coordinator.cuts.drop("d")


def test_words_for_what_cannot_be_a_cut(world: CoordinatorWorld) -> None:
    world.create(table__datalake__lakes="default")
    world.create("other", table__datalake__enabled="false")
    cuts = world.coordinator.cuts
    for name, paths, words in (
        ("no spaces", [PATH], "letters, digits, - and _"),
        ("c", [], "name at least one table"),
        ("c", [PATH, PATH], "db.t is named twice"),
        ("c", [OTHER], "the lake is not enabled for db.other"),
        ("c", [TablePath("db", "elsewhere")], "a cut is of tables of one server"),
    ):
        with pytest.raises(InvalidRequest, match=words):
            cuts.create(name, paths)
    assert (cuts.listed(), world.hot.cuts) == ([], {})
    make_cut(world)
    with pytest.raises(CutExists, match="drop it with `lakeward cut drop c`"):
        make_cut(world)
    with pytest.raises(InvalidRequest, match=r"db\.other is not in it; it is of db.t"):
        at_cut(ReadRequest(path=OTHER, cut="c"), world.coordinator.load_cut("c"))
    for named, option in (("as_of", {"as_of": "5"}), ("at_least", {"at_least": "x"}), ("mode hot", {"mode": "hot"})):
        with pytest.raises(InvalidRequest, match=f"it is a moment of its own; leave {named} out"):
            request_of("db.t", cut="c", **option)  # type: ignore[arg-type]


def test_a_pk_table_whose_first_rows_are_gone_from_the_log_is_tiered_first(world: CoordinatorWorld) -> None:
    world.create(pk=True, table__datalake__lakes="default")
    world.hot.append(PATH, 5)
    world.hot.truncate(PATH, B0, 2)
    with pytest.raises(InvalidRequest, match=r"run `lakeward tier-now db\.t`, then make the cut"):
        make_cut(world)
    lake_at(world, 5)
    world.coordinator.read_lake(PATH)
    make_cut(world)
    world.coordinator.operations.resync(PATH, ResyncChoice.RESYNC)
    with pytest.raises(InvalidRequest, match="is to be resynced first"):
        make_cut(world, "d")


def hourly(world: CoordinatorWorld, keep: int = 2) -> list[str]:
    """An hour goes by, the lake gets there, and the background looks twice; the cuts that are there."""
    world.clock.advance(3_600)
    world.hot.append(PATH, 1)
    world.coordinator.cut_schedules.run()
    lake_at(world, world.hot.bounds(world.hot.load_table(PATH))[B0].end)
    settled(world, world.coordinator.cuts.listed()[-1].cut.name)
    return [status.cut.name for status in world.coordinator.cuts.listed()]


def test_cuts_on_a_schedule_are_made_kept_and_dropped_over_a_restart(world: CoordinatorWorld) -> None:
    world.create(table__datalake__lakes="default")
    make_cut(world, "by-hand")
    schedule = CutSchedule(name="hourly", tables=(PATH,), every_ms=3_600_000, keep=2)
    assert world.coordinator.cut_schedules.add(schedule).cuts == ()
    first = hourly(world)
    assert len(first) == 2
    assert first[1] == schedule.cut_name(world.clock.now_ms())
    world.coordinator.cut_schedules.run()
    assert len(world.coordinator.cuts.listed()) == 2, "none before its time"
    second = hourly(world)
    world.restart()
    world.coordinator.cut_schedules.run()
    third = hourly(world)
    assert (second, len(third)) == ([*first, second[-1]], 3)
    assert (third[0], third[1]) == ("by-hand", second[-1]), "the oldest of the schedule went"
    (status,) = world.coordinator.cut_schedules.listed()
    assert (status.cuts, status.trouble) == (tuple(third[1:]), "")
    assert status.next_at_ms == world.clock.now_ms() + 3_600_000
    world.coordinator.cut_schedules.remove("hourly")
    world.restart()
    world.clock.advance(7_200)
    world.coordinator.cut_schedules.run()
    assert [s.cut.name for s in world.coordinator.cuts.listed()] == third, "they stay"
    with pytest.raises(CutScheduleNotFound, match="there is no cut schedule hourly"):
        world.coordinator.cut_schedules.remove("hourly")


def test_a_schedule_waits_for_lakes_says_its_trouble_and_goes_on(world: CoordinatorWorld) -> None:
    world.create(table__datalake__lakes="default")
    schedules = world.coordinator.cut_schedules
    schedules.add(CutSchedule(name="often", tables=(PATH,), every_ms=10_000, keep=1))
    world.hot.append(PATH, 5)
    for _ in range(3):
        schedules.run()
        world.clock.advance(10)
    assert len(world.coordinator.cuts.listed()) == 1, "the lake has not got the first one"
    world.federation.drop(PATH)
    world.coordinator.upkeep.read_lakes()
    (status,) = schedules.listed()
    assert "a cut is of tables of one server" in status.trouble
    assert [s.state for s in world.coordinator.cuts.listed()] == [CutState.LOST]
    world.create(table__datalake__lakes="default")
    schedules.run()
    assert len(world.coordinator.cuts.listed()) == 1, "not again at once"
    world.clock.advance(61)
    world.coordinator.upkeep.read_lakes()
    world.coordinator.upkeep.read_lakes()
    (made,) = world.coordinator.cuts.listed()
    assert made.state is CutState.READY, "the lost one went with the next that can be read"
    assert schedules.listed()[0].trouble == ""


def test_words_for_what_cannot_be_a_schedule(world: CoordinatorWorld) -> None:
    world.create(table__datalake__lakes="default")
    good = CutSchedule(name="c", tables=(PATH,), every_ms=60_000, keep=3)
    for wrong, words in (
        (replace(good, name="x" * 50), "a name is up to 63 long"),
        (replace(good, every_ms=5), "too often: 10 s at least"),
        (replace(good, keep=0), "from 1 to 10,000 cuts"),
        (replace(good, tables=()), "name at least one table"),
        (replace(good, tables=(OTHER,)), "a cut is of tables of one server"),
    ):
        with pytest.raises(InvalidRequest, match=words):
            world.coordinator.cut_schedules.add(wrong)
    world.coordinator.cut_schedules.add(good)
    with pytest.raises(InvalidRequest, match="`lakeward cut unschedule c` ends it"):
        world.coordinator.cut_schedules.add(good)


def test_a_lost_cut_waits_for_its_other_sides_after_a_restart(world: CoordinatorWorld) -> None:
    world.create(table__datalake__lakes="default")
    world.create("other", table__datalake__lakes="default")
    world.hot.append(PATH, 5)
    world.hot.append(OTHER, 5)
    make_cut(world, "c", PATH, OTHER)
    world.federation.drop(OTHER)
    assert settled(world).state is CutState.LOST
    world.hot.cuts.clear()
    world.restart()
    assert list(world.hot.cuts) == ["c"], "rounds stop there for the table that is left"
    lake_at(world, 5)
    settled(world)
    assert world.hot.cuts == {}, "nobody is waited for any more"
