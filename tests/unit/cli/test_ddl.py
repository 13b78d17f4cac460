# SPDX-License-Identifier: Apache-2.0
"""CREATE TABLE statements as Fluss users write them."""

from __future__ import annotations

import pytest

from lakeward.cli.ddl import parse_create
from lakeward.client.columns import parse_columns
from lakeward.errors import InvalidRequest

STATEMENT = """
CREATE TABLE IF NOT EXISTS shop.orders (
    id BIGINT NOT NULL,
    day STRING NOT NULL COMMENT 'when, in a word',
    total DECIMAL(10, 2),
    at TIMESTAMP_LTZ(3),
    tags ARRAY<STRING>,
    who ROW<name STRING, age INT>,
    PRIMARY KEY (id, day) NOT ENFORCED
) PARTITIONED BY (day) WITH (
    'bucket.num' = '4',
    'bucket.key' = 'id',
    'table.datalake.enabled' = 'true',
    'table.datalake.freshness' = '30s'
);
"""


def test_a_whole_statement() -> None:
    made = parse_create(STATEMENT)
    assert made.path == "shop.orders"
    assert made.primary_key == ("id", "day")
    assert made.partition_by == ("day",)
    assert (made.buckets, made.bucket_key) == (4, ("id",))
    assert made.if_not_exists
    assert made.properties == {"table.datalake.enabled": "true", "table.datalake.freshness": "30s"}
    columns = parse_columns(made.columns)
    assert [c.name for c in columns] == ["id", "day", "total", "at", "tags", "who"]
    assert columns[1].comment == "when, in a word"
    assert str(columns[5].type) == "ROW<`name` STRING, `age` INT>"


def test_partitions_by_the_time_of_a_column() -> None:
    made = parse_create(
        "CREATE TABLE db.t (id INT, `a b` DATE) PARTITIONED BY (day(ts), Month(`a b`), region) WITH ('k' = '(v)')"
    )
    assert made.partition_by == ("day(ts)", "Month(`a b`)", "region")
    assert made.properties == {"k": "(v)"}


def test_a_short_one() -> None:
    made = parse_create("create table db.t (id int primary key not enforced, x time(3))")
    assert made.primary_key == ("id",)
    assert [str(c.type) for c in parse_columns(made.columns)] == ["INT", "TIME(3)"]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("CREATE TABLE t (id INT)", "database.table"),
        ("SELECT 1", "CREATE TABLE"),
        ("CREATE TABLE db.t (id INT) WITH (bucket.num = 4)", "'key' = 'value'"),
        ("CREATE TABLE db.t (id INT) WITH ('bucket.num' = 'many')", "many"),
    ],
)
def test_wrong_statements_are_refused_in_words(text: str, reason: str) -> None:
    with pytest.raises(InvalidRequest, match=reason):
        parse_create(text)
