# SPDX-License-Identifier: Apache-2.0
"""A folder restored from an older copy never gives an offset that the lake has seen to a new row."""

from __future__ import annotations

import pytest

from lakeward.errors import BucketStopped, FaultInjected
from lakeward.hot.embedded.store import EmbeddedStore
from lakeward.model import Bucket, OffsetMap, OffsetRange
from lakeward_testing.faults import Faults
from tests.unit.hot.embedded.yard import B0, Yard, read, rows

B1 = Bucket("", 1)


def test_a_log_table_goes_on_at_the_lakes_offset_and_records_the_gap(yard: Yard, store: EmbeddedStore) -> None:
    table = yard.table(buckets=2)
    store.create_table(table)
    store.append(table, B0, rows(0, 1))
    lake = OffsetMap({B0: 500, B1: 7})
    assert store.guard_offsets(table, lake) == {B0: OffsetRange(2, 500), B1: OffsetRange(0, 7)}
    assert store.guard_offsets(table, lake) == {}
    assert store.append(table, B0, rows(2)).start == 500
    assert store.append(table, B1, rows(3)).start == 7
    for current in (store, yard.open(yard.crash(store))):
        assert read(current, table, B0) == [(0, 0), (1, 1), (500, 2)]
        assert read(current, table, B1) == [(7, 3)]
        assert list(current.gaps(table)) == [(B0, OffsetRange(2, 500)), (B1, OffsetRange(0, 7))]
        assert current.read_log(table, B0, 100, 400) is not None
        assert current.guard_offsets(table, lake) == {}


def test_offsets_at_or_below_the_end_are_left_alone(yard: Yard, store: EmbeddedStore) -> None:
    table = yard.table()
    store.create_table(table)
    store.append(table, B0, rows(0, 1))
    assert store.guard_offsets(table, OffsetMap({B0: 2})) == {}
    assert store.append(table, B0, rows(2)).start == 2


def test_a_crash_before_the_skip_is_made_good_at_the_next_start(yard: Yard, store: EmbeddedStore) -> None:
    table = yard.table()
    store.create_table(table)
    store.append(table, B0, rows(0))
    with Faults() as faults:
        faults.arm("hotlog.before-skip")
        with pytest.raises(FaultInjected):
            store.guard_offsets(table, OffsetMap({B0: 50}))
        crashed = yard.crash(store)
    again = yard.open(crashed)
    assert again.append(table, B0, rows(1)).start == 50


def test_a_pk_table_stops_for_a_resync_and_is_lifted_after_it(yard: Yard, store: EmbeddedStore) -> None:
    table = yard.table(primary_key=("id",))
    store.create_table(table)
    store.upsert(table, B0, rows(1, 2))
    assert store.guard_offsets(table, OffsetMap({B0: 40})) == {}
    again = yard.open(yard.crash(store))
    for current in (store, again):
        with pytest.raises(BucketStopped, match="resync"):
            current.upsert(table, B0, rows(3))
        assert list(current.stopped_buckets(table)) == [B0]
        assert current.lookup(table, B0, rows(1).select(["id"]))["id"].to_pylist() == [1]
        snapshot = current.take_snapshot(table, B0, "resync")
        assert snapshot is not None
        assert (snapshot.log_offset, snapshot.rows) == (40, 2)
    again.lift_stops(table)
    assert again.upsert(table, B0, rows(3)).start == 40
    assert again.stopped_buckets(table) == {}
    assert again.lookup(table, B0, rows(1, 3).select(["id"]))["id"].to_pylist() == [1, 3]


def test_a_partition_made_after_the_copy_begins_above_the_lake(yard: Yard, store: EmbeddedStore) -> None:
    table = yard.table(columns={"id": "BIGINT NOT NULL", "text": "STRING NOT NULL"}, partition_keys=("text",))
    store.create_table(table)
    day = Bucket("x", 0)
    assert store.guard_offsets(table, OffsetMap({day: 9})) == {day: OffsetRange(0, 9)}
    again = yard.open(yard.crash(store))
    assert again.append(table, day, rows(1)).start == 9
