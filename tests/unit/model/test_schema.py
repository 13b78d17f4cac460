# SPDX-License-Identifier: Apache-2.0
"""Columns have ids: given once, kept by everything but a drop, never given again; older schemas get theirs by place."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lakeward.errors import InvalidTable
from lakeward.model import Column, Schema, parse_type


def column(name: str, column_id: int = 0) -> Column:
    return Column(name=name, type=parse_type("INT"), column_id=column_id)


def ids(schema: Schema) -> list[int]:
    return [c.column_id for c in schema.columns]


def test_columns_are_numbered_in_order_and_added_ones_go_on() -> None:
    schema = Schema(columns=(column("a"), column("b"))).with_added([column("c"), column("d")])
    assert ids(schema) == [1, 2, 3, 4]
    assert Schema.from_json(schema.to_json()).to_json() == schema.to_json()


def test_a_dropped_columns_id_is_not_given_away() -> None:
    schema = Schema(columns=(column("a"), column("b"), column("c")))
    without = replace(schema, columns=schema.columns[:2], schema_id=2)
    assert without.highest_id == 3
    again = Schema.from_json(without.to_json()).with_added([column("c")])
    assert ids(again) == [1, 2, 4]


def test_a_renamed_column_keeps_its_id() -> None:
    schema = Schema(columns=(column("a"), column("b")))
    renamed = replace(schema, columns=(replace(schema.columns[0], name="x"), schema.columns[1]), schema_id=2)
    assert ids(renamed) == [1, 2]


def test_schemas_stored_without_ids_get_them_by_place() -> None:
    older = {"schema_id": 1, "columns": [{"name": "a", "type": "INT"}, {"name": "b", "type": "STRING"}]}
    newer = {"schema_id": 2, "columns": [*older["columns"], {"name": "c", "type": "INT"}]}  # type: ignore[misc]
    assert ids(Schema.from_json(older)) == [1, 2]
    assert ids(Schema.from_json(newer)) == [1, 2, 3]


def test_an_id_is_there_once() -> None:
    with pytest.raises(InvalidTable, match="column id"):
        Schema(columns=(column("a", 1), column("b", 1)))
