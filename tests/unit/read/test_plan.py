# SPDX-License-Identifier: Apache-2.0
"""Union plans: which snapshot, which tails, and what `as_of` may name."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from lakeward.errors import InvalidRequest, SnapshotGone
from lakeward.model import (
    Bucket,
    Column,
    Int64Type,
    LeaseId,
    OffsetMap,
    OffsetRange,
    Schema,
    SnapshotId,
    TableDescriptor,
    TableId,
    TableInfo,
    TablePath,
)
from lakeward.protocol.readplan import HotRange, ReadPlan
from lakeward.read.plan import ReadMode, choose_snapshot, parse_as_of, plan_hot, plan_union
from lakeward.spi import LakeSnapshot, LogBounds

TABLE = TableInfo(
    path=TablePath("db", "t"),
    table_id=TableId("x"),
    descriptor=TableDescriptor(schema=Schema(columns=(Column(name="id", type=Int64Type()),)), bucket_count=3),
)
A, B, C, OLD = Bucket("p", 0), Bucket("q", 0), Bucket("q", 1), Bucket("gone", 0)


def read_plan(**tails: OffsetRange) -> ReadPlan:
    buckets = {"a": A, "b": B, "c": C}
    return ReadPlan(
        table=TABLE,
        lease_id=LeaseId("l"),
        lease_ends_at_ms=0,
        frozen_at_ms=5,
        snapshot_id=SnapshotId("7"),
        offsets=OffsetMap({A: 1}),
        tails=tuple(HotRange(bucket=buckets[n], range=r) for n, r in tails.items()),
    )


def snapshot(number: str = "7", at_ms: int = 0, **offsets: int) -> LakeSnapshot:
    buckets = {"a": A, "b": B, "old": OLD}
    return LakeSnapshot(
        snapshot_id=SnapshotId(number),
        parent_id=None,
        committed_at_ms=at_ms,
        operation="append",
        round_id=None,
        offsets=OffsetMap({buckets[n]: o for n, o in offsets.items()}),
    )


def test_the_tail_begins_where_the_snapshot_ends_not_where_the_coordinator_says() -> None:
    plan = plan_union(read_plan(a=OffsetRange(1, 10)), snapshot(a=4))
    assert plan.tails == {A: OffsetRange(4, 10)}
    assert plan.ends == OffsetMap({A: 10})


def test_a_bucket_the_lake_does_not_know_is_read_from_its_start_and_one_without_log_has_no_tail() -> None:
    plan = plan_union(read_plan(a=OffsetRange(0, 4), c=OffsetRange(0, 2)), snapshot(a=4, old=9))
    assert plan.tails == {C: OffsetRange(0, 2)}
    assert plan.ends == OffsetMap({A: 4, C: 2, OLD: 9})


def test_without_a_snapshot_everything_is_hot() -> None:
    plan = plan_union(read_plan(a=OffsetRange(0, 4)), None)
    assert plan.snapshot_id is None
    assert plan.tails == {A: OffsetRange(0, 4)}


def test_modes_take_one_side_only() -> None:
    assert not plan_union(read_plan(a=OffsetRange(0, 4)), snapshot(a=1), ReadMode.LAKE).tails
    hot = plan_hot({A: LogBounds(start=0, end=4), B: LogBounds(start=3, end=3)})
    assert hot.snapshot_id is None
    assert hot.tails == {A: OffsetRange(0, 4)}
    with pytest.raises(InvalidRequest, match="union, lake, hot"):
        ReadMode.parse("both")


def test_as_of_names_a_snapshot_or_a_moment_and_says_what_is_kept() -> None:
    kept = [snapshot("1", at_ms=1_000), snapshot("2", at_ms=2_000)]
    assert choose_snapshot("t", kept, "2").snapshot_id == "2"
    assert choose_snapshot("t", kept, datetime.fromtimestamp(1.5, UTC)).snapshot_id == "1"
    with pytest.raises(SnapshotGone, match="2 snapshots"):
        choose_snapshot("t", kept, datetime.fromtimestamp(0.5, UTC))
    with pytest.raises(SnapshotGone):
        choose_snapshot("t", kept, 3)


def test_as_of_is_read_from_text() -> None:
    assert parse_as_of("17") == "17"
    assert parse_as_of("2026-01-02T03:04:05") == datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    with pytest.raises(InvalidRequest, match="yesterday"):
        parse_as_of("yesterday")
