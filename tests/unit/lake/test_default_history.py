# SPDX-License-Identifier: Apache-2.0
"""One default history: every format gives it to a new table, and leaves older tables what they have."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakeward.lake.core.history import MAX_AGE_KEY, MAX_AGE_MS, HistoryLimit, new_history
from lakeward.lake.delta.plugin import DeltaLakeStorage
from lakeward.lake.hudi.plugin import HudiLakeStorage
from lakeward.lake.iceberg.meta.mapping import DEFAULTS
from lakeward.model import Column, Schema, TableDescriptor, TableInfo, TablePath, new_table_id, parse_type

OWN_KEY = f"lakeward.{MAX_AGE_KEY}"
DAYS_MS = 5 * 24 * 3600 * 1000


def table_of(**properties: str) -> TableInfo:
    schema = Schema(columns=(Column(name="id", type=parse_type("BIGINT NOT NULL")),))
    descriptor = TableDescriptor(schema=schema, bucket_count=1, properties=properties)
    return TableInfo(path=TablePath("db", "t"), table_id=new_table_id(), descriptor=descriptor)


def properties_in(folder: Path, name: str, table: TableInfo) -> dict[str, str]:
    if name == "delta":
        delta = DeltaLakeStorage(str(folder))
        delta.catalog().create(table)
        return dict(delta.log(table.path).load().properties)
    hudi = HudiLakeStorage(str(folder))
    hudi.catalog().create(table)
    return dict(hudi.table(table.path).load_properties())


@pytest.mark.parametrize("name", ["delta", "hudi"])
def test_a_new_table_is_given_the_default_and_what_is_set_wins(tmp_path: Path, name: str) -> None:
    assert properties_in(tmp_path / "a", name, table_of())[OWN_KEY] == str(MAX_AGE_MS)
    given = {f"{name}.{MAX_AGE_KEY}": "1000"}
    assert properties_in(tmp_path / "b", name, table_of(**given))[OWN_KEY] == "1000"


def test_the_default_is_one_and_older_tables_keep_theirs() -> None:
    assert DEFAULTS[MAX_AGE_KEY] == str(MAX_AGE_MS)
    assert HistoryLimit.of(new_history()) == HistoryLimit(MAX_AGE_MS, 1)
    assert HistoryLimit.of({}).max_age_ms == DAYS_MS


def test_taking_the_property_off_gives_the_default_again(tmp_path: Path) -> None:
    table, lake = table_of(**{f"delta.{MAX_AGE_KEY}": "1000"}), DeltaLakeStorage(str(tmp_path))
    lake.catalog().create(table)
    lake.catalog().set_properties(table, {f"delta.{MAX_AGE_KEY}": None})
    assert lake.log(table.path).load().properties[OWN_KEY] == str(MAX_AGE_MS)
