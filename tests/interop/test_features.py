# SPDX-License-Identifier: Apache-2.0
"""docs/readers.md says which engine reads what rounds and compactions leave: this is where it knows it from."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pyarrow as pa
import pytest

from lakeward.lake.iceberg.plugin import IcebergLakeStorage
from lakeward_testing.scripted_log import ScriptedLog
from tests.interop.readerfeatures import check_features, make_tables
from tests.kit.iceberg.engines import read_datafusion, read_duckdb, read_pyiceberg
from tests.kit.iceberg.folder import folder_lake

Made = tuple[IcebergLakeStorage, dict[str, ScriptedLog]]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Made]:
    with folder_lake(tmp_path_factory.mktemp("features"), deletes="equality") as lake:
        yield lake, make_tables(lake)


@pytest.mark.parametrize(
    ("engine", "read"),
    [("PyIceberg 0.12", read_pyiceberg), ("DuckDB 1.5", read_duckdb), ("DataFusion 54", read_datafusion)],
)
def test_the_page_says_what_an_engine_reads(made: Made, engine: str, read: Callable[[str], pa.Table]) -> None:
    lake, tables = made
    check_features(engine, tables, lambda log: read(lake.connection.load(log.table.path).metadata_location).to_pylist())


def test_the_page_says_what_we_read(made: Made) -> None:
    lake, tables = made

    def read(log: ScriptedLog) -> list[dict[str, object]]:
        reader = lake.open_reader(log.table)
        head = reader.load_snapshot()
        assert head is not None
        batches = reader.scan(head.snapshot_id, columns=["__bucket", "id", "name"])
        return [r for batch in batches for r in batch.to_pylist()]

    check_features("Lakeward", tables, read)
