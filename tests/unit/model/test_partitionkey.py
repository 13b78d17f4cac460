# SPDX-License-Identifier: Apache-2.0
"""Partitions by time: the same number for every value as PyIceberg's transforms give, and back."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg import types as ice
from pyiceberg.transforms import DayTransform, HourTransform, MonthTransform, YearTransform

from lakeward.bucketing.pieces import split_partitions
from lakeward.errors import InvalidRequest, InvalidRows, InvalidTable
from lakeward.lake.satisfiable import may_match
from lakeward.model import (
    Column,
    PartitionKey,
    PartitionUnit,
    Schema,
    TableDescriptor,
    TableId,
    TableInfo,
    TablePath,
    parse_type,
)

TRANSFORMS: dict[str, Any] = {
    "year": YearTransform(),
    "month": MonthTransform(),
    "day": DayTransform(),
    "hour": HourTransform(),
}
UNITS = list(PartitionUnit)
MICROS = 10**6
FIRST = int((datetime(1, 1, 1, tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1))
LAST = int((datetime.max.replace(tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1))
MOMENTS = st.one_of(
    st.integers(FIRST, LAST),
    st.integers(-3 * 366 * 24, 3 * 366 * 24).flatmap(
        lambda hour: st.sampled_from([-1, 0, 1]).map(lambda near: hour * 3600 * MICROS + near)
    ),
)


def texts(unit: PartitionUnit, values: list[Any], kind: pa.DataType) -> list[str | None]:
    known: list[str | None] = PartitionKey("ts", unit).texts(pa.chunked_array([pa.array(values, kind)])).to_pylist()
    return known


@pytest.mark.parametrize("zone", [None, "UTC"])
@given(moments=st.lists(MOMENTS, min_size=1), unit=st.sampled_from(UNITS))
def test_timestamps_have_the_numbers_of_icebergs_transforms(
    zone: str | None, moments: list[int], unit: PartitionUnit
) -> None:
    transform = TRANSFORMS[unit].transform(ice.TimestamptzType() if zone else ice.TimestampType())
    kind = pa.timestamp("us", zone)
    names = texts(unit, moments, kind)
    assert [unit.number(str(n)) for n in names] == [transform(m) for m in moments]
    for moment, name in zip(moments, names, strict=True):
        assert PartitionKey("ts", unit).is_in(str(name), pa.array([moment], kind)).all()


@given(days=st.lists(st.integers(FIRST // MICROS // 86400, LAST // MICROS // 86400), min_size=1))
@pytest.mark.parametrize("unit", [PartitionUnit.YEAR, PartitionUnit.MONTH, PartitionUnit.DAY])
def test_dates_have_the_numbers_of_icebergs_transforms(unit: PartitionUnit, days: list[int]) -> None:
    transform = TRANSFORMS[unit].transform(ice.DateType())
    assert [unit.number(str(n)) for n in texts(unit, days, pa.date32())] == [transform(d) for d in days]


@pytest.mark.parametrize("per_second", ["s", "ms", "us", "ns"])
def test_every_precision_is_floored_before_1970_too(per_second: str) -> None:
    kind = pa.timestamp(per_second, "UTC")
    assert [texts(unit, [-1, None, 0], kind) for unit in UNITS] == [
        ["1969", None, "1970"],
        ["1969-12", None, "1970-01"],
        ["1969-12-31", None, "1970-01-01"],
        ["1969-12-31-23", None, "1970-01-01-00"],
    ]


@given(number=st.integers(-30_000, 30_000), unit=st.sampled_from(UNITS), off=st.integers(-2, 2))
def test_a_filter_leaves_the_partition_of_its_value_and_lets_out_the_others(
    number: int, unit: PartitionUnit, off: int
) -> None:
    number = number % 8000 - 1900 if unit is PartitionUnit.YEAR else number
    number = number % 60_000 - 20_000 if unit is PartitionUnit.MONTH else number
    moment = int(np.array(number, np.int64).astype(unit.dtype).astype("M8[us]").astype(np.int64))
    kind = pa.timestamp("us", "UTC")
    schema, key = pa.schema([("ts", kind)]), PartitionKey("ts", unit)
    fact = key.fact(unit.text(number + off), kind)
    assert may_match(pc.field("ts") == pa.scalar(moment, kind), schema, [fact]) == [off == 0]
    assert may_match(pc.field("ts") < pa.scalar(moment, kind), schema, [fact]) == [off < 0]
    assert may_match(pc.field("ts") >= pa.scalar(moment, kind), schema, [fact]) == [off >= 0]


def test_the_first_and_last_moments_of_a_type_are_in_a_partition() -> None:
    kind = pa.timestamp("ns")
    ends = pa.array([-(2**63) + 1, 2**63 - 1], kind)
    for unit in UNITS:
        names = PartitionKey("ts", unit).texts(pa.chunked_array([ends])).to_pylist()
        for name, mask in zip(names, ([True, False], [False, True]), strict=True):
            assert PartitionKey("ts", unit).is_in(str(name), ends).tolist() == mask


@pytest.mark.parametrize(
    "text",
    ["", "2026-13-01", "2026-02-30", "2026-1-1", "NaT", "today", "2026", "2026-11-18T05", "0000-01-01", "x" * 10],
)
def test_a_text_that_is_no_day_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest, match="it is no day of the years 0001 to 9999, such as 2026-11-18"):
        PartitionUnit.DAY.number(text)


def descriptor(
    *keys: str, primary_key: tuple[str, ...] = (), kind: str = "TIMESTAMP_LTZ(6) NOT NULL"
) -> TableDescriptor:
    columns = (
        Column(name="id", type=parse_type("BIGINT NOT NULL")),
        Column(name="ts", type=parse_type(kind)),
        Column(name="region", type=parse_type("STRING NOT NULL")),
    )
    return TableDescriptor(schema=Schema(columns=columns), primary_key=primary_key, partition_keys=keys)


def table_info(table: TableDescriptor) -> TableInfo:
    return TableInfo(path=TablePath.parse("a.b"), table_id=TableId("1"), descriptor=table)


@pytest.mark.parametrize("spelled", ["day(ts)", "days(ts)", "DAY( ts )", "day(`ts`)"])
def test_a_key_is_spelled_in_one_way_and_survives_json(spelled: str) -> None:
    table = descriptor(spelled, "region")
    assert table.partition_keys == ("day(ts)", "region")
    assert table.partition_columns == ("ts", "region")
    assert TableDescriptor.from_json(table.to_json()) == table


def test_a_column_that_is_named_like_a_call_is_a_column() -> None:
    columns = (Column(name="ts", type=parse_type("DATE")), Column(name="day(ts)", type=parse_type("STRING")))
    table = TableDescriptor(schema=Schema(columns=columns), partition_keys=("day(ts)",))
    assert table.partitioning == (PartitionKey("day(ts)"),)


@pytest.mark.parametrize(
    ("keys", "primary_key", "kind", "words"),
    [
        (("day(ts)",), ("id",), "TIMESTAMP(6) NOT NULL", "add ts to the key, or do without these partitions"),
        (("day(ts)", "month(ts)"), (), "TIMESTAMP(6)", "a column is named twice"),
        (("hour(ts)",), (), "DATE", "a DATE has no hours: say day, month or year"),
        (("day(region)",), (), "DATE", "of a DATE, TIMESTAMP or TIMESTAMP_LTZ column, and region is STRING"),
        (("quarter(ts)",), (), "DATE", r"year\(c\), month\(c\), day\(c\) or hour\(c\)"),
        (("day(gone)",), (), "DATE", "no such column"),
    ],
)
def test_what_cannot_be_is_refused_with_the_way_out(
    keys: tuple[str, ...], primary_key: tuple[str, ...], kind: str, words: str
) -> None:
    with pytest.raises(InvalidTable, match=words):
        descriptor(*keys, primary_key=primary_key, kind=kind)


def test_bucket_keys_of_a_pk_table_leave_the_time_out_unless_it_is_the_whole_key() -> None:
    assert descriptor("day(ts)", primary_key=("id", "ts")).bucket_keys == ("id",)
    assert descriptor("day(ts)", primary_key=("ts",)).bucket_keys == ("ts",)
    with pytest.raises(InvalidTable, match="it needs a column that is no partition key"):
        descriptor("region", primary_key=("region",))


def test_rows_go_to_the_partition_of_their_time() -> None:
    info = table_info(descriptor("day(ts)", "region"))
    kind = pa.timestamp("us", "UTC")
    moments = pa.array([-1, 0, -1, 86_400 * MICROS], kind)
    rows = pa.table({"id": range(4), "ts": moments, "region": ["eu", "eu", "eu", "us"]})
    parts = {name: part["id"].to_pylist() for name, part in split_partitions(info, rows)}
    assert parts == {"1969-12-31$eu": [0, 2], "1970-01-01$eu": [1], "1970-01-02$us": [3]}
    late = rows.set_column(1, "ts", pa.array([0, 0, LAST + 1, 0], kind))
    with pytest.raises(InvalidRows, match=r"row 2, column day\(ts\), region: .*years 0001 to 9999"):
        list(split_partitions(info, late))
    with pytest.raises(InvalidRows, match="row 1, column ts: null in a partition key"):
        list(split_partitions(info, rows.set_column(1, "ts", pa.array([0, None, 0, 0], kind))))


def test_dates_are_partitioned_by_month() -> None:
    info = table_info(descriptor("month(ts)", kind="DATE NOT NULL"))
    rows = pa.table({"id": [1, 2], "ts": [date(1969, 2, 28), date(2024, 2, 29)], "region": ["a", "b"]})
    assert [name for name, _ in split_partitions(info, rows)] == ["1969-02", "2024-02"]
