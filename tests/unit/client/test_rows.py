# SPDX-License-Identifier: Apache-2.0
"""Rows brought into a table's columns: which types fit, which row is named when one does not."""

from __future__ import annotations

from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import pandas  # type: ignore[import-untyped]
import polars
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakeward.client.casts import is_fitting
from lakeward.client.columns import as_names, parse_columns
from lakeward.client.rows import fit_rows
from lakeward.errors import InvalidRequest, InvalidRows
from lakeward.model import Column, Schema, TableDescriptor, TableInfo, TablePath, new_table_id, parse_type


def table_of(columns: Any) -> TableInfo:
    descriptor = TableDescriptor(schema=Schema(columns=parse_columns(columns)))
    return TableInfo(path=TablePath("d", "t"), table_id=new_table_id(), descriptor=descriptor)


def fit(rows: Any, columns: str) -> pa.Table:
    table = table_of(columns)
    return fit_rows(rows, table, table.schema.names)


@pytest.mark.parametrize(
    ("given", "wanted", "fits"),
    [
        (pa.int8(), pa.int64(), True),
        (pa.int64(), pa.int8(), True),
        (pa.int32(), pa.float64(), True),
        (pa.float64(), pa.int64(), False),
        (pa.int64(), pa.string(), False),
        (pa.string(), pa.int64(), False),
        (pa.bool_(), pa.int8(), False),
        (pa.large_string(), pa.string(), True),
        (pa.dictionary(pa.int8(), pa.string()), pa.string(), True),
        (pa.binary(2), pa.binary(), True),
        (pa.binary(), pa.string(), False),
        (pa.int32(), pa.decimal128(10, 2), True),
        (pa.float64(), pa.decimal128(10, 2), False),
        (pa.date64(), pa.date32(), True),
        (pa.timestamp("ns"), pa.timestamp("ms"), True),
        (pa.timestamp("ms", tz="Europe/Berlin"), pa.timestamp("ms", tz="UTC"), True),
        (pa.timestamp("ms"), pa.timestamp("ms", tz="UTC"), False),
        (pa.large_list(pa.int32()), pa.list_(pa.int64()), True),
        (pa.list_(pa.string()), pa.list_(pa.int64()), False),
        (pa.struct([("x", pa.int32())]), pa.struct([("x", pa.int64()), ("y", pa.string())]), True),
        (pa.struct([("z", pa.int32())]), pa.struct([("x", pa.int64())]), False),
        (pa.null(), pa.list_(pa.int64()), True),
    ],
)
def test_types_stand_for_others_of_the_same_kind_only(given: pa.DataType, wanted: pa.DataType, fits: bool) -> None:
    assert is_fitting(given, wanted) is fits


@given(values=st.lists(st.integers(-(2**31), 2**31 - 1), min_size=1, max_size=50), wrong=st.integers(0, 49))
def test_the_first_row_that_does_not_fit_is_named(values: list[int], wrong: int) -> None:
    at = wrong % len(values)
    values[at] = 2**40
    for rows in (pa.table({"a": values}), [{"a": v} for v in values]):
        with pytest.raises(InvalidRows) as refused:
            fit(rows, "a INT")
        error = refused.value
        assert (error.row, error.column) == (at, "a")
        assert (error.__cause__, error.__suppress_context__) == (None, True), "Arrow's own trace tells nobody more"


def test_values_are_never_cut() -> None:
    for rows, columns in (
        ([{"a": Decimal("1.234")}], "a DECIMAL(10, 2)"),
        (pa.table({"a": [Decimal("1.234")]}), "a DECIMAL(10, 2)"),
        ([{"a": "abcd"}], "a CHAR(3)"),
        (pa.table({"a": pa.array([1], pa.timestamp("us"))}), "a TIMESTAMP(3)"),
        ([{"a": datetime(2024, 1, 1, microsecond=1)}], "a TIMESTAMP(3)"),
        ([{"a": [datetime(2024, 1, 1, microsecond=1)]}], "a ARRAY<TIMESTAMP(0)>"),
        ([{"a": {"x": time(1, 2, 3, 4)}}], "a ROW<x TIME(3)>"),
        ([{"a": b"abc"}], "a BINARY(2)"),
        ([{"a": 1.5}], "a BIGINT"),
        ([{"a": 1}, {"a": 1.5}], "a BIGINT"),
        ([{"a": [1, 1.5]}], "a ARRAY<INT>"),
        ([{"a": datetime(2024, 1, 1, 12)}], "a DATE"),
        ([{"a": b"x"}], "a STRING"),
        ([{"a": "x"}], "a BYTES"),
        ([{"a": datetime(2024, 1, 1)}], "a TIMESTAMP_LTZ(3)"),
        ([{"a": datetime(2024, 1, 1, tzinfo=UTC)}], "a TIMESTAMP(3)"),
        ([{"a": True}], "a INT"),
        ([{"a": 1}], "a BOOLEAN"),
    ):
        with pytest.raises(InvalidRows):
            fit(rows, columns)


def test_what_is_missing_is_null_where_null_is_allowed() -> None:
    fitted = fit(pa.table({"b": ["x"]}), "a INT, b STRING, c ARRAY<INT>")
    assert fitted.to_pylist() == [{"a": None, "b": "x", "c": None}]
    assert fit(pa.table({"a": pa.nulls(2)}), "a TIMESTAMP(3)").num_rows == 2
    with pytest.raises(InvalidRows, match="row 0, column a"):
        fit(pa.table({"b": ["x"]}), "a INT NOT NULL, b STRING")


def test_python_values_of_the_right_kind_are_taken() -> None:
    row = {
        "a": 3, "b": Decimal("1.5"), "c": Decimal(2), "d": 2, "e": bytearray(b"x"), "f": {"k": 1}, "g": [("k", [1])],
        "h": {"x": 1}, "i": date(2024, 1, 1), "j": datetime(2024, 1, 1, tzinfo=UTC), "k": [], "l": 7,
    }  # fmt: skip
    columns = (
        "a TINYINT, b DECIMAL(10, 2), c DECIMAL(10, 2), d DOUBLE, e BYTES, f MAP<STRING, INT>, g MAP<STRING, "
        "ARRAY<INT>>, "
        "h ROW<x INT, y STRING>, i DATE, j TIMESTAMP_LTZ(0), k ARRAY<STRING>, l DECIMAL(5, 0)"
    )
    (back,) = fit([row], columns).to_pylist()
    assert (back["a"], back["b"], back["d"], back["h"], back["l"]) == (
        3,
        Decimal("1.50"),
        2.0,
        {"x": 1, "y": None},
        Decimal(7),
    )
    assert fit([{}, row, {"a": None}], columns).num_rows == 3


@pytest.mark.parametrize(
    ("columns", "fine", "wrong"),
    [
        ("a ARRAY<INT NOT NULL>", [1], [1, None]),
        ("a ROW<x INT NOT NULL, y INT>", {"x": 1}, {"y": 1}),
        ("a MAP<STRING, INT NOT NULL>", [("k", 1)], [("k", None)]),
        ("a ARRAY<ROW<x INT NOT NULL>>", [None, {"x": 1}], [{"x": None}]),
    ],
)
def test_nulls_inside_values_are_found_too(columns: str, fine: Any, wrong: Any) -> None:
    assert fit([{"a": fine}, {"a": None}, {"a": fine}], columns).num_rows == 3
    with pytest.raises(InvalidRows) as refused:
        fit([{"a": fine}, {"a": None}, {"a": wrong}], columns)
    assert (refused.value.row, refused.value.column) == (2, "a")


def test_zones_are_brought_to_utc() -> None:
    moment = datetime(2024, 7, 1, 12, tzinfo=UTC)
    given = pa.table({"a": pa.array([moment], pa.timestamp("us", tz="Europe/Berlin"))})
    assert fit(given, "a TIMESTAMP_LTZ(3)").column("a").to_pylist() == [moment]


@pytest.mark.parametrize("rows", [5, "text", b"bytes", [1, 2], [{"a": 1}, 2]])
def test_what_are_no_rows_is_said(rows: Any) -> None:
    with pytest.raises(InvalidRequest, match="neither Arrow data nor a list of dicts"):
        fit(rows, "a INT")


def test_columns_are_written_in_four_ways() -> None:
    wanted = (
        Column(name="a b", type=parse_type("INT NOT NULL"), comment="it's"),
        Column(name="c", type=parse_type("ARRAY<STRING>")),
    )
    assert parse_columns("`a b` INT NOT NULL COMMENT 'it''s', c ARRAY<STRING>,") == wanted
    assert parse_columns(wanted) == wanted
    assert parse_columns(Schema(columns=wanted)) == wanted
    assert parse_columns({"c": "array<string>"}) == wanted[1:]
    assert parse_columns(pa.schema([pa.field("c", pa.list_(pa.string()))])) == wanted[1:]
    assert as_names("a, b") == as_names(["a", "b"]) == ("a", "b")
    for wrong in (7, [1], "a NOTATYPE", ""):
        with pytest.raises(InvalidRequest):
            parse_columns(wrong)


def test_what_frames_keep_in_other_types_is_taken_where_it_is_exact() -> None:
    moments = pandas.to_datetime(["2026-01-31 12:00", None]).tz_localize("UTC")
    gaps = pandas.DataFrame({"n": [1.0, None], "at": moments, "day": ["2026-01-31", None]})
    fitted = fit(gaps, "n BIGINT, at TIMESTAMP(3), day DATE")
    first = {"n": 1, "at": datetime(2026, 1, 31, 12), "day": datetime(2026, 1, 31).date()}
    assert fitted.to_pylist() == [first, {"n": None, "at": None, "day": None}]
    frame = polars.DataFrame({"n": [1.0, float("nan")], "at": ["2026-01-31T12:00:00.5", None]})
    expected = [{"n": 1, "at": datetime(2026, 1, 31, 12, 0, 0, 500_000)}, {"n": None, "at": None}]
    for rows in (frame, frame.lazy()):
        assert fit(rows, "n BIGINT, at TIMESTAMP(3)").to_pylist() == expected


@pytest.mark.parametrize(
    ("values", "columns", "row", "words"),
    [
        (pa.array([1.0, 1.5]), "a BIGINT", 1, "1.5 is no BIGINT"),
        (pa.array([1.0, 2.0**40]), "a INT", 1, "is no INT"),
        (pa.array([float("nan")]), "a BIGINT NOT NULL", 0, "null in a NOT NULL column"),
        (pa.array(["2026-01-31 12:00", "noon"]), "a TIMESTAMP(3)", 1, "'noon' is no TIMESTAMP"),
        (pa.array(["2026-01-31T12:00:00Z"]), "a TIMESTAMP(3)", 0, "is no TIMESTAMP"),
        (pa.array(["2026-01-31 12:00:00"]), "a TIMESTAMP_LTZ(3)", 0, "is no TIMESTAMP_LTZ"),
        (pa.array([0], pa.timestamp("ms", "Europe/Berlin")), "a TIMESTAMP(3)", 0, "tz_convert('UTC')"),
        (pa.array([0], pa.timestamp("ms")), "a TIMESTAMP_LTZ(3)", 0, "tz_localize('UTC')"),
    ],
)
def test_what_would_lose_something_is_refused_by_row(values: pa.Array, columns: str, row: int, words: str) -> None:
    with pytest.raises(InvalidRows) as refused:
        fit(pa.table({"a": values}), columns)
    assert (refused.value.row, words in refused.value.message) == (row, True), refused.value.message


def nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize("levels", [5_000, 100_000])
@pytest.mark.parametrize("columns", ["v array<array<bigint>>", "v bigint", "v string", "v map<string, bigint>"])
def test_values_that_are_nested_too_deeply_are_refused(levels: int, columns: str) -> None:
    with pytest.raises(InvalidRows, match="row 1, column v"):
        fit([{"v": None}, {"v": nested(levels)}], columns)


@pytest.mark.parametrize("begin", ["ARRAY<", "ROW<a ", "MAP<STRING NOT NULL, "])
def test_types_that_are_nested_too_deeply_are_refused(begin: str) -> None:
    parse_type(begin * 100 + "INT" + ">" * 100)
    for levels in (101, 5_000, 100_000):
        with pytest.raises(InvalidRequest, match="up to 100 levels") as refused:
            parse_type(begin * levels + "INT" + ">" * levels)
        assert len(str(refused.value)) < 2_000
