# SPDX-License-Identifier: Apache-2.0
"""Decimals become what they say or are refused: Arrow alone makes other numbers of some, or ends the process."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lakeward.client.jsonvalues import plan_converter
from lakeward.client.rows import fit_rows
from lakeward.errors import InvalidRows
from lakeward.model import cast_column, cast_values, parse_decimal, parse_number
from tests.unit.client.test_rows import table_of

KIND = pa.decimal128(38, 10)
TOO_FINE = ("1e-999999999", "0e-999999999", "1e-60", "0." + "9" * 5_000, "0." + "9" * 40)


@given(st.from_regex(r"[+-]?[0-9]{1,40}(\.[0-9]{0,40})?(e-?[0-9]{1,2})?", fullmatch=True), st.integers(0, 38))
@example("8323555416124156774155171.59", 25)
@example("5262484285473.59186095052541311283582142", 25)
def test_a_decimal_is_exact_or_refused(text: str, scale: int) -> None:
    kind = pa.decimal128(38, scale)
    conversions: tuple[Callable[[], Any], ...] = (
        lambda: cast_column(pa.array([text]), kind)[0].as_py(),
        lambda: cast_column(pa.chunked_array([[text]]), kind)[0].as_py(),
        lambda: pa.scalar(parse_decimal(text), kind).as_py(),
    )
    for convert in conversions:
        try:
            converted = convert()
        except (ValueError, pa.ArrowException):
            continue
        assert converted == Decimal(text)


@pytest.mark.parametrize("text", TOO_FINE)
@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())])
def test_text_of_a_lake_file_that_arrow_reads_beyond_its_memory_for(text: str, kind: pa.DataType) -> None:
    with pytest.raises(pa.ArrowInvalid):
        cast_values(pa.array([None, text]).cast(kind), KIND)


@pytest.mark.parametrize("text", [*TOO_FINE, "1_000", "NaN", "Infinity", "", " 1"])
def test_json_text_of_a_decimal_column(text: str) -> None:
    with pytest.raises(ValueError, match=r"decimal number|at most 38|too long"):
        plan_converter(KIND)(text)


@pytest.mark.parametrize("text", TOO_FINE[:3])
def test_rows_with_such_decimals_are_refused_wherever_they_stand(text: str) -> None:
    number = Decimal(text)
    table = table_of("d DECIMAL(38, 10), l ARRAY<DECIMAL(38, 10)>, m MAP<STRING, ROW<x DECIMAL(38, 10)>>")
    for row in ({"d": number}, {"l": [None, number]}, {"m": {"a": {"x": number}}}):
        with pytest.raises(InvalidRows, match="at most 38 are allowed") as refused:
            fit_rows([{}, row], table, table.schema.names)
        assert refused.value.row == 1


def test_numbers_of_thousands_of_digits_are_not_read() -> None:
    assert parse_number("1" * 300 + ".5") == Decimal("1" * 300 + ".5")
    with pytest.raises(ValueError, match="too long"):
        parse_number("0." + "1" * 10_000)


def test_texts_of_all_shapes_that_fit() -> None:
    texts = ["1", "+1.5", "-0.25", ".5", "5.", "1e3", "1.5E-2", None, "00012.3400"]
    expected = [None if t is None else Decimal(t) for t in texts]
    assert cast_column(pa.array(texts), KIND).to_pylist() == expected
