# SPDX-License-Identifier: Apache-2.0
"""Every type of the table, through everything that handles types or values. A type that something lacks fails here."""

from __future__ import annotations

import math
from typing import Any

import pyarrow as pa
import pytest

from lakeward.bucketing import assign
from lakeward.bucketing.assign import find_reason
from lakeward.changelog.rowdiff import altered_offsets
from lakeward.client.rows import fit_rows
from lakeward.errors import UnsupportedType
from lakeward.hot.embedded.kv.keycodec import KeyCodec
from lakeward.hot.embedded.kv.structcodec import StructCodec
from lakeward.hot.fluss.tables import parse_type as parse_fluss
from lakeward.lake.iceberg.meta.types import to_arrow_type as iceberg_to_arrow
from lakeward.lake.iceberg.meta.types import to_iceberg_type
from lakeward.model import (
    OFFSET,
    TYPES,
    BucketFunction,
    Column,
    Schema,
    TableDescriptor,
    TableId,
    TableInfo,
    TablePath,
    TypeRow,
    from_arrow_field,
    parse_type,
    to_arrow_field,
    to_arrow_type,
)
from lakeward.model import types as model
from lakeward.read.spark.schema import spark_type

EACH = pytest.mark.parametrize("row", TYPES, ids=lambda row: row.cls.__name__)


def values_of(row: TypeRow) -> pa.Array:
    return pa.array([*row.values, None], to_arrow_type(row.example))


def same(left: Any, right: Any) -> bool:
    """Equal, floats by bits."""
    if isinstance(left, float) and isinstance(right, float):
        return (math.isnan(left) and math.isnan(right)) or (
            left == right and math.copysign(1, left) == math.copysign(1, right)
        )
    if isinstance(left, list | tuple) and isinstance(right, list | tuple):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(same(left[k], right[k]) for k in left)
    return bool(left == right)


def concrete(kind: type[model.DataType]) -> set[type[model.DataType]]:
    children = {c for sub in kind.__subclasses__() for c in concrete(sub)}
    return children | ({kind} if "keyword" in vars(kind) else set())


def test_every_type_has_a_row() -> None:
    assert {row.cls for row in TYPES} == concrete(model.DataType)


@EACH
def test_sql(row: TypeRow) -> None:
    assert parse_type(str(row.example)) == row.example
    for word in (row.cls.keyword, *row.synonyms):
        assert type(parse_type(str(row.example).replace(row.cls.keyword, word, 1))) is row.cls


@EACH
def test_arrow(row: TypeRow) -> None:
    field = to_arrow_field(Column(name="c", type=row.example))
    assert from_arrow_field(field) == row.example
    for arrow in row.also_from:
        assert type(from_arrow_field(pa.field("c", arrow))) is row.cls


@EACH
def test_iceberg(row: TypeRow) -> None:
    stored = iceberg_to_arrow(to_iceberg_type(row.example, "c"))
    values = values_of(row)
    assert same(values.cast(stored).cast(values.type).to_pylist(), values.to_pylist())


@EACH
def test_kv_rows(row: TypeRow) -> None:
    values, codec = values_of(row), StructCodec([pa.field("c", to_arrow_type(row.example))])
    (back,) = codec.decode(codec.encode([values]), [0])
    assert back.type == values.type
    assert same(back.to_pylist(), values.to_pylist())


@EACH
def test_keys(row: TypeRow) -> None:
    """Different values, different bytes; where a type may be a primary key."""
    if row.primary_key:
        values = pa.array(row.values, to_arrow_type(row.example))
        keys = KeyCodec([pa.field("c", values.type, nullable=False)]).encode(pa.record_batch([values], names=["c"]))
        assert len(set(keys.to_pylist())) == len(row.values)


@EACH
@pytest.mark.parametrize("function", BucketFunction)
def test_buckets(row: TypeRow, function: BucketFunction) -> None:
    if find_reason(function, row.example, 1) is None:
        buckets = assign(function, [values_of(row).drop_null()], [row.example], 7)
        assert all(0 <= b < 7 for b in buckets)
    else:
        assert function not in row.bucket_key_of


@EACH
def test_rows_of_people(row: TypeRow) -> None:
    given = [{"c": v} for v in (*row.values, None)]
    descriptor = TableDescriptor(schema=Schema(columns=(Column(name="c", type=row.example),)))
    table = TableInfo(path=TablePath("db", "t"), table_id=TableId("1"), descriptor=descriptor)
    assert same(fit_rows(given, table, ["c"]).column("c").to_pylist(), values_of(row).to_pylist())


@EACH
def test_comparison(row: TypeRow) -> None:
    values = values_of(row)
    rows, first = (pa.table({OFFSET: range(len(values)), "c": x}) for x in (values, values[:1].take([0] * len(values))))
    assert altered_offsets(rows, rows, ["c"])[0].tolist() == []
    assert altered_offsets(rows, first, ["c"])[0].tolist() == list(range(1, len(values)))


@EACH
def test_spark(row: TypeRow) -> None:
    assert spark_type("c", row.example) is not None


@EACH
def test_fluss(row: TypeRow) -> None:
    if row.fluss is None:
        with pytest.raises(UnsupportedType, match=row.cls.keyword):
            parse_fluss({"type": row.cls.keyword}, "c")
        return
    plain = {"type": "INTEGER"}
    nested: dict[str, dict[str, Any]] = {
        "ARRAY": {"element_type": plain},
        "MAP": {"key_type": plain, "value_type": plain},
        "ROW": {"fields": [{"name": "a", "field_type": plain}]},
    }
    body = {"type": row.fluss, "length": 3, "precision": 3, "scale": 1, **nested.get(row.fluss, {})}
    assert type(parse_fluss(body, "c")) is row.cls
