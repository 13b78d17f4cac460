# SPDX-License-Identifier: Apache-2.0
"""A million rows that Java Iceberg wrote, with partitions, positional deletes and columns that changed, adopted."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lakeward.lake.iceberg.plugin import IcebergLakeStorage, load
from lakeward.model import TablePath
from lakeward.protocol.operate import AdoptTable
from lakeward.verify import verify_table
from tests.interop.javaiceberg import JavaIceberg, start_java
from tests.kit.iceberg.engines import read_datafusion, read_duckdb, read_pyiceberg
from tests.kit.inprocess import InProcessLakeward

pytestmark = pytest.mark.soak
ROWS = 1_000_000


@pytest.fixture
def java(served: Any) -> Iterator[JavaIceberg]:
    with start_java(served.url) as started:
        yield started


@pytest.fixture
def near(served: Any) -> Iterator[IcebergLakeStorage]:
    lake = load({"type": "rest", "uri": served.url})
    yield lake
    lake.connection.close()


@pytest.mark.parametrize("version", ["2", "3"])
def test_a_table_of_java_is_adopted_and_every_reader_agrees(
    java: JavaIceberg, near: IcebergLakeStorage, tmp_path: Path, version: str
) -> None:
    name = f"shop.visits{version}"
    java.sql("CREATE NAMESPACE IF NOT EXISTS lake.shop")
    java.sql(
        f"CREATE TABLE lake.{name} (n INT, region STRING, tags ARRAY<STRING>, at TIMESTAMP) USING iceberg "
        f"PARTITIONED BY (region) TBLPROPERTIES ('format-version'='{version}', 'write.delete.mode'='merge-on-read')"
    )
    java.sql(
        f"INSERT INTO lake.{name} SELECT CAST(id AS INT), concat('r', id % 3), array('a'), "
        f"timestamp_seconds(id) FROM range({ROWS})"
    )
    java.sql(f"ALTER TABLE lake.{name} ALTER COLUMN n TYPE BIGINT")
    java.sql(f"ALTER TABLE lake.{name} RENAME COLUMN n TO id")
    java.sql(f"ALTER TABLE lake.{name} ADD COLUMN price DECIMAL(10, 2)")
    java.sql(f"ALTER TABLE lake.{name} WRITE ORDERED BY id")
    java.sql(f"DELETE FROM lake.{name} WHERE id % 10 = 7")
    path = TablePath.parse(name)
    world = InProcessLakeward(tmp_path / "server", near)
    world.federation.adopt(path, AdoptTable(foreign=True, bucket_count=2))
    added = [{"id": -n, "region": "r1", "tags": None, "at": None, "price": None} for n in range(1, 4)]
    world.append(name, added)
    world.tier(name)
    world.append(name, [{**added[0], "id": -4}])
    kept = [i for i in range(ROWS) if i % 10 != 7]
    found = world.read(name, columns=["id"]).to_table()["id"].to_pylist()
    assert sorted(found) == [-4, -3, -2, -1, *kept]
    in_lake, total = len(kept) + 3, sum(kept) - 6
    location = near.connection.load(path).metadata_location
    for read in (read_duckdb, read_datafusion, read_pyiceberg):
        ids = read(location)["id"].to_pylist()
        assert (len(ids), sum(ids)) == (in_lake, total), read.__name__
    assert java.sql(f"SELECT count(*) AS rows, sum(id) AS total FROM lake.{name}") == [
        {"rows": in_lake, "total": total}
    ]
    assert verify_table(world.plugin, path, deep=True, open_storage=lambda _plan: near).holds
    java.sql(f"CALL lake.system.rewrite_data_files(table => '{name}', options => map('rewrite-all', 'true'))")
    world.tier(name)
    assert world.read(name, columns=["id"]).to_table().num_rows == in_lake + 1
    certificate = verify_table(world.plugin, path, open_storage=lambda _plan: near)
    assert certificate.holds, certificate
    world.close()
