# SPDX-License-Identifier: Apache-2.0
"""Others change a lake table's columns or partitioning so that rounds stop: `reconcile_schema` is the way back."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import IntegerType, LongType

from lakeward.errors import InvalidAlter, LakeSchemaBroken
from lakeward.lake.iceberg.plugin import IcebergLakeStorage
from lakeward.model import TablePath
from lakeward.protocol.heartbeat import TableFailed
from lakeward_testing.lakes import LakeRound, lake_rows
from lakeward_testing.lakes.suite import B0, B1, LakeSuite
from lakeward_testing.scripted_log import Row, ScriptedLog
from tests.kit.iceberg.engines import read_datafusion, read_duckdb
from tests.kit.inprocess import InProcessLakeward

COLUMNS = {"id": "BIGINT NOT NULL", "name": "STRING NOT NULL", "amount": "INT", "tags": "ARRAY<STRING>"}


def a_row(number: int) -> Row:
    return {"id": number, "name": f"n{number}", "amount": number, "tags": [str(number)]}


def a_log(lake: IcebergLakeStorage) -> ScriptedLog:
    log = LakeSuite().make_log(lake, columns=COLUMNS, primary_key=("id",))
    for bucket in (B0, B1):
        log.upsert(bucket, *(a_row(i) for i in range(6)))
    LakeRound.plan(lake, log).run()
    return log


def drop_not_null(table: Table) -> None:
    with table.update_schema() as update:
        update.make_column_optional("name")


def drop_columns(table: Table) -> None:
    with table.update_schema() as update:
        update.delete_column("name").delete_column("tags")


def rename(table: Table) -> None:
    with table.update_schema() as update:
        update.rename_column("amount", "sum").rename_column("__offset", "off")


def need_more(table: Table) -> None:
    with table.update_schema(allow_incompatible_changes=True) as update:
        update.add_column("theirs", IntegerType(), required=True)
        update.move_first("theirs")


def partition(table: Table) -> None:
    with table.update_spec() as update:
        update.add_field("amount", IdentityTransform(), "amount")


@pytest.mark.parametrize("change", [drop_not_null, drop_columns, rename, need_more, partition])
def test_rounds_go_on_after_the_schema_was_reconciled(
    lake: IcebergLakeStorage, change: Callable[[Table], None]
) -> None:
    log = a_log(lake)
    catalog, path = lake.catalog(), log.table.path
    change(lake.connection.load(path))
    log.upsert(B0, a_row(3), a_row(9))
    with pytest.raises(LakeSchemaBroken, match=f"lakeward table reconcile-schema {path}"):
        LakeRound.plan(lake, log).run()
    broken = lake.connection.load(path).metadata
    would = catalog.reconcile_schema(log.table, dry_run=True)
    assert would
    assert lake.connection.load(path).metadata == broken
    assert catalog.reconcile_schema(log.table) == would
    assert catalog.reconcile_schema(log.table) == ()
    LakeRound.plan(lake, log).run()
    assert lake_rows(lake, log.table) == log.expected(log.ends())
    location = lake.connection.load(path).metadata_location
    for read in (read_duckdb, read_datafusion):
        found = sorted(read(location).select(list(COLUMNS)).to_pylist(), key=lambda r: int(r["id"]))
        assert found == sorted((r for _, _, r in log.expected(log.ends())), key=lambda r: int(r["id"]))


def test_a_type_does_not_go_back(lake: IcebergLakeStorage) -> None:
    log = a_log(lake)
    with lake.connection.load(log.table.path).update_schema() as update:
        update.update_column("amount", LongType())
    with pytest.raises(InvalidAlter, match="amount: it is long there and int here"):
        lake.catalog().reconcile_schema(log.table)


def test_a_column_with_nulls_of_others_stays_as_it_is(lake: IcebergLakeStorage) -> None:
    log = a_log(lake)
    table = lake.connection.load(log.table.path)
    drop_not_null(table)
    theirs = {"id": 77, "name": None, "__bucket": 0, "__offset": 77, "__timestamp": 0}
    table.refresh().append(pa.Table.from_pylist([theirs], schema=table.schema().as_arrow()))
    before = lake.connection.load(log.table.path).metadata
    with pytest.raises(InvalidAlter, match="column name: it is NOT NULL here, and rows of others have no value"):
        lake.catalog().reconcile_schema(log.table)
    assert lake.connection.load(log.table.path).metadata == before


def test_a_table_that_stopped_goes_on(lake: IcebergLakeStorage, tmp_path: Path) -> None:
    world, path = InProcessLakeward(tmp_path / "server", lake), TablePath("db", "t")
    world.create("db.t", "id BIGINT NOT NULL, name STRING NOT NULL", primary_key="id")
    world.upsert("db.t", [{"id": 1, "name": "a"}])
    world.tier("db.t")
    drop_columns_of = lake.connection.load(path)
    with drop_columns_of.update_schema() as update:
        update.delete_column("name")
    world.upsert("db.t", [{"id": 2, "name": "b"}])
    (end,) = world.tier("db.t")
    assert isinstance(end, TableFailed)
    assert world.federation.reconcile_schema(path).changes
    world.tier("db.t")
    rows = world.read("db.t").to_table().sort_by("id").to_pylist()
    assert rows == [{"id": 1, "name": "a"}, {"id": 2, "name": "b"}]
    assert world.coordinator.views.table(path).lake_rows == 2
    world.close()
