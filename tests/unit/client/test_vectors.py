# SPDX-License-Identifier: Apache-2.0
"""VECTOR(N): how it is written, and what is refused in which words."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from lakeward.cli.files.csvtext import convert_cells
from lakeward.cli.files.rowprint import plan_printer
from lakeward.client.jsonvalues import plan_converter
from lakeward.client.rows import fit_rows
from lakeward.errors import InvalidRequest, InvalidRows, InvalidTable
from lakeward.hot.embedded.kv.structcodec import StructCodec
from lakeward.model import (
    Column,
    Schema,
    TableDescriptor,
    TableId,
    TableInfo,
    TablePath,
    VectorType,
    check_new_table,
    from_arrow_field,
    parse_type,
    to_arrow_type,
)
from lakeward.read.arrow import conform

VECTOR = VectorType(length=3)


def table_of(text: str) -> TableInfo:
    descriptor = TableDescriptor(schema=Schema(columns=(Column(name="c", type=parse_type(text)),)))
    return TableInfo(path=TablePath("db", "t"), table_id=TableId("1"), descriptor=descriptor)


@pytest.mark.parametrize(("text", "words"), [("VECTOR", "number of its elements"), ("VECTOR(0)", "1 or more")])
def test_a_vector_says_how_long_it_is(text: str, words: str) -> None:
    assert parse_type("vector(768) not null") == VectorType(length=768, nullable=False)
    with pytest.raises(InvalidRequest, match=words):
        parse_type(text)


@pytest.mark.parametrize("given", [[{"c": [1.0, 2.0]}], pa.table({"c": [[1.0, 2.0]]})], ids=["dicts", "arrow"])
def test_another_length_is_refused_in_words(given: Any) -> None:
    with pytest.raises(InvalidRows, match=r"it has 2 elements, and VECTOR\(3\) takes 3"):
        fit_rows(given, table_of("VECTOR(3)"), ["c"])


def test_rows_of_any_list_fit_and_a_null_inside_does_not() -> None:
    wide = pa.table({"c": pa.array([[1, 2, 3], None], pa.large_list(pa.float64()))})
    fitted = fit_rows(wide, table_of("VECTOR(3)"), ["c"]).column("c")
    assert fitted.type == to_arrow_type(VECTOR)
    assert fitted.to_pylist() == [[1.0, 2.0, 3.0], None]
    with pytest.raises(InvalidRows, match="a null inside") as refused:
        fit_rows([{"c": None}, {"c": [1.0, None, 3.0]}], table_of("VECTOR(3)"), ["c"])
    assert refused.value.row == 1


def test_a_vector_is_a_column_and_no_key() -> None:
    with pytest.raises(InvalidTable, match="a column of its own"):
        check_new_table("db.t", table_of("ROW<v VECTOR(3)>").descriptor)
    columns = (Column(name="c", type=VECTOR.with_nullable(False)),)
    with pytest.raises(InvalidTable, match="cannot be a key"):
        check_new_table("db.t", TableDescriptor(schema=Schema(columns=columns), primary_key=("c",)))


def test_arrow_of_others_becomes_a_vector_or_an_array() -> None:
    assert from_arrow_field(pa.field("c", pa.list_(pa.float32(), 3))) == VECTOR
    assert from_arrow_field(pa.field("c", pa.list_(pa.float64(), 3))) == parse_type("ARRAY<DOUBLE>")
    inner = pa.struct([("v", pa.list_(pa.float32(), 3))])
    assert from_arrow_field(pa.field("c", inner)) == parse_type("ROW<v ARRAY<FLOAT>>")


def test_json_and_csv() -> None:
    kind = to_arrow_type(VECTOR)
    assert plan_printer(kind)(plan_converter(kind)([1, "NaN", 2.5])) == [1, "NaN", 2.5]
    cells, bad = convert_cells(pa.array(["[1, 2, 3]", None, "[1, 2]"]), kind)
    assert cells.to_pylist()[:2] == [[1.0, 2.0, 3.0], None]
    assert [(b.row, b.problem.reason) for b in bad] == [(2, "'[1, 2]' is no list of 3 numbers")]


def test_a_part_of_a_larger_column_is_stored_as_it_is() -> None:
    values = pa.array([[9, 9, 9], [1, 2, 3], None, [4, 5, 6]], to_arrow_type(VECTOR))
    nested = pa.FixedSizeListArray.from_arrays(pa.array([9, 9, 9, 1, 2, 3], pa.float32())[3:], 3)
    codec = StructCodec([pa.field("c", values.type)])
    assert codec.decode(codec.encode([values[1:]]))[0].to_pylist() == [[1, 2, 3], None, [4, 5, 6]]
    assert codec.decode(codec.encode([nested.cast(values.type)]))[0].to_pylist() == [[1, 2, 3]]


def test_a_list_of_a_lake_without_vectors_is_read_back_as_one() -> None:
    stored = pa.record_batch({"c": pa.array([[1, 2, 3], None], pa.list_(pa.field("element", pa.float32())))})
    schema = pa.schema([("c", to_arrow_type(VECTOR))])
    assert conform(stored, schema).equals(pa.record_batch([pa.array([[1, 2, 3], None], schema[0].type)], schema))
