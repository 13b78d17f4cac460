# SPDX-License-Identifier: Apache-2.0
"""Planning: which splits come out of offsets, bounds and snapshots."""

from __future__ import annotations

from typing import Any

import pytest

from lakeward.errors import HotStoreBehind, LogTooShort
from lakeward.model import Bucket, CutEnds, LakeBase, LogSplit, OffsetMap, RoundId, RoundPlan, SnapshotSplit, TableInfo
from lakeward.spi import KvSnapshot, LogBounds
from lakeward.tiering.round.plan import PlanOptions, plan_gaps, plan_round, plan_snapshots, plan_stop, plan_turns
from tests.unit.tiering.world import make_table

B0, B1 = Bucket("", 0), Bucket("", 1)
LOG = make_table()
PK = make_table("id BIGINT NOT NULL", key=("id",))


def bounds(start: int, end: int, bytes_per_row: float = 10.0) -> LogBounds:
    return LogBounds(start=start, end=end, bytes_per_row=bytes_per_row)


def plan(table: TableInfo, committed: dict[Bucket, int], logs: dict[Bucket, LogBounds], **facts: Any) -> RoundPlan:
    return plan_round(
        round_id=RoundId("r"),
        table=table,
        base=LakeBase(offsets=OffsetMap(committed)),
        bounds=logs,
        snapshots=facts.pop("snapshots", {}),
        options=PlanOptions(**facts),
        planned_at_ms=0,
    )


def shown(made: RoundPlan) -> list[str]:
    return [str(s) for s in made.splits]


def test_new_offsets_become_one_split_per_bucket() -> None:
    made = plan(LOG, {B0: 3}, {B0: bounds(0, 10), B1: bounds(0, 4)})
    assert shown(made) == ["log 0 [3, 10)", "log 1 [0, 4)"]


def test_no_new_offsets_make_an_empty_plan() -> None:
    assert plan(LOG, {B0: 10}, {B0: bounds(0, 10), B1: bounds(0, 0)}).is_empty


def test_a_partition_that_went_away_has_no_split() -> None:
    assert shown(plan(LOG, {Bucket("old", 0): 7, B0: 0}, {B0: bounds(0, 1)})) == ["log 0 [0, 1)"]


def test_a_big_range_is_cut_evenly() -> None:
    made = plan(LOG, {B0: 10}, {B0: bounds(0, 110)}, target_bytes=300)
    assert shown(made) == ["log 0 [10, 35)", "log 0 [35, 60)", "log 0 [60, 85)", "log 0 [85, 110)"]
    assert [s.index for s in made.splits] == [0, 1, 2, 3]


def test_a_format_with_one_writer_per_bucket_is_not_cut() -> None:
    assert len(plan(LOG, {}, {B0: bounds(0, 1_000)}, target_bytes=10, one_writer_per_bucket=True).splits) == 1


def test_of_a_bucket_with_one_writer_the_log_after_a_kv_snapshot_waits_for_the_next_round() -> None:
    kv = {B0: KvSnapshot(bucket=B0, snapshot_id="7", log_offset=5)}
    logs = {B0: bounds(0, 9), B1: bounds(0, 4)}
    assert shown(plan(PK, {B1: 1}, logs, snapshots=kv)) == ["snapshot 0 7 at 5", "log 0 [5, 9)", "log 1 [1, 4)"]
    made = plan(PK, {B1: 1}, logs, snapshots=kv, one_writer_per_bucket=True)
    assert shown(made) == ["snapshot 0 7 at 5", "log 1 [1, 4)"]


def test_cuts_are_moved_and_never_leave_an_empty_split() -> None:
    made = plan_round(
        round_id=RoundId("r"),
        table=PK,
        base=LakeBase(offsets=OffsetMap({B0: 0})),
        bounds={B0: bounds(0, 6)},
        snapshots={},
        options=PlanOptions(target_bytes=10),
        planned_at_ms=0,
        align=lambda _b, cut: cut + cut % 2,
    )
    assert shown(made) == ["log 0 [0, 2)", "log 0 [2, 4)", "log 0 [4, 6)"]


def test_which_buckets_of_a_pk_table_need_a_snapshot() -> None:
    base = LakeBase(offsets=OffsetMap({B0: 5, B1: 5}))
    logs = {B0: bounds(3, 9), B1: bounds(7, 9), Bucket("", 2): bounds(0, 4), Bucket("", 3): bounds(0, 0)}
    assert plan_snapshots(PK, base, logs, PlanOptions()) == (B1, Bucket("", 2))
    assert plan_snapshots(LOG, base, logs, PlanOptions()) == ()


def test_a_snapshot_comes_first_then_the_log_from_its_offset() -> None:
    taken = {B0: KvSnapshot(bucket=B0, snapshot_id="s", log_offset=6)}
    made = plan(PK, {}, {B0: bounds(0, 9)}, snapshots=taken)
    assert [type(s) for s in made.splits] == [SnapshotSplit, LogSplit]
    assert shown(made) == ["snapshot 0 s at 6", "log 0 [6, 9)"]
    assert [s.index for s in made.splits] == [0, 1]


@pytest.mark.parametrize("table", [LOG, PK], ids=["log", "pk"])
def test_a_log_that_starts_above_the_committed_offset_is_an_error(table: TableInfo) -> None:
    with pytest.raises(LogTooShort, match="resync"):
        plan(table, {B0: 5}, {B0: bounds(8, 20)})


def test_a_log_that_ends_below_the_committed_offset_is_an_error() -> None:
    with pytest.raises(HotStoreBehind, match="restored"):
        plan(LOG, {B0: 50}, {B0: bounds(0, 20)})


def test_rows_that_expired_before_the_lake_came_are_a_gap() -> None:
    logs = {B0: bounds(8, 20)}
    made = plan(LOG, {}, logs)
    assert shown(made) == ["log 0 [8, 20)"]
    assert [str(g) for g in plan_gaps(made, logs).values()] == ["[0, 8)"]


def test_a_resync_steps_over_what_is_gone() -> None:
    logs = {B0: bounds(8, 20)}
    made = plan(LOG, {B0: 5}, logs, resync=True)
    assert shown(made) == ["log 0 [8, 20)"]
    assert [str(g) for g in plan_gaps(made, logs).values()] == ["[5, 8)"]


def test_turns_take_each_buckets_first_split_first_in_an_order_of_the_round() -> None:
    made = plan(LOG, {}, {Bucket("", n): bounds(0, 4) for n in range(6)}, target_bytes=20)
    orders = {plan_turns(made.splits, seed) for seed in "abcdef"}
    assert len(orders) > 1
    for order in orders:
        assert sorted(order, key=str) == sorted(made.splits, key=str)
        assert [s.index for s in order] == [0] * 6 + [1] * 6


def test_a_round_stops_at_the_oldest_cut_that_the_lake_has_not_reached() -> None:
    logs = {B0: bounds(0, 10), B1: bounds(0, 4), Bucket("new", 0): bounds(0, 2)}
    first, second = (CutEnds(ends=OffsetMap({B0: a, B1: b})) for a, b in ((3, 0), (5, 4)))

    def ends(committed: dict[Bucket, int]) -> dict[Bucket, int] | None:
        stop = plan_stop(LakeBase(offsets=OffsetMap(committed)), logs, (first, second))
        return None if stop is None else {b: v.end for b, v in stop.items()}

    assert ends({}) == {B0: 3, B1: 0}
    assert ends({B0: 3}) == {B0: 5, B1: 4}
    assert ends({B0: 4}) == {B0: 5, B1: 4}  # past the first, for which there is nothing to do any more
    assert ends({B0: 5, B1: 4}) is None
    assert ends({B0: 7}) is None


def test_a_first_round_that_stops_at_a_cut_takes_a_whole_log_and_no_snapshot_of_now() -> None:
    logs = {B0: bounds(0, 3), B1: bounds(2, 4)}
    assert plan_snapshots(PK, LakeBase(), logs, PlanOptions(), is_stopped=True) == (B1,)
