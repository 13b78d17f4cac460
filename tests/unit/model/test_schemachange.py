# SPDX-License-Identifier: Apache-2.0
"""Changes of columns: what may change into what, what is refused by name, and what differs between two schemas."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from lakeward.errors import InvalidAlter, InvalidTable
from lakeward.model import (
    Column,
    ColumnChanges,
    Schema,
    TableDescriptor,
    TableInfo,
    TablePath,
    change_columns,
    check_evolved,
    diff_schemas,
    may_widen,
    new_table_id,
    parse_fields,
    parse_type,
)

COLUMNS = "id INT NOT NULL, day DATE NOT NULL, a INT, b DECIMAL(6, 2), c STRING NOT NULL"


def column(spelled: str) -> Column:
    (field,) = parse_fields(spelled)
    return Column(name=field.name, type=field.type)


def table(**descriptor: Any) -> TableInfo:
    fields = parse_fields(COLUMNS)
    made = TableDescriptor(
        schema=Schema(columns=tuple(Column(name=f.name, type=f.type) for f in fields)),
        primary_key=("id", "day"),
        partition_keys=("day",),
        **descriptor,
    )
    return TableInfo(path=TablePath("db", "t"), table_id=new_table_id(), descriptor=made)


def change(**changes: Any) -> TableInfo:
    return change_columns(table(), ColumnChanges(**changes))


def shown(info: TableInfo) -> list[tuple[int, str]]:
    return [(c.column_id, c.name) for c in info.schema.columns]


def test_every_kind_of_change_in_one_call() -> None:
    before = table()
    after = change_columns(
        before,
        ColumnChanges(
            add=(column("e STRING"),),
            rename={"id": "key", "a": "b", "b": "a"},
            drop=("c",),
            widen={"a": parse_type("BIGINT"), "b": parse_type("DECIMAL(9, 2)")},
            comments={"day": "of the order"},
            after={"e": "", "day": "a"},
        ),
    )
    assert shown(after) == [(6, "e"), (1, "key"), (3, "b"), (4, "a"), (2, "day")]
    assert [after.schema.column(n).type.sql for n in ("b", "a")] == ["BIGINT", "DECIMAL(9, 2)"]
    assert (after.descriptor.primary_key, after.descriptor.partition_keys) == (("key", "day"), ("day",))
    assert (after.schema.schema_id, after.schema.highest_id) == (2, 6)
    assert sorted(map(str, diff_schemas(before.schema, after.schema))) == [
        "add between others column e STRING",
        "comment column day",
        "drop column c",
        "move column day",
        "rename column a to b",
        "rename column b to a",
        "rename column id to key",
        "widen column a to BIGINT",
        "widen column b to DECIMAL(9, 2)",
    ]
    check_evolved(before, after)
    assert after.with_schema(before.schema).descriptor == before.descriptor


def test_a_dropped_columns_name_is_free_and_its_id_is_not() -> None:
    dropped = change(drop=("a",))
    again = change_columns(dropped, ColumnChanges(add=(column("a STRING"),)))
    assert shown(again)[-1] == (6, "a")
    last = change_columns(again, ColumnChanges(drop=("a",)))
    assert shown(change_columns(last, ColumnChanges(add=(column("a STRING"),))))[-1] == (7, "a")


def test_what_changes_nothing_is_no_change() -> None:
    before = table()
    for changes in (
        ColumnChanges(),
        ColumnChanges(rename={"a": "a"}, widen={"b": parse_type("DECIMAL(6, 2)")}, after={"day": "id"}),
        ColumnChanges(nullable=("a",), comments={"c": None}),
    ):
        assert change_columns(before, changes) is before


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"rename": {"x": "y"}}, "no such column"),
        ({"rename": {"a": "b"}}, "there is a column b"),
        ({"rename": {"a": "z", "b": "z"}}, "there is a column z"),
        ({"rename": {"a": "z"}, "drop": ("a",)}, "drops it"),
        ({"drop": ("id",)}, "it is a key"),
        ({"drop": ("day",)}, "it is a key"),
        ({"drop": ("a", "a")}, "twice"),
        ({"widen": {"a": parse_type("SMALLINT")}}, "may not fit"),
        ({"widen": {"a": parse_type("DOUBLE")}}, "may not fit"),
        ({"widen": {"b": parse_type("DECIMAL(9, 3)")}}, "may not fit"),
        ({"widen": {"c": parse_type("BYTES")}}, "may not fit"),
        ({"widen": {"id": parse_type("BIGINT")}}, "it is a key"),
        ({"nullable": ("id",)}, "it is a key"),
        ({"add": (column("e INT NOT NULL"),)}, "must be nullable"),
        ({"after": {"z": "a"}}, "no column z after the change"),
        ({"after": {"a": "z"}}, "no column z after the change"),
        ({"after": {"a": "a"}}, "after itself"),
    ],
)
def test_what_cannot_be_is_refused_by_name(changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(InvalidAlter, match=reason):
        change(**changes)


def test_names_that_engines_take_for_one_are_refused() -> None:
    for changes in ({"rename": {"a": "B"}}, {"rename": {"a": "__offset"}}, {"add": (column("A INT"),)}):
        with pytest.raises(InvalidTable):
            change(**changes)
    assert shown(change(rename={"a": "A"}))[2] == (3, "A")


def test_a_column_that_a_property_names_keeps_its_name() -> None:
    named = table(properties={"table.auto-partition.key": "day"})
    with pytest.raises(InvalidAlter, match=r"property table\.auto-partition\.key names it"):
        change_columns(named, ColumnChanges(rename={"day": "date"}))


def test_a_store_asks_again() -> None:
    before, after = table(), change(drop=("a",))
    for wrong in (
        replace(after.schema, schema_id=3),
        Schema(columns=after.schema.columns, schema_id=2, highest_id=0).with_added([column("e INT")]),
    ):
        with pytest.raises(InvalidAlter):
            check_evolved(before, before.with_schema(wrong))
    again = replace(after.schema, columns=(*after.schema.columns, replace(column("e INT"), column_id=3)), schema_id=3)
    with pytest.raises(InvalidAlter, match="its id 3 was given to another column"):
        check_evolved(after, after.with_schema(again))
    narrowed = [replace(c, type=parse_type("TINYINT")) if c.name == "a" else c for c in before.schema.columns]
    with pytest.raises(InvalidAlter, match="may not fit"):
        check_evolved(before, before.with_schema(replace(before.schema, columns=tuple(narrowed), schema_id=2)))


def test_types_become_wider_and_never_narrower() -> None:
    ordered = [parse_type(t) for t in ("TINYINT", "SMALLINT", "INT", "BIGINT")]
    for low, one in enumerate(ordered):
        assert [may_widen(one, other) for other in ordered] == [high >= low for high in range(len(ordered))]
    assert may_widen(parse_type("FLOAT"), parse_type("DOUBLE"))
    assert not may_widen(parse_type("DOUBLE"), parse_type("FLOAT"))
    assert may_widen(parse_type("DATE"), parse_type("TIMESTAMP(6)"))
    assert not may_widen(parse_type("DATE"), parse_type("TIMESTAMP(9)"))
    assert not may_widen(parse_type("DATE"), parse_type("TIMESTAMP_LTZ(6)"))
    assert not may_widen(parse_type("TIMESTAMP(6)"), parse_type("DATE"))
