# SPDX-License-Identifier: Apache-2.0
"""What people and accidents do to a lake: each case ends in a typed error that says what to do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.types import LongType

from lakeward.errors import (
    CommitConflict,
    InvalidAlter,
    InvalidConfig,
    InvalidTable,
    LakeMismatch,
    LakeSchemaBroken,
    LakeTableGone,
    LakeTampered,
    LakeUnavailable,
    UnsupportedType,
)
from lakeward.lake.iceberg.plugin import IcebergLakeStorage, load
from lakeward.model import Bucket, Column, Schema, parse_type
from lakeward.spi import OFFSETS_KEY, CommitProperties
from lakeward_testing.lakes import LakeRound, lake_rows
from lakeward_testing.lakes.suite import B0, COLUMNS, LakeSuite, row
from lakeward_testing.ports import free_port
from lakeward_testing.scripted_log import ScriptedLog


def one_round(lake: IcebergLakeStorage, **options: Any) -> ScriptedLog:
    log = LakeSuite().make_log(lake, **options)
    log.upsert(B0, row(1)) if log.table.is_pk else log.append(B0, row(1))
    LakeRound.plan(lake, log).run()
    return log


def test_an_unknown_catalog_type_is_named() -> None:
    with pytest.raises(InvalidConfig, match="no-such"):
        load({"type": "no-such"}).catalog().check()


def test_a_catalog_without_its_address_is_named() -> None:
    with pytest.raises(InvalidConfig, match="URI"):
        load({"type": "sql", "warehouse": "file:///tmp/x"}).catalog().check()


def test_a_warehouse_that_cannot_be_written_is_a_configuration_error(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file, no folder")
    lake = load({"type": "sql", "uri": f"sqlite:///{tmp_path}/c.db", "warehouse": f"file://{tmp_path}/taken/warehouse"})
    with pytest.raises(InvalidConfig, match="taken/warehouse cannot be written to"):
        lake.catalog().check()
    lake.connection.close()


def test_a_warehouse_of_an_unknown_kind_is_named(tmp_path: Path) -> None:
    lake = load({"type": "sql", "uri": f"sqlite:///{tmp_path}/c.db", "warehouse": "gopher://x/y"})
    with pytest.raises(InvalidConfig, match="gopher"):
        lake.catalog().check()
    lake.connection.close()


def test_a_database_that_cannot_be_opened_is_unavailable(tmp_path: Path) -> None:
    (tmp_path / "c.db").mkdir()
    with pytest.raises(LakeUnavailable):
        load(
            {"type": "sql", "uri": f"sqlite:///{tmp_path}/c.db", "warehouse": f"file://{tmp_path}/w"}
        ).catalog().check()


def test_a_catalog_that_is_down_is_unavailable() -> None:
    lake = load({"type": "rest", "uri": f"http://127.0.0.1:{free_port()}/iceberg", "request-timeout-s": "2"})
    with pytest.raises(LakeUnavailable, match="hot store keeps all data"):
        lake.catalog().check()
    with pytest.raises(LakeUnavailable):
        lake.open_reader(LakeSuite().table_info()).load_base()


def test_a_folder_that_became_unwritable_stops_a_writer(lake: IcebergLakeStorage) -> None:
    log = LakeSuite().make_log(lake)
    log.append(B0, row(1))
    made = LakeRound.plan(lake, log)
    data = Path(lake.connection.load(log.table.path).location().removeprefix("file://")) / "data"
    data.parent.mkdir(parents=True, exist_ok=True)
    data.write_text("in the way")
    with pytest.raises(LakeUnavailable, match="write a file"):
        made.write(B0)
    data.unlink()
    made.run()
    assert lake_rows(lake, log.table) == log.expected(log.ends())


def test_a_table_dropped_under_a_round(lake: IcebergLakeStorage) -> None:
    log = one_round(lake)
    log.append(B0, row(2))
    made = LakeRound.plan(lake, log).write(B0)
    request = made.prepare()
    lake.connection.catalog.drop_table(("contract", "t"))
    with pytest.raises(LakeTableGone, match=r"contract\.t"):
        made.commit(request)
    with pytest.raises(LakeTableGone):
        made.committer.find(made.round_id)
    with pytest.raises(LakeTableGone):
        made.prepare()


@pytest.mark.parametrize("change", ["drop", "rename", "widen", "spec"])
def test_a_schema_that_others_changed_stops_the_round_and_names_the_column(
    lake: IcebergLakeStorage, change: str
) -> None:
    log = one_round(lake, columns={**COLUMNS, "small": "INT"})
    table = lake.connection.load(log.table.path)
    if change == "spec":
        with table.update_spec() as spec:
            spec.add_identity("name")
    else:
        with table.update_schema() as update:
            if change == "drop":
                update.delete_column("small")
            elif change == "rename":
                update.rename_column("small", "tiny")
            else:
                update.update_column("small", LongType())
    with pytest.raises(LakeSchemaBroken, match="name" if change == "spec" else "small"):
        LakeRound.plan(lake, log)
    with pytest.raises(LakeMismatch):
        lake.catalog().validate(log.table)


def test_a_column_dropped_while_a_round_was_written(lake: IcebergLakeStorage) -> None:
    log = one_round(lake)
    log.append(B0, row(2))
    made = LakeRound.plan(lake, log).write(B0)
    with lake.connection.load(log.table.path).update_schema() as update:
        update.delete_column("amount")
    with pytest.raises(LakeSchemaBroken, match="amount"):
        made.prepare()


def test_a_column_that_alter_added_meanwhile_is_no_obstacle(lake: IcebergLakeStorage) -> None:
    log = one_round(lake)
    log.append(B0, row(2))
    made = LakeRound.plan(lake, log).write(B0)
    lake.catalog().add_columns(log.table, [Column(name="later", type=parse_type("INT"))])
    made.commit()
    assert [r["id"] for _, _, r in lake_rows(lake, log.table)] == [1, 2]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "JSON|delimiter|Expecting"),
        ('{"version":9,"offsets":{}}', "version 1"),
        ("file:///nowhere", "nowhere"),
        ('{"version":1,"offsets":{"":[[0,-4]]}}', "below 0"),
    ],
)
def test_offsets_that_someone_tampered_with(lake: IcebergLakeStorage, tmp_path: Path, text: str, reason: str) -> None:
    log = one_round(lake)
    table = lake.connection.load(log.table.path)
    metadata = json.loads(Path(table.metadata_location.removeprefix("file://")).read_text())
    metadata["snapshots"][0]["summary"][OFFSETS_KEY] = text
    Path(table.metadata_location.removeprefix("file://")).write_text(json.dumps(metadata))
    fresh = load({**lake.connection.options})
    with pytest.raises(LakeTampered, match="rebuild-lake") as stopped:
        fresh.open_reader(log.table).load_base()
    assert stopped.value.what == OFFSETS_KEY
    with pytest.raises(LakeTampered, match=reason):
        LakeRound.plan(fresh, log)
    fresh.connection.close()


def test_a_descriptor_that_iceberg_cannot_hold_creates_nothing(lake: IcebergLakeStorage) -> None:
    table = LakeSuite().table_info("precise", columns={"id": "INT", "at": "TIMESTAMP(9)"})
    with pytest.raises(UnsupportedType, match=r"contract\.precise\.at"):
        lake.catalog().create(table)
    assert lake.connection.catalog.list_namespaces() == []


def test_system_names_are_refused() -> None:
    with pytest.raises(InvalidTable, match="__offset"):
        Schema(columns=(Column(name="__offset", type=parse_type("INT")),))


@pytest.mark.parametrize("key", ["iceberg.write.delete.mode", "iceberg.write.format.default"])
def test_properties_that_rounds_rely_on_cannot_be_changed(lake: IcebergLakeStorage, key: str) -> None:
    log = one_round(lake, primary_key=("id",))
    with pytest.raises(InvalidAlter, match="rounds rely on it"):
        lake.catalog().set_properties(log.table, {key: "x"})


def test_a_required_column_cannot_be_added(lake: IcebergLakeStorage) -> None:
    log = one_round(lake)
    with pytest.raises(InvalidAlter, match="nullable"):
        lake.catalog().add_columns(log.table, [Column(name="must", type=parse_type("INT NOT NULL"))])


def test_properties_are_mapped_on_the_way_to_the_lake(lake: IcebergLakeStorage) -> None:
    log = one_round(lake)
    lake.catalog().set_properties(
        log.table, {"iceberg.write.target-file-size-bytes": "1000", "table.datalake.freshness": "5s"}
    )
    found = lake.connection.load(log.table.path).properties
    assert (found["write.target-file-size-bytes"], found["fluss.table.datalake.freshness"]) == ("1000", "5s")
    lake.catalog().set_properties(log.table, {"table.datalake.freshness": None})
    assert "fluss.table.datalake.freshness" not in lake.connection.load(log.table.path).properties


def test_a_map_of_many_buckets_goes_to_a_file_that_lives_with_its_snapshot(lake: IcebergLakeStorage) -> None:
    table = LakeSuite().table_info(columns={**COLUMNS, "region": "STRING NOT NULL"}, partition_keys=("region",))
    lake.catalog().create(table)
    committer, reader = lake.open_committer(table), lake.open_reader(table)
    made = LakeRound.plan(lake, ScriptedLog(table))
    offsets = {Bucket(f"a rather long partition name {i}", n): i for i in range(400) for n in range(2)}
    properties = CommitProperties(round_id=made.round_id, epoch=1, job="j", offsets=offsets)
    snapshot = committer.commit(committer.prepare([], {}, reader.load_base(), properties), made.precondition)
    path = snapshot.summary[OFFSETS_KEY]
    assert path.endswith(".json")
    assert reader.load_base().offsets == snapshot.offsets
    assert len(snapshot.offsets or {}) == 800
    upkeep = lake.open_maintenance(table)
    assert path in upkeep.references()
    assert path in {f.path for f in upkeep.list_files()}


def test_the_catalog_keeps_both_requirements(lake: IcebergLakeStorage) -> None:
    """Main and the tag are both asserted: a tag that moved alone is a conflict."""
    log = one_round(lake)
    first = lake.open_reader(log.table).load_base().head
    log.append(B0, row(2))
    LakeRound.plan(lake, log).run()
    log.append(B0, row(3))
    made = LakeRound.plan(lake, log).write(B0)
    request = made.prepare()
    table = lake.connection.load(log.table.path)
    assert first is not None
    table.manage_snapshots().remove_tag("lakeward").commit()
    table.refresh().manage_snapshots().create_tag(int(first), "lakeward").commit()
    with pytest.raises(CommitConflict, match="lakeward") as refused:
        made.commit(request)
    assert not refused.value.lost
