# SPDX-License-Identifier: Apache-2.0
"""Embedded tables with `table.datalake.system-columns = false`: the lake has the user's columns alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lakeward.config import Config
from lakeward.config.sources import Setting
from lakeward.errors import InvalidAlter, InvalidTable
from lakeward.lake.iceberg.plugin import IcebergLakeStorage
from lakeward.model import SYSTEM_COLUMNS_PROPERTY, Bucket, OffsetRange, TablePath
from lakeward.protocol.heartbeat import TableFailed, TableFinished
from lakeward.protocol.tables import AlterTable
from lakeward.read.streamrows import StreamRows
from lakeward.spi import LakeStorage, load_lake
from lakeward.verify import verify_table
from lakeward_testing.icebergforeign import IcebergForeignEngine
from tests.kit.iceberg.engines import read_duckdb
from tests.kit.inprocess import InProcessLakeward

LOG, PK = TablePath("db", "log"), TablePath("db", "pk")
CLEAN = {SYSTEM_COLUMNS_PROPERTY: "false"}


@pytest.fixture
def world(tmp_path: Path, lake: IcebergLakeStorage) -> Iterator[InProcessLakeward]:
    made = InProcessLakeward(tmp_path / "server", lake, quarantine_after=1_000)
    made.create(str(LOG), "id bigint, v string", buckets=2, **CLEAN)
    made.create(str(PK), "id bigint not null, v string", primary_key="id", buckets=2, **CLEAN)
    yield made
    made.close()


def loaded(world: InProcessLakeward, path: TablePath) -> Any:
    assert isinstance(world.lake, IcebergLakeStorage)
    return world.lake.connection.load(path)


def holds(world: InProcessLakeward, path: TablePath) -> bool:
    return verify_table(world.plugin, path, deep=True, open_storage=lambda _plan: world.lake).holds


def test_every_reader_sees_the_users_columns_alone(world: InProcessLakeward) -> None:
    for wave in range(3):
        world.append(str(LOG), [{"id": 10 * wave + n, "v": "log"} for n in range(4)])
        world.upsert(str(PK), [{"id": n, "v": f"wave {wave}"} for n in range(wave, 6)])
        world.delete(str(PK), [{"id": 5 - wave}])
        world.tier(str(LOG))
        world.tier(str(PK))
        world.add_column(str(PK), f"more{wave} int")
    world.upsert(str(PK), [{"id": 0, "v": "hot", "more0": 7, "more1": 8, "more2": 9}])
    assert loaded(world, LOG).schema().column_names == ["id", "v"]
    assert loaded(world, PK).schema().column_names == ["id", "v", "more0", "more1", "more2"]
    in_lake = {r["id"]: r["v"] for r in read_duckdb(loaded(world, PK).metadata_location).to_pylist()}
    assert in_lake == {0: "wave 0", 1: "wave 1", 2: "wave 2", 4: "wave 2", 5: "wave 2"}
    assert {r["id"]: r["v"] for r in world.read(str(PK)).to_table().to_pylist()} == {**in_lake, 0: "hot"}
    found = world.read(str(LOG), system_columns=True).to_table().to_pylist()
    assert len({(r["__bucket"], r["__offset"]) for r in found}) == len(found) == 12
    assert holds(world, LOG)
    assert holds(world, PK)


def test_a_stream_from_a_moment_begins_with_what_was_committed_after_it(
    tmp_path: Path, lake: IcebergLakeStorage
) -> None:
    """Times of rows are not kept: none is passed over."""
    world = InProcessLakeward(tmp_path / "server", lake)
    table = world.create("db.daily", "day string not null, id bigint", partition_by="day", **CLEAN)  # type: ignore[arg-type]
    for count in (3, 2):
        world.append("db.daily", [{"day": "a", "id": n} for n in range(count)])
        world.tier("db.daily")
    world.store.drop_partition(table, "a")
    reader, bucket = lake.open_reader(table), Bucket("a", 0)
    first, second = (s.committed_at_ms for s in reader.snapshots())
    rows = StreamRows(world.plugin, table, reader)
    assert [rows.offset_at(bucket, at, 5) for at in (first - 1, first, second)] == [0, 3, 5]
    assert sum(b.num_rows for b in rows.range(bucket, OffsetRange(3, 5), ["id"])) == 2
    world.close()


@pytest.mark.parametrize("choice", ["stop", "remove"])
def test_rows_that_another_engine_appends_are_noticed_by_their_files(
    tmp_path: Path, lake: IcebergLakeStorage, choice: str
) -> None:
    world = InProcessLakeward(tmp_path / "server", lake, quarantine_after=1_000)
    properties = {**CLEAN, "table.datalake.foreign-rows": choice}
    world.create(str(PK), "id bigint not null, v string", primary_key="id", **properties)  # type: ignore[arg-type]
    world.upsert(str(PK), [{"id": n, "v": "ours"} for n in range(3)])
    world.tier(str(PK))
    theirs = pa.Table.from_pylist([{"id": 1, "v": "theirs"}], loaded(world, PK).schema().as_arrow())
    IcebergForeignEngine(lake.connection.catalog, PK).append(theirs)
    world.upsert(str(PK), [{"id": 2, "v": "later"}])
    (end,) = world.tier(str(PK))
    if choice == "stop":
        assert isinstance(end, TableFailed)
        assert end.error["code"] == "foreign-rows-found"
    else:
        assert isinstance(end, TableFinished)
        assert holds(world, PK)
    world.close()


def test_it_is_fixed_when_the_table_is_made(world: InProcessLakeward) -> None:
    with pytest.raises(InvalidAlter, match=r"table\.datalake\.system-columns.*fixed when the table is created"):
        world.federation.alter(LOG, AlterTable(properties={SYSTEM_COLUMNS_PROPERTY: "true"}))
    side = {"table.datalake.lakes.default.system-columns": "false"}
    with pytest.raises(InvalidTable, match="said of a table, not of one side"):
        world.create("db.other", "id bigint", **side)  # type: ignore[arg-type]


def test_a_server_that_says_so_makes_clean_tables(tmp_path: Path, lake: IcebergLakeStorage) -> None:
    config = Config([Setting(SYSTEM_COLUMNS_PROPERTY, "false", "a file")])
    world = InProcessLakeward(tmp_path / "server", lake, config=config)
    made = world.create("db.t", "id bigint")
    assert made.descriptor.is_clean
    assert loaded(world, made.path).schema().column_names == ["id"]
    world.close()


@pytest.mark.parametrize(("format", "where"), [("memory", "name"), ("delta", "warehouse")])
def test_other_formats_refuse_it_in_words(tmp_path: Path, format: str, where: str) -> None:
    lake: LakeStorage = load_lake(format, {where: str(tmp_path / "lake")})
    world = InProcessLakeward(tmp_path / "server", lake)
    with pytest.raises(InvalidTable, match=f"the lake format {format} has no tables without system columns"):
        world.create("db.t", "id bigint", **CLEAN)  # type: ignore[arg-type]
    assert not lake.catalog().exists(TablePath("db", "t"))
    world.close()
