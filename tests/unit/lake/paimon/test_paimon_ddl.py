# SPDX-License-Identifier: Apache-2.0
"""DDL with a Paimon lake: what cannot work is refused in words, and nothing is half made."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from pypaimon.schema.schema_change import SchemaChange

from lakeward.errors import InvalidAlter, InvalidTable, LakeMismatch, LakeSchemaBroken, LakeUnavailable
from lakeward.lake.paimon.plugin import load
from lakeward.lake.paimon.storage import PaimonLakeStorage
from lakeward.model import BucketFunction, Column, Int64Type, Schema, TableDescriptor, TablePath
from lakeward.protocol.tables import AlterTable, CreateTable
from lakeward.spi import OWN_PROPERTY
from lakeward_testing.lakes.rounds import LakeRound, lake_rows
from lakeward_testing.lakes.suite import B0, LakeSuite, row
from lakeward_testing.paimonforeign import PaimonForeignEngine
from tests.kit.world import PATH, CoordinatorWorld

SUITE = LakeSuite()
ENABLE = AlterTable(properties={"table.datalake.enabled": "true"})


@pytest.fixture
def lake(tmp_path: Path) -> PaimonLakeStorage:
    storage = load({"warehouse": str(tmp_path / "warehouse")})
    assert isinstance(storage, PaimonLakeStorage)
    return storage


@pytest.fixture
def world(tmp_path: Path, lake: PaimonLakeStorage) -> Iterator[CoordinatorWorld]:
    made = CoordinatorWorld(tmp_path, lake, sync=False)
    made.set_options(lake_format="paimon")
    yield made
    made.close()


def test_what_paimon_fixes_with_the_first_rows_is_refused_in_words(lake: PaimonLakeStorage) -> None:
    log, catalog = SUITE.make_log(lake), lake.catalog()
    catalog.set_properties(log.table, {"paimon.data-file.path-directory": "data"})
    log.append(B0, row(1))
    LakeRound.plan(lake, log).run()
    catalog.set_properties(log.table, {"paimon.data-file.path-directory": "data"})
    for refused in (catalog.set_properties, lambda table, changes: catalog.check_alter(table, (), changes)):
        with pytest.raises(InvalidAlter, match=r"paimon\.data-file\.path-directory.*make a new table"):
            refused(log.table, {"paimon.data-file.path-directory": "other"})


def test_a_table_made_with_another_bucket_function_gets_no_paimon_lake(
    world: CoordinatorWorld, lake: PaimonLakeStorage
) -> None:
    """One that was there before the server had a lake; without a bucket key rows lie anywhere."""
    plain = TablePath("db", "plain")
    world.set_options(lake_format=None)
    made = world.create(pk=True, table__datalake__enabled="false").table
    assert made.descriptor.bucket_function is BucketFunction.FLUSS
    world.create("plain", table__datalake__enabled="false")
    world.set_options(lake_format="paimon")
    with pytest.raises(InvalidTable, match=r"bucket_function.*fluss.*expect the buckets of paimon.*create a new table"):
        world.federation.alter(PATH, ENABLE)
    assert not lake.catalog().exists(PATH)
    assert world.hot.load_table(PATH).descriptor.properties["table.datalake.enabled"] == "false"
    world.federation.alter(plain, ENABLE)
    assert lake.catalog().exists(plain)


def test_nor_is_one_made_for_it_where_it_is_gone(world: CoordinatorWorld, lake: PaimonLakeStorage) -> None:
    world.set_options(lake_format=None)
    world.create(pk=True)
    world.set_options(lake_format="paimon")
    with pytest.raises(InvalidTable, match="bucket_function"):
        world.federation.restore_lake(PATH, anew=True)
    assert not lake.catalog().exists(PATH)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("bucket", "-1"),
        ("deletion-vectors.enabled", "true"),
        ("changelog-producer", "lookup"),
        ("row-tracking.enabled", "true"),
        ("bucket-function.type", "mod"),
    ],
)
def test_options_that_rounds_cannot_keep_make_no_table(
    world: CoordinatorWorld, lake: PaimonLakeStorage, key: str, value: str
) -> None:
    columns = (Column(name="id", type=Int64Type(nullable=False)),)
    descriptor = TableDescriptor(
        schema=Schema(columns=columns), primary_key=("id",), properties={f"paimon.{key}": value}
    )
    with pytest.raises(InvalidTable, match="rounds rely on"):
        world.federation.create(CreateTable(path=PATH, descriptor=descriptor))
    assert not lake.catalog().exists(PATH)
    assert world.hot.load_tables() == []


@pytest.mark.parametrize(
    ("engine", "why"),
    [
        ("partial-update", "a null would not replace a value"),
        ("aggregation", "added to those before"),
        ("first-row", "later rows and deletes would be passed over"),
        ("nonsense", "rounds rely on deduplicate"),
    ],
)
def test_merge_engines_whose_rows_would_not_be_a_rounds_make_no_table(
    world: CoordinatorWorld, lake: PaimonLakeStorage, engine: str, why: str
) -> None:
    with pytest.raises(InvalidTable, match=f"{engine}.*rounds rely on deduplicate.*{why}|{why}"):
        world.create(pk=True, paimon__merge_engine=engine)
    assert not lake.catalog().exists(PATH)
    assert world.hot.load_tables() == []
    assert world.create(pk=True, paimon__merge_engine="deduplicate").created


def test_nor_is_a_table_of_others_with_such_an_engine_taken(world: CoordinatorWorld, lake: PaimonLakeStorage) -> None:
    world.create(pk=True)
    world.federation.drop(PATH)
    disown(lake)
    change_options(lake, {"merge-engine": "aggregation", "deletion-vectors.enabled": "true"})
    with pytest.raises(LakeMismatch, match=r"merge-engine: lake aggregation, wanted ded.*vectors.enabled: lake true"):
        world.create(pk=True)
    assert world.hot.load_tables() == []


@pytest.mark.parametrize(
    ("key", "value"),
    [("bucket", "4"), ("deletion-vectors.enabled", "true"), ("file.format", "orc"), ("ignore-delete", "true")],
)
def test_rounds_stop_at_an_option_that_others_changed_until_it_is_set_back(
    lake: PaimonLakeStorage, key: str, value: str
) -> None:
    log = SUITE.make_log(lake, primary_key=("id",))
    log.upsert(B0, row(1))
    LakeRound.plan(lake, log).run()
    change_options(lake, {key: value}, log.table.path)
    log.upsert(B0, row(1, "later"))
    with pytest.raises(LakeSchemaBroken, match=f"option {key}: lake {value}"):
        LakeRound.plan(lake, log).run()
    told = lake.catalog().reconcile_schema(log.table, dry_run=True)
    assert told == lake.catalog().reconcile_schema(log.table)
    assert told[0].startswith(f"option {key}: lake {value}")
    assert lake.catalog().reconcile_schema(log.table) == ()
    LakeRound.plan(lake, log).run()
    assert lake_rows(lake, log.table) == log.expected(log.ends())


def change_options(lake: PaimonLakeStorage, options: dict[str, str], path: TablePath = PATH) -> None:
    changes = [SchemaChange.set_option(key, value) for key, value in options.items()]
    PaimonForeignEngine(lake.connection, path).alter(*changes)


def disown(lake: PaimonLakeStorage) -> None:
    """Nothing says any more that Lakeward made it."""
    own = [key for key in lake.connection.load(PATH).table_schema.options if key.startswith(OWN_PROPERTY)]
    PaimonForeignEngine(lake.connection, PATH).alter(*map(SchemaChange.remove_option, own))


def test_a_table_of_others_with_another_shape_is_left_alone(world: CoordinatorWorld, lake: PaimonLakeStorage) -> None:
    world.create(pk=True, buckets=2)
    world.federation.drop(PATH)
    disown(lake)
    with pytest.raises(LakeMismatch, match=r"primary keys: lake id, wanted none.*option bucket: lake 2, wanted -1"):
        world.create()
    assert world.hot.load_tables() == []
    assert lake.connection.load(PATH).table_schema.primary_keys == ["id"]


def test_a_bucket_count_that_others_changed_is_told(world: CoordinatorWorld, lake: PaimonLakeStorage) -> None:
    table = world.create(pk=True, buckets=2).table
    with pytest.raises(InvalidAlter, match=r"paimon.bucket.*rounds rely on what follows from the keys"):
        world.federation.alter(PATH, AlterTable(properties={"paimon.bucket": "4"}))
    change_options(lake, {"bucket": "4"})
    with pytest.raises(LakeMismatch, match="option bucket: lake 4, wanted 2"):
        lake.catalog().validate(table)


def test_an_option_that_paimon_itself_refuses_makes_no_table(world: CoordinatorWorld, lake: PaimonLakeStorage) -> None:
    with pytest.raises(InvalidTable, match=r"paimon\.type=view"):
        world.create(pk=True, paimon__type="view")
    assert not lake.catalog().exists(PATH)
    assert world.hot.load_tables() == []


def test_a_lake_that_is_away_makes_no_table(world: CoordinatorWorld, tmp_path: Path) -> None:
    shutil.rmtree(tmp_path / "warehouse")
    (tmp_path / "warehouse").write_text("somebody's file in its place")
    with pytest.raises(LakeUnavailable, match="create table"):
        world.create(pk=True)
    assert world.hot.load_tables() == []
    (tmp_path / "warehouse").unlink()
    assert world.create(pk=True).created
