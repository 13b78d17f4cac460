# SPDX-License-Identifier: Apache-2.0
"""`table.datalake.readers` from CREATE to ALTER: the version in the catalog, and what is refused before any change."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lakeward.errors import InvalidTable
from lakeward.lake.memory.plugin import MemoryLakeStorage
from lakeward.lake.memory.table import MemoryLake
from lakeward.model import TablePath
from lakeward.protocol.tables import AlterTable
from lakeward_testing.clock import ManualClock
from tests.kit.iceberg.folder import folder_lake
from tests.kit.inprocess import InProcessLakeward

READERS, VERSION, PATH = "table.datalake.readers", "iceberg.format-version", TablePath.parse("db.t")


@pytest.fixture
def lakeward(tmp_path: Path) -> Iterator[InProcessLakeward]:
    with folder_lake(tmp_path) as lake:
        parts = InProcessLakeward(tmp_path / "hot", lake, ManualClock())
        yield parts
        parts.close()


def given(key: str, value: str) -> dict[str, Any]:
    return {key: value}


def version(lakeward: InProcessLakeward) -> int:
    catalog = lakeward.lake.connection.catalog  # type: ignore[attr-defined]
    return int(catalog.load_table("db.t").format_version)


def test_a_table_for_databricks_has_deletion_vectors(lakeward: InProcessLakeward) -> None:
    table = lakeward.create("db.t", "id bigint not null", primary_key="id", **given(READERS, "databricks, duckdb"))
    assert (version(lakeward), table.descriptor.properties[VERSION]) == (3, "3")
    with pytest.raises(InvalidTable, match="trino cannot read it"):
        lakeward.federation.alter(PATH, AlterTable(properties={READERS: "databricks, trino"}))
    with pytest.raises(InvalidTable, match="spark reads no table with a column like at"):
        lakeward.federation.alter(PATH, AlterTable(properties={READERS: "spark"}))
        lakeward.add_column("db.t", "at time(3)")
    assert lakeward.store.load_table(PATH).schema.names == ("id",)


def test_a_wrong_pair_is_refused_before_anything_is_made(lakeward: InProcessLakeward) -> None:
    wrong: list[dict[str, Any]] = [
        {READERS: "databricks, trino"},
        {READERS: "databricks", VERSION: "2"},
        {READERS: "excel"},
    ]
    for properties in wrong:
        with pytest.raises(InvalidTable, match=READERS):
            lakeward.create("db.t", "id bigint not null", primary_key="id", **properties)
    assert not lakeward.lake.catalog().exists(PATH)


def test_a_table_moves_to_version_3_with_the_reader_that_needs_it(lakeward: InProcessLakeward) -> None:
    lakeward.create("db.t", "id bigint not null", primary_key="id", **given(READERS, "duckdb"))
    assert version(lakeward) == 2
    with pytest.raises(InvalidTable, match=f"{VERSION}=3"):
        lakeward.federation.alter(PATH, AlterTable(properties={READERS: "databricks"}))
    lakeward.federation.alter(PATH, AlterTable(properties={READERS: "databricks", VERSION: "3"}))
    assert version(lakeward) == 3


def test_a_lake_of_which_no_readers_are_known_refuses_the_option(tmp_path: Path) -> None:
    parts = InProcessLakeward(tmp_path, MemoryLakeStorage(MemoryLake()), ManualClock())
    with pytest.raises(InvalidTable, match="known for Iceberg lakes alone"):
        parts.create("db.t", "id bigint not null", **given(READERS, "duckdb"))
    parts.close()
