# SPDX-License-Identifier: Apache-2.0
"""Text columns that stand as numbers of a dictionary are read as such, and come out as texts."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from lakeward.lake.iceberg.connect.connection import IcebergConnection
from lakeward.lake.iceberg.plugin import IcebergLakeStorage
from lakeward.lake.iceberg.scan.project import Footer
from lakeward.model import TablePath
from lakeward_testing.clock import ManualClock
from tests.kit.iceberg.folder import folder_options
from tests.kit.iceberg.merge_on_read import MergeOnReadEngine
from tests.kit.inprocess import InProcessLakeward

ROWS = 24_000
PATH = TablePath("db", "t")


def make_rows() -> pa.Table:
    ids = np.arange(ROWS)
    return pa.table(
        {
            "id": ids,
            "few": pa.array([None if i % 7 == 0 else f"kind {i % 5}" for i in ids]),
            "other": pa.array([f"{i % 3}" for i in ids]),
            "many": pa.array([f"text {i:05d}" for i in ids]),
        }
    )


@pytest.mark.parametrize("filter", [None, pc.field("few") == "kind 3"], ids=["all", "filtered"])
def test_rows_of_dictionaries_come_out_as_texts(tmp_path: Path, filter: pc.Expression | None) -> None:
    """In several row groups, with rows deleted by position and by a text that has a dictionary too."""
    clock, rows = ManualClock(), make_rows()
    lake = IcebergLakeStorage(IcebergConnection(folder_options(tmp_path), clock))
    world = InProcessLakeward(tmp_path / "server", lake, clock)
    try:
        properties = {"iceberg.write.parquet.row-group-limit": "9000"}
        world.create(str(PATH), "id bigint not null, few string, other string, many string", buckets=1, **properties)
        world.append(str(PATH), rows)
        world.tier(str(PATH))
        reader = lake.open_reader(world.store.load_table(PATH))
        head = reader.load_base().head
        assert head is not None
        (file,) = reader.files(head)
        footer = Footer.of(pq.read_metadata(file.path.removeprefix("file://")))
        assert footer.metadata.num_row_groups == 3
        assert footer.coded == {"few", "other"}
        engine = MergeOnReadEngine(lake.connection.catalog, PATH)
        engine.delete_rows({file.path: list(range(0, ROWS, 10))})
        engine.delete_keys(pa.table({"other": ["1"]}), like=file.path)
        ids = rows.column("id").to_numpy()
        expected = rows.filter(pa.array((ids % 10 != 0) & (ids % 3 != 1)))
        head = reader.load_base().head
        assert head is not None
        batches = list(reader.scan(head, columns=rows.column_names, filter=filter))
    finally:
        world.close()
        lake.connection.close()
    assert pa.Table.from_batches(batches).combine_chunks() == (
        expected if filter is None else expected.filter(filter)
    ).combine_chunks().cast(batches[0].schema)
