# SPDX-License-Identifier: Apache-2.0
"""Rounds of several sides that read the log once: what each gets, and that what befalls one befalls no other."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lakeward.errors import LeaseLost
from lakeward.hot.embedded.options import StoreOptions
from lakeward.model import (
    DEFAULT_SIDE,
    Bucket,
    Content,
    InstanceId,
    JobName,
    LogSplit,
    OffsetRange,
    RoundId,
    RoundOwner,
    SideName,
    SnapshotSplit,
    SystemClock,
    TableInfo,
    TablePath,
)
from lakeward.protocol.heartbeat import HandedOut, TableFailed, TableFinished
from lakeward.protocol.operate import ResyncChoice
from lakeward.protocol.tables import AlterTable
from lakeward.spi import Plugin, load_lake
from lakeward.tiering.work.runner import LeasedWork, RoundEnd
from lakeward.tiering.work.together import MOST_SPLITS, plan_orders, plan_reads
from lakeward.tiering.work.writeorder import WriteOrder
from lakeward_testing.clock import ManualClock
from lakeward_testing.faults import FaultAction, Faults
from lakeward_testing.waiting import wait_until
from tests.kit.inprocess import InProcessLakeward

COLD, CHANGES = SideName("cold"), SideName("default", Content.CHANGELOG)
LOG, PK = "db.log", "db.pk"
SIDES = "default, cold"


class Sides:
    """Two lakes, and every read of the log."""

    def __init__(self, folder: Path, store: StoreOptions | None = None) -> None:
        lakes = [load_lake("memory", {"name": f"{folder}/{name}"}) for name in ("default", "cold")]
        self.clock = ManualClock(SystemClock().now_ms())
        self.world = InProcessLakeward(folder, lakes[0], self.clock, store, named={"cold": lakes[1]})
        self.reads: list[tuple[int, int, Any]] = []
        read = self.world.store.read_log

        def counted(table: TableInfo, bucket: Bucket, start: int, stop: int, columns: Any = None) -> Iterator[Any]:
            self.reads.append((start, stop, columns))
            return read(table, bucket, start, stop, columns)

        self.world.store.read_log = counted  # type: ignore[method-assign]

    def create(self, path: str, **properties: str) -> None:
        key = {"primary_key": "id"} if path == PK else {}
        self.world.create(path, "id bigint not null, v string", **key, **{"table.datalake.lakes": SIDES, **properties})  # type: ignore[arg-type]

    def put(self, path: str, start: int, stop: int, word: str = "x") -> None:
        rows = [{"id": n, "v": word} for n in range(start, stop)]
        (self.world.upsert if path == PK else self.world.append)(path, rows)

    def take(self, path: str, *sides: SideName) -> list[LeasedWork]:
        """Rounds of these sides, as one answer has them."""
        for side in sides:
            self.world.coordinator.ask_now(TablePath.parse(path), side)
        handed = self.world.take_all(path)
        assert {h.side for h in handed} == set(sides)
        return self.world.works(handed)

    def ids(self, path: str, side: SideName) -> list[int]:
        return sorted(r["id"] for r in self.world.read(path, lake=str(side), mode="lake").to_table().to_pylist())

    def begin(self, works: Sequence[LeasedWork]) -> Callable[[], dict[SideName, RoundEnd]]:
        """Runs them; what is returned waits for their ends."""
        ends: list[RoundEnd] = []
        thread = threading.Thread(target=lambda: ends.extend(self.world.run_works(works)), daemon=True)
        thread.start()

        def finish() -> dict[SideName, RoundEnd]:
            thread.join(120)
            return {end.side: end for end in ends}

        return finish


@pytest.fixture
def sides(tmp_path: Path) -> Iterator[Sides]:
    made = Sides(tmp_path)
    yield made
    made.world.close()


def read_with(end: RoundEnd) -> tuple[SideName, ...]:
    assert isinstance(end, TableFinished), end
    assert end.result is not None
    return end.result.read_with


def works_of(works: Sequence[LeasedWork], side: SideName) -> LeasedWork:
    return next(work for work in works if work.handed.side == side)


# ---- one read --------------------------------------------------------------------------------------------------------
def test_sides_and_changelog_of_a_log_table_are_written_from_one_read(sides: Sides) -> None:
    sides.create(LOG, **{"table.datalake.changelog": "default"})
    sides.put(LOG, 0, 10)
    ends = sides.world.run_works(sides.take(LOG, DEFAULT_SIDE, COLD, CHANGES))
    assert sides.reads == [(0, 10, None)]
    assert [len(read_with(end)) for end in ends] == [2, 2, 2]
    assert sides.ids(LOG, DEFAULT_SIDE) == sides.ids(LOG, COLD) == list(range(10))
    shown = sides.world.coordinator.views.rounds(TablePath.parse(LOG))
    assert sorted(bool(r.log_bytes) for r in shown) == [False, False, True]
    assert all(r.read_with for r in shown)
    figures = [f for (_, kind), f in sides.world.coordinator.views.work_figures().items() if kind == "tier"]
    assert [f["roundsSharingRead"] for f in figures] == [1, 1, 1]
    assert sum(f["logBytesRead"] for f in figures) == sum(r.log_bytes for r in shown) > 0
    sides.put(LOG, 10, 11)
    sides.world.coordinator.schedule.tick()
    words = sides.world.coordinator.views.explain(TablePath.parse(LOG), COLD).words
    assert words.endswith("and read the log together with default, default:changelog")


def test_a_long_range_of_a_pk_table_is_folded_once_and_read_once_more(sides: Sides) -> None:
    sides.world.world = _with_options(sides.world, held_rows=3)
    sides.create(PK, **{"table.datalake.changelog": "default"})
    sides.put(PK, 0, 10)
    sides.world.tier_together(PK, [DEFAULT_SIDE, COLD, CHANGES])
    sides.put(PK, 5, 10, "y")
    sides.world.delete(PK, [{"id": 0}])
    sides.reads.clear()
    ends = sides.world.run_works(sides.take(PK, DEFAULT_SIDE, COLD, CHANGES))
    assert sides.reads == [(10, 21, ()), (10, 21, None)]
    assert all(len(read_with(end)) == 2 for end in ends)
    for side in (DEFAULT_SIDE, COLD):
        rows = sides.world.read(PK, lake=str(side), mode="lake").to_table().to_pylist()
        assert {r["id"]: r["v"] for r in rows} == {
            **dict.fromkeys(range(1, 5), "x"),
            **dict.fromkeys(range(5, 10), "y"),
        }
    assert sides.world.changes(PK).to_table().num_rows == 21


def test_each_side_gets_its_part_of_the_union(sides: Sides) -> None:
    sides.create(LOG)
    sides.put(LOG, 0, 10)
    sides.world.tier(LOG, COLD)
    sides.put(LOG, 10, 20)
    sides.reads.clear()
    sides.world.run_works(sides.take(LOG, DEFAULT_SIDE, COLD))
    assert sides.reads == [(0, 20, None)]
    assert sides.ids(LOG, DEFAULT_SIDE) == sides.ids(LOG, COLD) == list(range(20))


def test_a_cut_ends_the_part_of_a_state_and_not_that_of_the_changelog(sides: Sides) -> None:
    sides.create(LOG, **{"table.datalake.changelog": "default"})
    sides.put(LOG, 0, 4)
    sides.world.coordinator.cuts.create("c", [TablePath.parse(LOG)])
    sides.put(LOG, 4, 9)
    ends = sides.world.run_works(sides.take(LOG, DEFAULT_SIDE, COLD, CHANGES))
    assert sides.reads == [(0, 9, None)]
    rows = {end.side: end.result.rows for end in ends if isinstance(end, TableFinished) and end.result}
    assert rows == {DEFAULT_SIDE: 4, COLD: 4, CHANGES: 9}


# ---- one side's trouble ----------------------------------------------------------------------------------------------
def test_a_side_that_is_stopped_in_the_middle_stops_alone(sides: Sides) -> None:
    sides.create(LOG)
    sides.put(LOG, 0, 10)
    works = sides.take(LOG, DEFAULT_SIDE, COLD)
    with Faults() as faults:
        pause = faults.arm("split.batch", FaultAction.PAUSE, when=lambda facts: facts["side"] == "cold")
        finish = sides.begin(works)
        pause.wait_reached()
        stopped = works_of(works, COLD)
        stopped.control.stop(LeaseLost(table=LOG, round_id=stopped.round_id, job="j", reason="paused"))
        pause.release()
        ends = finish()
    failed = ends[COLD]
    assert isinstance(failed, TableFailed)
    assert failed.given_back
    assert read_with(ends[DEFAULT_SIDE]) == (COLD,)
    assert sides.ids(LOG, DEFAULT_SIDE) == list(range(10))
    assert sides.ids(LOG, COLD) == []


def test_a_lake_that_hangs_is_left_behind_and_comes_after(sides: Sides) -> None:
    sides.create(LOG)
    sides.put(LOG, 0, 10)
    works = sides.take(LOG, DEFAULT_SIDE, COLD)
    with Faults() as faults:
        hang = faults.arm("split.batch", FaultAction.PAUSE, when=lambda facts: facts["side"] == "cold")
        finish = sides.begin(works)
        hang.wait_reached()
        wait_until(lambda: "split.written" in faults.seen, what="the side whose lake answers")
        sides.clock.advance(20)  # longer than it waits for the other
        ends = finish()  # the split was tried again, alone, while the first writer still hangs
        hang.release()
    assert read_with(ends[DEFAULT_SIDE]) == (COLD,)
    assert read_with(ends[COLD]) == ()
    assert sides.ids(LOG, COLD) == list(range(10))


def test_a_side_that_is_told_to_finish_stops_at_a_boundary_alone(sides: Sides, tmp_path: Path) -> None:
    sides.create(LOG)
    for start in range(0, 30, 10):
        sides.put(LOG, start, start + 10)
    works = sides.take(LOG, DEFAULT_SIDE, COLD)
    early = works_of(works, COLD)
    early.control._flag = tmp_path / "flag"
    sides.world.world = _with_options(sides.world, min_work_s=0.0)
    with Faults() as faults:
        pause = faults.arm("split.batch", FaultAction.PAUSE, when=lambda facts: facts["side"] == "cold")
        finish = sides.begin(works)
        pause.wait_reached()
        early.control.force()
        pause.release()
        ends = finish()
    forced, whole = ends[COLD], ends[DEFAULT_SIDE]
    assert isinstance(forced, TableFinished)
    assert isinstance(whole, TableFinished)
    assert (forced.force_finished, whole.force_finished) == (True, False)
    assert sides.ids(LOG, DEFAULT_SIDE) == list(range(30))
    assert 0 < len(sides.ids(LOG, COLD)) < 30


def test_tasks_that_are_lost_are_run_again_by_each_round_alone(sides: Sides) -> None:
    sides.create(LOG)
    sides.put(LOG, 0, 10)
    works = sides.take(LOG, DEFAULT_SIDE, COLD)
    run, calls = sides.world.dispatcher.run, list[int]()

    def lose_first(orders: Any, control: Any, **more: Any) -> list[bytes]:
        calls.append(len(orders[0].beside))
        if orders[0].beside:
            raise RuntimeError("the Spark job failed")
        return run(orders, control, **more)

    sides.world.dispatcher.run = lose_first  # type: ignore[method-assign]
    ends = sides.begin(works)()
    assert sorted(calls) == [0, 0, 1]
    assert [read_with(end) for end in ends.values()] == [(), ()]
    assert sides.ids(LOG, DEFAULT_SIDE) == sides.ids(LOG, COLD) == list(range(10))


def test_a_round_that_never_comes_is_not_waited_for(sides: Sides) -> None:
    sides.create(LOG)
    sides.put(LOG, 0, 10)
    works = sides.take(LOG, DEFAULT_SIDE, COLD)
    with Faults() as faults:
        slow = faults.arm(
            "round.planned", FaultAction.PAUSE, when=lambda f: f["round_id"] == works_of(works, COLD).round_id
        )
        finish = sides.begin(works)
        wait_until(lambda: sides.ids(LOG, DEFAULT_SIDE) == list(range(10)), what="the side that has planned")
        slow.release()
        ends = finish()
    assert [read_with(end) for end in ends.values()] == [(), ()]
    assert sides.ids(LOG, COLD) == list(range(10))


def _with_options(world: InProcessLakeward, **options: Any) -> Any:
    return replace(world.world, options=replace(world.world.options, **options))


# ---- what the log keeps ----------------------------------------------------------------------------------------------
def expire(sides: Sides) -> int:
    """Days pass, and retention takes what it may; the log's start then."""
    sides.clock.advance(9 * 86_400)
    path = TablePath.parse(LOG)
    sides.world.coordinator.read_lake(path)
    sides.world.store.upkeep.upload()
    sides.world.store.upkeep.expire()
    return sides.world.store.bounds(sides.world.store.load_table(path))[Bucket("", 0)].start


def test_no_segment_goes_before_every_side_that_is_on_has_it(tmp_path: Path) -> None:
    """One side fails beside another, again and again; later it is taken away, and comes back past the log's time."""
    made = Sides(tmp_path, StoreOptions.with_settings({"log.segment.file-size": "64 kb"}))
    try:
        _keep(made)
    finally:
        made.world.close()


def _keep(sides: Sides) -> None:
    sides.create(LOG)
    for start in range(0, 20_000, 1_000):
        sides.put(LOG, start, start + 1_000, "a word of some length that fills a segment")
    with Faults() as faults:
        faults.arm("split.written", times=None, when=lambda facts: facts["side"] == "cold")
        ends = sides.begin(sides.take(LOG, DEFAULT_SIDE, COLD))()
    assert [type(ends[side]) for side in (DEFAULT_SIDE, COLD)] == [TableFinished, TableFailed]
    assert expire(sides) == 0
    sides.world.tier(LOG, COLD)
    assert len(sides.ids(LOG, COLD)) == 20_000
    start = expire(sides)
    assert start > 0
    path = TablePath.parse(LOG)
    sides.world.federation.alter(path, AlterTable(properties={"table.datalake.lakes": "default"}))
    for at in range(20_000, 40_000, 1_000):
        sides.put(LOG, at, at + 1_000, "a word of some length that fills a segment")
    sides.world.tier(LOG, DEFAULT_SIDE)
    assert expire(sides) > 20_000
    sides.world.federation.alter(path, AlterTable(properties={"table.datalake.lakes": SIDES}))
    stopped = sides.world.coordinator.views.table(path, COLD)
    assert "lakeward table resync db.log --lake cold" in (stopped.reason or "")
    sides.world.coordinator.operations.resync(path, ResyncChoice.GAP, COLD)
    sides.put(LOG, 40_000, 40_010)
    works = sides.take(LOG, DEFAULT_SIDE, COLD)
    assert not any(work.handed.reads_with for work in works), "a side that is made anew reads for itself"
    sides.world.run_works(works)
    assert len(sides.ids(LOG, DEFAULT_SIDE)) == 40_010
    assert set(range(40_000, 40_010)) < set(sides.ids(LOG, COLD))


# ---- which splits ----------------------------------------------------------------------------------------------------
def order(sides: Sides, side: str, *splits: tuple[int, int], bucket: int = 0) -> WriteOrder:
    table = sides.world.store.load_table(TablePath.parse(LOG))
    plugin = Plugin(name="memory", options={})
    return WriteOrder(
        round_id=RoundId(f"round-{side}"),
        owner=RoundOwner(job=JobName("j"), instance=InstanceId("i"), epoch=1),  # type: ignore[arg-type]
        table=table,
        hot=plugin,
        lake=plugin,
        side=SideName(side),
        splits=tuple(LogSplit(bucket=Bucket("", bucket), range=OffsetRange(*s), index=n) for n, s in enumerate(splits)),
    )


def spelled(reads: Any) -> list[list[str]]:
    return [[f"{w.order.side} {w.split.range}" for w in read] for read in reads]


def test_splits_that_overlap_are_one_read(sides: Sides) -> None:
    sides.create(LOG)
    a, b = order(sides, "a", (0, 10), (10, 20)), order(sides, "b", (5, 10), (10, 25))
    assert spelled(plan_reads([a, b])) == [["a [0, 10)", "b [5, 10)"], ["a [10, 20)", "b [10, 25)"]]
    apart = order(sides, "b", (20, 30))
    assert [len(read) for read in plan_reads([a, apart])] == [1, 1, 1]
    long = order(sides, "b", (0, 100))
    many = order(sides, "a", *((n, n + 10) for n in range(0, 10 * (MOST_SPLITS + 1), 10)))
    assert all(len(read) == 1 for read in plan_reads([many, long]))


def test_splits_of_another_bucket_or_of_a_snapshot_are_read_alone(sides: Sides) -> None:
    sides.create(LOG)
    a, b = order(sides, "a", (0, 10)), order(sides, "b", (0, 10), bucket=1)
    assert [len(read) for read in plan_reads([a, b])] == [1, 1]
    snapshot = SnapshotSplit(bucket=Bucket("", 0), snapshot_id="s", log_offset=10)
    assert [len(read) for read in plan_reads([a, b.with_splits((snapshot,))])] == [1, 1]


def test_every_split_is_in_one_task_and_each_rounds_first_is_marked(sides: Sides) -> None:
    sides.create(LOG)
    a, b = order(sides, "a", (0, 10), (10, 20)), order(sides, "b", (10, 20))
    first, second = plan_orders([a, b], is_small=False)
    assert (first.side, first.beside, first.is_first) == (SideName("a"), (), True)
    assert ([o.side for o in (second, *second.beside)], second.is_first) == ([SideName("a"), SideName("b")], False)
    assert second.beside[0].is_first
    (small,) = plan_orders([a, b], is_small=True)
    assert (small.splits, small.beside[0].splits) == (a.splits, b.splits)
    assert WriteOrder.from_bytes(small.to_bytes()) == small


def test_a_hand_out_of_an_older_server_reads_alone(sides: Sides) -> None:
    sides.create(LOG)
    sides.put(LOG, 0, 10)
    handed = [_alone(work.handed) for work in sides.take(LOG, DEFAULT_SIDE, COLD)]
    ends = sides.world.run_all(handed)
    assert [read_with(end) for end in ends] == [(), ()]


def _alone(handed: HandedOut) -> HandedOut:
    return replace(handed, reads_with=())
