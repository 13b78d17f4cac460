# SPDX-License-Identifier: Apache-2.0
"""Which format version a table gets for the engines that will read it, and which of them are refused."""

from __future__ import annotations

from typing import Any

import pytest

from lakeward.client.columns import parse_columns
from lakeward.errors import InvalidTable
from lakeward.lake.iceberg.meta.version import READERS, check_version, choose_version
from lakeward.model import BucketFunction, Schema, TableDescriptor, TablePath

PATH = TablePath.parse("db.t")


def describe(readers: str, key: bool = True, columns: str = "id bigint not null, v string") -> TableDescriptor:
    properties: dict[str, Any] = {"table.datalake.readers": readers}
    return TableDescriptor(
        schema=Schema(columns=parse_columns(columns)),
        primary_key=("id",) if key else (),
        partition_keys=(),
        bucket_count=1,
        bucket_function=BucketFunction.FLUSS,
        properties=properties,
    )


@pytest.mark.parametrize(
    ("readers", "key", "version"),
    [
        ("duckdb", True, 2),
        ("databricks", True, 3),
        ("Databricks, duckdb, snowflake", True, 3),
        ("databricks, trino", False, 2),
        ("trino, athena", True, 2),
    ],
)
def test_the_lowest_version_that_all_read_is_chosen(readers: str, key: bool, version: int) -> None:
    assert choose_version(PATH, describe(readers, key)) == version
    check_version(PATH, describe(readers, key), version)


@pytest.mark.parametrize(
    ("readers", "columns", "reason"),
    [
        (
            "databricks, trino",
            "id bigint not null",
            "version 2: databricks cannot read it, as it applies no positional delete files; "
            "version 3: trino cannot read it, as it reads no tables of version 3",
        ),
        ("excel", "id bigint not null", f"excel is not one of {', '.join(READERS)}"),
        ("spark", "id bigint not null, at array<time(3)>", "reads no table with a column like at, ARRAY<TIME(3)>"),
    ],
)
def test_readers_without_a_common_version_are_refused_with_the_reason(readers: str, columns: str, reason: str) -> None:
    with pytest.raises(InvalidTable) as refused:
        choose_version(PATH, describe(readers, columns=columns))
    assert reason in str(refused.value)


def test_a_version_that_a_reader_does_not_read_is_refused_with_the_one_that_it_reads() -> None:
    with pytest.raises(InvalidTable, match=r"databricks cannot read it.*iceberg.format-version=3"):
        check_version(PATH, describe("databricks"), 2)
