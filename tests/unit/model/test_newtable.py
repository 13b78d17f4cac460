# SPDX-License-Identifier: Apache-2.0
"""What a new table may not be; columns that are there already refuse no other change."""

from __future__ import annotations

import pytest

from lakeward.errors import InvalidTable
from lakeward.model import (
    MOST_COLUMNS,
    Column,
    Schema,
    TableDescriptor,
    check_new_columns,
    check_new_table,
    parse_type,
    warn_of_columns,
)


def columns(**typed: str) -> tuple[Column, ...]:
    return tuple(Column(name=name, type=parse_type(kind)) for name, kind in typed.items())


@pytest.mark.parametrize("kind", ["FLOAT", "DOUBLE", "ARRAY<INT>", "MAP<INT, INT>", "ROW<a INT>"])
def test_a_key_of_a_type_without_one_spelling_per_value_is_refused(kind: str) -> None:
    schema = Schema(columns=columns(id="INT NOT NULL", k=f"{kind} NOT NULL"))
    with pytest.raises(InvalidTable, match=r"db\.t: primary key 'k': .*cannot be a key"):
        check_new_table("db.t", TableDescriptor(schema=schema, primary_key=("id", "k"), bucket_keys=("id",)))
    check_new_table("db.t", TableDescriptor(schema=schema, primary_key=("id",)))


@pytest.mark.parametrize(
    ("typed", "wrong"),
    [
        ({"v": "INT", "V": "INT"}, "V"),
        ({"v": "INT", "__Offset": "INT"}, "__Offset"),
        ({"v": "ROW<a INT, A INT>"}, "A"),
        ({"v": "ARRAY<MAP<INT, ROW<b ROW<c INT, C INT>>>>"}, "C"),
    ],
)
def test_names_that_differ_in_case_alone_are_refused_at_every_depth(typed: dict[str, str], wrong: str) -> None:
    with pytest.raises(InvalidTable, match=f"'{wrong}'.*in case alone"):
        check_new_table("db.t", TableDescriptor(schema=Schema(columns=columns(**typed))))


def test_a_table_that_has_such_names_takes_other_columns() -> None:
    there = columns(v="INT", V="INT")
    check_new_columns("db.t", there, columns(w="INT"))
    for added in (columns(W="INT", w="INT"), columns(ID="INT")):
        with pytest.raises(InvalidTable, match="in case alone"):
            check_new_columns("db.t", (*there, *columns(id="INT")), added)


@pytest.mark.parametrize("key", ["bucket.num", "bucket.key"])
def test_what_is_no_property_is_not_taken_for_one(key: str) -> None:
    with pytest.raises(InvalidTable, match=f"'{key}': it is no property"):
        check_new_table("db.t", TableDescriptor(schema=Schema(columns=columns(v="INT")), properties={key: "9"}))


@pytest.mark.parametrize("kind", ["TIME(3)", "ARRAY<TIME>", "MAP<STRING NOT NULL, ROW<a INT, b TIME>>"])
def test_a_time_of_day_is_warned_of_at_every_depth(kind: str) -> None:
    columns = [Column(name=name, type=parse_type(sql)) for name, sql in (("a", "TIMESTAMP"), ("t", kind))]
    (warning,) = warn_of_columns(columns)
    assert warning.startswith("column t: Spark")
    assert warn_of_columns(columns[:1]) == ()


def test_a_table_takes_so_many_columns() -> None:
    most = tuple(columns(**{f"c{n}": "INT" for n in range(MOST_COLUMNS)}))
    check_new_table("db.t", TableDescriptor(schema=Schema(columns=most)))
    with pytest.raises(InvalidTable, match="up to 5000 columns"):
        check_new_columns("db.t", most, columns(one_more="INT"))
    check_new_columns("db.t", (*most, *columns(one_more="INT")), ())  # one that has them goes on


def test_names_and_comments_have_a_length() -> None:
    long = "x" * 256
    for made in ({long: "INT"}, {"r": f"ROW<`{long}` INT>"}):
        with pytest.raises(InvalidTable, match="up to 255 characters"):
            check_new_columns("db.t", (), columns(**made))
    noted = Column(name="c", type=parse_type("INT"), comment="x" * 10_001)
    with pytest.raises(InvalidTable, match="more than 10,000 characters"):
        check_new_columns("db.t", (), (noted,))
    check_new_columns("db.t", (*columns(**{long: "INT"}), noted), columns(d="INT"))  # one that has them goes on
