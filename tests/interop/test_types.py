# SPDX-License-Identifier: Apache-2.0
"""The page's table of types by engine is what the engines do. `LAKEWARD_WRITE_TYPES=1` writes it anew."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pyarrow as pa
import pytest

from lakeward.lake.iceberg.plugin import IcebergLakeStorage
from lakeward.model import OFFSET
from lakeward_testing.lakes.suite import LakeSuite
from tests.interop.enginetypes import DEPTHS, PARTS, TypeTable, check_page, columns_of, make_table
from tests.kit.iceberg.engines import duckdb_connection, read_datafusion, read_pyiceberg
from tests.kit.iceberg.folder import folder_lake

Made = tuple[IcebergLakeStorage, list[TypeTable]]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Made]:
    with folder_lake(tmp_path_factory.mktemp("types")) as lake:
        yield lake, [make_table(lake, row) for row in PARTS]


@pytest.mark.parametrize(("engine", "read"), [("PyIceberg 0.12", read_pyiceberg), ("DataFusion 54", read_datafusion)])
def test_the_page_says_what_an_engine_reads(made: Made, engine: str, read: Callable[[str], pa.Table]) -> None:
    lake, tables = made
    check_page(engine, tables, lambda t: read(lake.connection.load(t.path).metadata_location))


def test_the_page_says_what_duckdb_reads(made: Made) -> None:
    """One connection: its extensions take a second to load."""
    lake, tables = made
    with duckdb_connection() as duck:
        check_page(
            "DuckDB 1.5",
            tables,
            lambda t: duck.sql(
                f"SELECT * FROM iceberg_scan('{lake.connection.load(t.path).metadata_location}')"
            ).to_arrow_table(),
        )


def test_the_page_says_what_we_read(made: Made) -> None:
    lake, tables = made
    columns = {str(row.example): columns_of(row) for row in PARTS}

    def read(table: TypeTable) -> pa.Table:
        reader = lake.open_reader(LakeSuite().table_info(table.path.table, columns=columns[table.name]))
        head = reader.load_snapshot()
        assert head is not None
        return pa.Table.from_batches(reader.scan(head.snapshot_id, columns=[*DEPTHS, OFFSET]))

    check_page("Lakeward", tables, read)
