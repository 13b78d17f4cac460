# SPDX-License-Identifier: Apache-2.0
"""Partitions: made on write, by call and ahead of time; dropped by call and when they expire."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pyarrow as pa
import pytest

from lakeward.config.options import TimeUnit
from lakeward.errors import InvalidRequest, PartitionExpired, PartitionNotFound
from lakeward.hot.embedded.log.logoptions import AutoPartition
from lakeward.hot.embedded.partitions import is_expired, number_now, number_of, plan_precreate, value_of
from lakeward.hot.embedded.store import EmbeddedStore
from lakeward.model import Bucket, TableInfo
from lakeward_testing.clock import ManualClock
from lakeward_testing.faults import Faults
from tests.unit.hot.embedded.yard import StubGuard, Yard, read

AUTO = {"table.auto-partition.enabled": "true", "table.auto-partition.num-retention": "2"}


def events(yard: Yard, **properties: str) -> TableInfo:
    columns = {"id": "BIGINT NOT NULL", "day": "STRING NOT NULL"}
    return yard.table(columns=columns, partition_keys=("day",), buckets=2, properties=properties)


def row(id: int, day: str) -> pa.RecordBatch:
    return pa.record_batch({"id": pa.array([id]), "day": pa.array([day])})


def ms(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000)


def test_made_on_write_and_by_call_and_kept(yard: Yard, store: EmbeddedStore) -> None:
    table = events(yard)
    store.create_table(table)
    assert store.freeze(table) == {}
    store.append(table, Bucket("a", 1), row(1, "a"))
    store.create_partition(table, "b")
    store.create_partition(table, "b")
    again = yard.open(yard.crash(store))
    assert list(again.partitions(table)) == ["a", "b"]
    assert sorted(again.freeze(table)) == [Bucket("a", 0), Bucket("a", 1), Bucket("b", 0), Bucket("b", 1)]
    assert read(again, table, Bucket("a", 1)) == [(0, 1)]
    with pytest.raises(PartitionNotFound):
        again.read_log(table, Bucket("c", 0), 0, 0)


@pytest.mark.parametrize("name", ["a$b", "..", "a/b", "", "x\x00y"])
def test_names_cannot_leave_the_folder(yard: Yard, store: EmbeddedStore, name: str) -> None:
    table = events(yard)
    store.create_table(table)
    with pytest.raises(InvalidRequest):
        store.create_partition(table, name)


def test_there_is_a_limit(yard: Yard) -> None:
    yard.settings["max.partition.num"] = "2"
    store, table = yard.open(), events(yard)
    store.create_table(table)
    for name in ("a", "b"):
        store.create_partition(table, name)
    with pytest.raises(InvalidRequest, match=r"max\.partition\.num"):
        store.append(table, Bucket("c", 0), row(1, "c"))


def test_a_dropped_partition_never_gives_its_offsets_again(yard: Yard, store: EmbeddedStore) -> None:
    table = events(yard)
    store.create_table(table)
    for n in range(5):
        store.append(table, Bucket("a", 0), row(n, "a"))
    with Faults() as faults:
        faults.arm("hotlog.before-drop-partition")
        store.drop_partition(table, "a")
        crashed = yard.crash(store)
    assert list((crashed / "tables").glob("*/*"))
    store.create_partition(table, "a")
    assert store.append(table, Bucket("a", 0), row(9, "a")).start == 5
    again = yard.open(crashed)
    assert list(again.partitions(table)) == []
    assert not list((crashed / "tables").glob("*/*")), "the drop was completed"
    with pytest.raises(PartitionNotFound):
        again.drop_partition(table, "a")
    again.create_partition(table, "a")
    assert again.freeze(table)[Bucket("a", 0)].start == 5
    assert again.append(table, Bucket("a", 0), row(9, "a")).start == 5
    assert read(again, table, Bucket("a", 0)) == [(5, 9)]


@pytest.mark.parametrize(
    ("unit", "first", "then"),
    [
        (TimeUnit.YEAR, "1999", "2000"),
        (TimeUnit.QUARTER, "20234", "20241"),
        (TimeUnit.MONTH, "202312", "202401"),
        (TimeUnit.DAY, "20240228", "20240229"),
        (TimeUnit.HOUR, "2023123123", "2024010100"),
    ],
)
def test_units_follow_one_another(unit: TimeUnit, first: str, then: str) -> None:
    assert number_of(unit, then) == number_of(unit, first) + 1
    assert value_of(unit, number_of(unit, first) + 1) == then


@pytest.mark.parametrize(
    ("unit", "value"),
    [
        (TimeUnit.DAY, "20230229"),
        (TimeUnit.DAY, "2023-02-1"),
        (TimeUnit.QUARTER, "20235"),
        (TimeUnit.HOUR, "2023010124"),
        (TimeUnit.MONTH, "202313"),
    ],
)
def test_what_is_no_time_is_refused(unit: TimeUnit, value: str) -> None:
    with pytest.raises(ValueError):
        number_of(unit, value)


def test_the_present_depends_on_the_zone() -> None:
    at = ms("2026-11-15T23:30:00")
    for unit, zone, value in (
        (TimeUnit.DAY, "UTC", "20261115"),
        (TimeUnit.DAY, "Asia/Tokyo", "20261116"),
        (TimeUnit.HOUR, "America/New_York", "2026111518"),
        (TimeUnit.QUARTER, "UTC", "20264"),
        (TimeUnit.YEAR, "UTC", "2026"),
        (TimeUnit.MONTH, "UTC", "202611"),
    ):
        assert value_of(unit, number_now(AutoPartition(key=0, unit=unit, time_zone=zone), at)) == value


def test_precreation_and_expiry_by_time() -> None:
    auto = AutoPartition(key=0, unit=TimeUnit.DAY, precreate=3, retention=3)
    at = ms("2024-11-11T12:00:00")
    assert plan_precreate(auto, 1, {"20241111"}, at) == ["20241112", "20241113"]
    assert plan_precreate(auto, 2, set(), at) == []
    kept = {d: is_expired(auto, "t", d, at) for d in ("20241107", "20241108", "20241111", "20241120")}
    assert kept == {"20241107": True, "20241108": False, "20241111": False, "20241120": False}
    assert not is_expired(replace(auto, retention=0), "t", "19990101", at)


def test_times_of_a_column_are_made_ahead_and_expire() -> None:
    at = ms("2024-11-11T23:30:00")
    names = {
        TimeUnit.YEAR: ["2024", "2025"],
        TimeUnit.MONTH: ["2024-11", "2024-12"],
        TimeUnit.DAY: ["2024-11-11", "2024-11-12"],
        TimeUnit.HOUR: ["2024-11-11-23", "2024-11-12-00"],
    }
    for unit, expected in names.items():
        auto = AutoPartition(key=0, unit=unit, precreate=2, retention=1, by_time=True)
        assert plan_precreate(auto, 1, set(), at) == expected
        assert plan_precreate(auto, 1, {expected[0]}, at) == expected[1:]
    auto = AutoPartition(key=0, unit=TimeUnit.DAY, retention=1, by_time=True, time_zone="Asia/Tokyo")
    old = {d: is_expired(auto, "t", d, at) for d in ("1969-12-31", "2024-11-10", "2024-11-11", "2030-01-01")}
    assert old == {"1969-12-31": True, "2024-11-10": True, "2024-11-11": False, "2030-01-01": False}
    with pytest.raises(InvalidRequest, match="it is no day"):
        is_expired(auto, "t", "20241111", at)


def test_a_table_by_the_day_of_a_column_takes_days_and_lets_the_oldest_go(yard: Yard, guard: StubGuard) -> None:
    yard.clock = ManualClock(ms("2026-11-15T12:00:00"))
    columns = {"id": "BIGINT", "ts": "TIMESTAMP_LTZ(6) NOT NULL"}
    auto = {"table.auto-partition.enabled": "true", "table.auto-partition.num-retention": "1"}
    store, table = yard.open(), yard.table(columns=columns, partition_keys=("day(ts)",), properties=auto)
    store.set_retention(guard)
    store.create_table(table)
    store.upkeep.tend_partitions()
    assert list(store.partitions(table)) == ["2026-11-15", "2026-11-16"]
    for name in ("2026-11-31", "20261115", "2026-11-15$eu"):
        with pytest.raises(InvalidRequest):
            store.create_partition(table, name)
    with pytest.raises(PartitionExpired):
        store.create_partition(table, "2026-11-13")
    store.create_partition(table, "2026-11-14")
    yard.clock.advance(86_400)
    store.upkeep.tend_partitions()
    assert list(store.partitions(table)) == ["2026-11-15", "2026-11-16", "2026-11-17"]


def test_an_expired_partition_waits_for_the_lake_and_takes_no_writes(yard: Yard, guard: StubGuard) -> None:
    yard.clock = ManualClock(ms("2026-11-15T12:00:00"))
    store, table = yard.open(), events(yard, **AUTO)
    store.set_retention(guard)
    store.create_table(table)
    store.upkeep.tend_partitions()
    assert list(store.partitions(table)) == ["20261115", "20261116"]
    old = Bucket("20261115", 0)
    store.append(table, old, row(1, "20261115"))
    yard.clock.advance(3 * 86_400)
    with pytest.raises(PartitionExpired):
        store.append(table, old, row(2, "20261115"))
    with pytest.raises(PartitionExpired):
        store.create_partition(table, "20200101")
    for lake, held, enabled in ((None, None, True), (0, None, True), (1, 0, True)):
        guard.lake = {} if lake is None else {old: lake}
        guard.held = {} if held is None else {old: held}
        guard.enabled = enabled
        store.upkeep.tend_partitions()
        assert "20261115" in store.partitions(table), (lake, held)
    assert read(store, table, old) == [(0, 1)], "reads go on until then"
    guard.held = {}
    store.upkeep.tend_partitions()
    assert list(store.partitions(table)) == ["20261116", "20261118", "20261119"]
    assert store.upkeep.failures == {}


def test_without_a_lake_time_alone_counts(yard: Yard, guard: StubGuard) -> None:
    yard.clock = ManualClock(ms("2026-11-15T12:00:00"))
    store, table = yard.open(), events(yard, **AUTO)
    store.create_table(table)
    store.append(table, Bucket("20261115", 0), row(1, "20261115"))
    yard.clock.advance(3 * 86_400)
    store.upkeep.tend_partitions()
    assert "20261115" in store.partitions(table), "nobody has said yet what the lake has"
    guard.enabled = False
    store.set_retention(guard)
    store.upkeep.tend_partitions()
    assert "20261115" not in store.partitions(table)


def test_partitions_of_an_auto_table_are_times(yard: Yard, store: EmbeddedStore) -> None:
    table = events(yard, **AUTO)
    store.create_table(table)
    with pytest.raises(InvalidRequest, match="yyyyMMdd"):
        store.append(table, Bucket("today", 0), row(1, "today"))
