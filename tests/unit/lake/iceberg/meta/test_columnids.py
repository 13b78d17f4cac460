# SPDX-License-Identifier: Apache-2.0
"""Column ids against Iceberg's field ids: by name until columns change, by the table's property from then on."""

from __future__ import annotations

from pathlib import Path

from lakeward.lake.iceberg.meta.columnids import COLUMN_IDS, find_field_ids
from lakeward.lake.iceberg.plugin import IcebergLakeStorage
from lakeward.model import Column, Schema, TableDescriptor, TableInfo, TablePath, new_table_id, parse_type
from tests.kit.iceberg.folder import folder_lake


def test_an_added_column_has_another_number_in_the_lake(tmp_path: Path) -> None:
    with folder_lake(tmp_path) as lake:
        check(lake)


def check(lake: IcebergLakeStorage) -> None:
    schema = Schema(columns=tuple(Column(name=n, type=parse_type("INT")) for n in ("a", "b")))
    table = TableInfo(path=TablePath("db", "t"), table_id=new_table_id(), descriptor=TableDescriptor(schema=schema))
    lake.catalog().create(table)
    before = lake.connection.load(table.path).metadata
    assert COLUMN_IDS not in before.properties
    assert find_field_ids(before, schema) == {1: 1, 2: 2}

    added = [Column(name="c", type=parse_type("INT"))]
    lake.catalog().add_columns(table, added)
    after = lake.connection.load(table.path).metadata
    # The three system columns came between: Iceberg's numbers go on behind them.
    assert find_field_ids(after, schema.with_added(added)) == {1: 1, 2: 2, 3: 6}
    renamed = Schema.from_json(
        {
            "schema_id": 3,
            "columns": [
                {"id": c.column_id, "name": f"x{c.name}", "type": "INT"} for c in schema.with_added(added).columns
            ],
        }
    )
    assert find_field_ids(after, renamed) == {1: 1, 2: 2, 3: 6}
