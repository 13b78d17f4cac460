# SPDX-License-Identifier: Apache-2.0
"""What a query names, and what is refused before anything is read."""

from __future__ import annotations

import pytest

from lakeward.errors import InvalidRequest
from lakeward.read.sql import named_tables, parse_query, quoted, spelling_hint, used_columns

HELD = ["id", "note", "Total"]


@pytest.mark.parametrize(
    "query",
    [
        "DROP TABLE a.b",
        "DELETE FROM a.b",
        "SET threads = 9",
        "COPY a.b TO 'x'",
        "SELECT 1; SELECT 2",
        "ATTACH 'x'",
        "SEL",
    ],
)
def test_only_one_select_is_taken(query: str) -> None:
    with pytest.raises(InvalidRequest):
        parse_query(query)


def test_a_query_that_is_wrong_is_told_in_plain_text() -> None:
    with pytest.raises(InvalidRequest, match="SELEC 1") as caught:
        parse_query("SELEC 1")
    assert "\x1b" not in caught.value.message


@pytest.mark.parametrize(
    "source", ["'/etc/passwd'", "read_csv('x')", "parquet_scan('x')", "glob('*')", '"x.csv"', "c.a.b", "orders"]
)
def test_files_and_unknown_names_are_refused(source: str) -> None:
    with pytest.raises(InvalidRequest):
        named_tables(parse_query(f"SELECT * FROM {source}"))


def test_tables_are_found_wherever_they_stand() -> None:
    query = "WITH x AS (SELECT * FROM a.b) SELECT (SELECT max(id) FROM c.d) FROM x JOIN range(3) ON true"
    assert named_tables(parse_query(query)) == ["a.b", "c.d"]


@pytest.mark.parametrize(
    ("query", "columns"),
    [
        ("SELECT note FROM a.b WHERE total > 1", ["note", "Total"]),
        ("SELECT count(*) FROM a.b", ["id"]),
        ("SELECT * FROM a.b", None),
        ("SELECT b FROM a.b", None),
    ],
)
def test_only_used_columns_travel(query: str, columns: list[str] | None) -> None:
    assert used_columns(parse_query(query), "a.b", HELD) == columns


def test_a_name_of_two_words_is_shown_as_it_is_written() -> None:
    held = ["id", "Full Name", "full"]
    assert spelling_hint(parse_query("SELECT Full Name FROM a.b"), held).endswith('double quotes: "Full Name"')
    assert spelling_hint(parse_query('SELECT "Full Name", full, wrong FROM a.b'), held) == ""
    assert spelling_hint(parse_query("SELECT idd FROM a.b"), held) == ""


def test_names_are_quoted() -> None:
    assert quoted('a "b') == '"a ""b"'
