# SPDX-License-Identifier: Apache-2.0
"""A resync of every format, by real rounds: after it the lake holds what was written, whatever others did meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from lakeward.errors import LakeSchemaBroken
from lakeward.lake.delta.plugin import DeltaLakeStorage
from lakeward.lake.hudi.plugin import HudiLakeStorage
from lakeward.lake.lance.plugin import open_lake as open_lance
from lakeward.lake.paimon.plugin import load as open_paimon
from lakeward.model import SnapshotId, TablePath
from lakeward.protocol.operate import ResyncChoice
from lakeward.spi import LakeStorage
from lakeward_testing.lakes.suite import LakeSuite
from tests.contract import (
    test_delta_lake,
    test_hudi_lake,
    test_iceberg_lake,
    test_lance_lake,
    test_paimon_lake,
)
from tests.kit.iceberg.folder import folder_lake
from tests.kit.inprocess import InProcessLakeward

PATH = "db.t"
COLUMNS = "id BIGINT NOT NULL, must INT NOT NULL, name STRING, r ROW<n INT NOT NULL>"
FOLDER_LAKES: dict[str, Callable[[str], LakeStorage]] = {
    "paimon": lambda folder: open_paimon({"warehouse": folder}),
    "delta": DeltaLakeStorage,
    "lance": lambda folder: open_lance({"warehouse": folder}),
    "hudi": HudiLakeStorage,
}
SUITES: dict[str, type[LakeSuite]] = {
    "iceberg": test_iceberg_lake.TestSqlCatalog,
    "paimon": test_paimon_lake.TestPaimonLake,
    "delta": test_delta_lake.TestDeltaLake,
    "lance": test_lance_lake.TestLanceLake,
    "hudi": test_hudi_lake.TestHudiLake,
}


@contextmanager
def opened(format: str, folder: Path) -> Iterator[LakeStorage]:
    if format == "iceberg":
        with folder_lake(folder) as lake:
            yield lake
    else:
        yield FOLDER_LAKES[format](str(folder))


class House:
    def __init__(self, folder: Path, format: str, lake: LakeStorage) -> None:
        self.world, self.lake, self.suite = InProcessLakeward(folder / "server", lake), lake, SUITES[format]()
        self.table = self.world.create(PATH, COLUMNS, primary_key="id", buckets=2)
        self.rows: dict[int, dict[str, Any]] = {}

    def write(self, *numbers: int, name: str = "ours") -> None:
        rows: list[dict[str, Any]] = [
            {"id": n, "must": n, "name": name, "r": None if n % 2 else {"n": n}} for n in numbers
        ]
        self.world.upsert(PATH, rows)
        self.rows |= {row["id"]: row for row in rows}
        self.world.tier(PATH)

    def resync(self) -> None:
        self.world.coordinator.operations.resync(TablePath.parse(PATH), ResyncChoice.RESYNC)
        self.world.tier(PATH)
        assert self.world.read(PATH).to_table().sort_by("id").to_pylist() == [self.rows[n] for n in sorted(self.rows)]
        reader = self.lake.open_reader(self.table)
        head = reader.load_base().head
        assert head is not None
        shown = sorted((row["id"], row["name"]) for batch in reader.scan(head) for row in batch.to_pylist())
        assert shown == [(n, self.rows[n]["name"]) for n in sorted(self.rows)]


def test_a_column_that_a_restored_version_has_not_comes_back(tmp_path: Path) -> None:
    with opened("lance", tmp_path) as lake:
        house = House(tmp_path, "lance", lake)
        house.write(1, 2)
        first = lake.open_reader(house.table).snapshots()[0].snapshot_id
        house.world.add_column(PATH, "later INT")
        house.world.upsert(PATH, [{"id": 2, "must": 2, "later": 5}, {"id": 3, "must": 3, "later": 6}])
        house.world.tier(PATH)
        house.suite.roll_back(lake, house.table, first)
        table = house.world.store.load_table(TablePath.parse(PATH))
        broken = lake.open_reader(table)
        with pytest.raises(LakeSchemaBroken, match=f"no column later; `lakeward table reconcile-schema {PATH}`"):
            list(broken.scan(broken.load_base_as_is().head or SnapshotId(""), columns=["later"]))
        assert lake.catalog().reconcile_schema(table) == ("column later: added; a resync writes its values",)
        house.world.coordinator.operations.resync(TablePath.parse(PATH), ResyncChoice.RESYNC)
        house.world.tier(PATH)
        reader = lake.open_reader(table)
        head = reader.load_base().head
        assert head is not None
        rows = sorted((row["id"], row["later"]) for batch in reader.scan(head) for row in batch.to_pylist())
        assert rows == [(1, None), (2, 5), (3, 6)]
        house.world.close()


def merge_files(house: House, format: str) -> None:
    """As the format's own engine compacts: it may know nothing of buckets."""
    if format == "lance":
        test_lance_lake.foreign(house.lake, house.table).compact()
    else:
        house.suite.foreign_rewrite(house.lake, house.table)


@pytest.mark.parametrize("format", SUITES)
def test_a_resync_finds_rows_in_files_of_several_buckets(tmp_path: Path, format: str) -> None:
    with opened(format, tmp_path) as lake:
        house = House(tmp_path, format, lake)
        house.write(*range(20))
        house.write(*range(10, 30), name="newer")
        merge_files(house, format)
        house.resync()
        house.write(3, 31, name="newest")
        merge_files(house, format)
        house.suite.foreign_delete(lake, house.table, 7)
        house.resync()
        house.write(7, 3, name="last")
        house.world.close()


@pytest.mark.parametrize("format", SUITES)
def test_a_resync_writes_what_the_lake_lacks_and_takes_out_the_rest(tmp_path: Path, format: str) -> None:
    with opened(format, tmp_path) as lake:
        house = House(tmp_path, format, lake)
        house.write(*range(6))
        house.write(2, 6, name="newer")
        house.resync()
        theirs = {"id": 3, "must": 0, "name": "theirs", "r": None, "__offset": 10**12}
        house.suite.foreign_insert(lake, house.table, [theirs])
        house.resync()
        first = lake.open_reader(house.table).snapshots()[0].snapshot_id
        house.suite.roll_back(lake, house.table, first)
        house.resync()
        house.write(1, name="last")
        house.world.close()
