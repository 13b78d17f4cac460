# SPDX-License-Identifier: Apache-2.0
"""Keys and partitions of a Hudi table: what its readers cannot tell apart is refused before it is acknowledged. And a
resync of such a table, and what hudi-rs reads."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hudi import HudiTableBuilder

from lakeward.errors import InvalidRequest, InvalidRows, UnsupportedType
from lakeward.lake.hudi.plugin import HudiLakeStorage
from lakeward.model import TablePath
from lakeward.protocol.operate import ResyncChoice
from tests.kit.inprocess import InProcessLakeward

T = "db.t"


@pytest.fixture
def house(tmp_path: Path) -> Iterator[InProcessLakeward]:
    house = InProcessLakeward(tmp_path / "house", HudiLakeStorage(str(tmp_path / "lake")))
    yield house
    house.close()


def tier(house: InProcessLakeward) -> None:
    assert not [error for end in house.tier(T) if (error := getattr(end, "error", None))]


def shown(house: InProcessLakeward) -> list[dict[str, Any]]:
    """What hudi-rs reads of the lake."""
    table = HudiTableBuilder.from_base_uri(house.lake.catalog().location(TablePath.parse(T))).build()
    rows = pa.Table.from_batches(table.read())
    names = [n for n in rows.column_names if not n.startswith("_")]
    return sorted(rows.select(names).to_pylist(), key=str)


@pytest.mark.parametrize("text", ["__empty__", "__null__"])
def test_a_key_that_hudi_keeps_for_itself_is_refused(house: InProcessLakeward, text: str) -> None:
    house.create(T, "sku STRING NOT NULL, v INT", primary_key="sku")
    house.upsert(T, [{"sku": "", "v": 1}])
    with pytest.raises(InvalidRows, match="__empty__") as refused:
        house.upsert(T, [{"sku": "a", "v": 1}, {"sku": text, "v": 2}])
    assert (refused.value.row, refused.value.column) == (1, "sku")
    house.delete(T, [{"sku": text}])
    tier(house)
    assert shown(house) == house.read(T).to_table().to_pylist() == [{"sku": "", "v": 1}]


def test_a_key_of_two_columns_that_reads_as_another_is_refused(house: InProcessLakeward) -> None:
    house.create(T, "a STRING NOT NULL, b STRING NOT NULL, v INT", primary_key="a, b")
    with pytest.raises(InvalidRows, match=",b:"):
        house.upsert(T, [{"a": "x,b:y", "b": "z", "v": 1}])
    rows = [{"a": "x", "b": "y,b:z", "v": 1}, {"a": "x,y", "b": "a:b", "v": 2}]
    house.upsert(T, rows)
    tier(house)
    assert shown(house) == sorted(rows, key=str)


@pytest.mark.parametrize("kind", ["BYTES", "BINARY(2)"])
def test_a_key_without_a_text_is_refused(house: InProcessLakeward, kind: str) -> None:
    with pytest.raises(UnsupportedType, match="hexadecimal"):
        house.create(T, f"k {kind} NOT NULL, v INT", primary_key="k")


@pytest.mark.parametrize("key", ["", "id, p"])
def test_a_partition_that_readers_take_for_null_is_refused(house: InProcessLakeward, key: str) -> None:
    table = house.create(T, "id INT NOT NULL, p STRING NOT NULL", primary_key=key, partition_by="p")
    put = house.upsert if key else house.append
    with pytest.raises(InvalidRequest, match="without a value"):
        put(T, [{"id": 1, "p": "__HIVE_DEFAULT_PARTITION__"}])
    with pytest.raises(InvalidRequest, match="without a value"):
        house.store.create_partition(table, "__HIVE_DEFAULT_PARTITION__")
    put(T, [{"id": 1, "p": "default"}])
    tier(house)
    assert [row["id"] for row in shown(house)] == [1]
    assert house.store.partitions(table) == ("default",)


def test_a_resync_brings_the_lake_to_the_rows_of_the_hot_store(house: InProcessLakeward) -> None:
    house.create(T, "id INT NOT NULL, v STRING", primary_key="id")
    house.upsert(T, [{"id": n, "v": "one"} for n in range(5)])
    tier(house)
    house.upsert(T, [{"id": 1, "v": "two"}])
    house.delete(T, [{"id": 2}])
    for _ in range(2):
        house.coordinator.operations.resync(TablePath.parse(T), ResyncChoice.RESYNC)
        tier(house)
        assert shown(house) == sorted(house.read(T).to_table().to_pylist(), key=str)
    house.upsert(T, [{"id": 3, "v": "after"}])
    tier(house)
    assert {"id": 3, "v": "after"} in shown(house)


def test_hudi_rs_reads_maps(house: InProcessLakeward) -> None:
    """And panics at a TIMESTAMP without a zone: docs/readers.md."""
    house.create(T, "id INT NOT NULL, m MAP<STRING NOT NULL, ROW<a INT>>", primary_key="id")
    house.upsert(T, [{"id": 1, "m": [("k", {"a": 1}), ("l", None)]}, {"id": 2, "m": None}])
    tier(house)
    assert [row["m"] for row in shown(house)] == [[("k", {"a": 1}), ("l", None)], None]
