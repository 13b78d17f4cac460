# SPDX-License-Identifier: Apache-2.0
"""A million keyed rows that Java Iceberg wrote, with partitions, positional deletes and columns that changed, adopted
with their key: changes right after it, compaction, and rewrites by Java, told by every reader.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lakeward.lake.iceberg.plugin import IcebergLakeStorage, load
from lakeward.model import TablePath
from lakeward.protocol.operate import AdoptTable
from lakeward.verify import verify_table
from lakeward_testing.faults import Faults
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


def make_table(java: JavaIceberg, name: str, version: str) -> None:
    java.sql("CREATE NAMESPACE IF NOT EXISTS lake.shop")
    java.sql(
        f"CREATE TABLE lake.{name} (n INT, region STRING, tags ARRAY<STRING>, at TIMESTAMP) USING iceberg "
        f"TBLPROPERTIES ('format-version'='{version}', 'write.delete.mode'='merge-on-read')"
    )
    java.sql(
        f"INSERT INTO lake.{name} SELECT CAST(id AS INT), concat('r', id % 3), array('a'), "
        f"timestamp_seconds(id) FROM range({ROWS // 2})"
    )
    java.sql(f"ALTER TABLE lake.{name} ADD PARTITION FIELD region")
    java.sql(f"ALTER TABLE lake.{name} ALTER COLUMN n TYPE BIGINT")
    java.sql(f"ALTER TABLE lake.{name} RENAME COLUMN n TO id")
    java.sql(f"ALTER TABLE lake.{name} ADD COLUMN price DECIMAL(10, 2)")
    java.sql(f"ALTER TABLE lake.{name} WRITE ORDERED BY id")
    java.sql(
        f"INSERT INTO lake.{name} SELECT id, concat('r', id % 3), array('b'), timestamp_seconds(id), "
        f"CAST(id AS DECIMAL(10, 2)) FROM range({ROWS // 2}, {ROWS})"
    )
    java.sql(f"DELETE FROM lake.{name} WHERE id % 10 = 7")


@pytest.mark.parametrize("version", ["2", "3"])
def test_a_table_of_java_is_adopted_with_its_key_and_every_reader_agrees(
    java: JavaIceberg, near: IcebergLakeStorage, tmp_path: Path, version: str
) -> None:
    name = f"shop.keyed{version}"
    make_table(java, name, version)
    path, world = TablePath.parse(name), InProcessLakeward(tmp_path / "server", near)
    request = AdoptTable(foreign=True, primary_key=("id", "region"), bucket_count=int(version) - 1)
    assert world.federation.adopt_keyed(path, request).of_rows == ROWS * 9 // 10
    with Faults() as faults, pytest.raises(RuntimeError):
        faults.arm("load.put", hit=11, error=lambda: RuntimeError("the end of the process"))
        world.federation.adoptions.run()
    world.restart()
    world.federation.adoptions.run()
    assert world.federation.adoptions.status(path).is_done
    expected = {i: None if i < ROWS // 2 else i for i in range(ROWS) if i % 10 != 7}

    def row(i: int, price: int) -> dict[str, Any]:
        return {"id": i, "region": f"r{i % 3}", "tags": ["new"], "at": None, "price": price}

    for wave in range(2):
        changed = range(wave, ROWS, 1_000)
        world.upsert(name, [row(i, wave) for i in changed])
        gone = [i for i in range(wave + 2, ROWS, 5_000) if i % 10 != 7]
        world.delete(name, [{"id": i, "region": f"r{i % 3}"} for i in gone])
        expected |= dict.fromkeys(changed, wave)
        for i in gone:
            del expected[i]
        found = world.read(name, columns=["id", "price"]).to_table().to_pydict()
        assert dict(zip(found["id"], found["price"], strict=True)) == expected
        world.tier(name)
    ids, total = len(expected), sum(expected)

    def agree() -> None:
        location = near.connection.load(path).metadata_location
        for read in (read_duckdb, read_datafusion, read_pyiceberg):
            seen = read(location)["id"].to_pylist()
            assert (len(seen), sum(seen)) == (ids, total), read.__name__
        told = java.sql(f"SELECT count(*) AS rows, count(DISTINCT id) AS ids, sum(id) AS total FROM lake.{name}")
        assert told == [{"rows": ids, "ids": ids, "total": total}]
        assert world.read(name, columns=["id"], mode="lake").to_table().num_rows == ids
        certificate = verify_table(world.plugin, path, deep=True, open_storage=lambda _plan: near)
        assert certificate.holds, certificate

    agree()
    world.compact(name)
    agree()
    java.sql(f"CALL lake.system.rewrite_data_files(table => '{name}', options => map('rewrite-all', 'true'))")
    world.upsert(name, [row(1, 99)])
    world.tier(name)
    expected[1] = 99
    agree()
    found = world.read(name, columns=["id", "price"]).to_table().to_pydict()
    assert dict(zip(found["id"], found["price"], strict=True)) == expected
    world.close()
