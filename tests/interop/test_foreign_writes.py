# SPDX-License-Identifier: Apache-2.0
"""Others write to our tables between our rounds: rounds go on, or stop with an error that says what to do."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.types import IntegerType, LongType

from lakeward.errors import (
    CommitConflict,
    ForeignRowsFound,
    LakeMismatch,
    LakeRolledBack,
    LakeTampered,
    ReplacedRowMissing,
)
from lakeward.lake.iceberg.plugin import IcebergLakeStorage
from lakeward.model import Column, OffsetMap, OffsetSet, SnapshotId, TableId, TablePath, parse_type
from lakeward.protocol.heartbeat import TableFailed
from lakeward.protocol.operate import ResyncChoice
from lakeward.spi import ROWS_KEY, TAG
from lakeward_testing.icebergforeign import IcebergForeignEngine
from lakeward_testing.lakes import LakeRound, lake_rows
from lakeward_testing.lakes.suite import B0, B1, LakeSuite, row
from lakeward_testing.lakes.upserts import change_randomly
from lakeward_testing.scripted_log import ScriptedLog
from tests.kit.iceberg.engines import read_datafusion, read_duckdb
from tests.kit.iceberg.flink import FlinkJob
from tests.kit.iceberg.merge_on_read import MergeOnReadEngine
from tests.kit.inprocess import InProcessLakeward

FAR = 10**12
"""An offset that no log of ours reaches: a foreign row's."""


def engine(lake: IcebergLakeStorage, log: ScriptedLog) -> IcebergForeignEngine:
    return IcebergForeignEngine(lake.connection.catalog, log.table.path)


def pk_log(lake: IcebergLakeStorage) -> ScriptedLog:
    log = LakeSuite().make_log(lake, primary_key=("id",))
    change_randomly(log, random.Random(1), 40)
    LakeRound.plan(lake, log).run()
    return log


def system_rows(lake: IcebergLakeStorage, log: ScriptedLog, rows: list[dict[str, Any]]) -> pa.Table:
    schema = lake.connection.load(log.table.path).schema().as_arrow()
    return pa.Table.from_pylist(rows, schema=schema)


@pytest.mark.parametrize(
    "writes",
    [
        [IcebergForeignEngine.rewrite],
        [IcebergForeignEngine.rewrite, IcebergForeignEngine.expire],
        [
            IcebergForeignEngine.touch,
            IcebergForeignEngine.rewrite,
            IcebergForeignEngine.touch,
            IcebergForeignEngine.expire,
        ],
        [
            IcebergForeignEngine.expire,
            IcebergForeignEngine.rewrite,
            IcebergForeignEngine.rewrite,
            IcebergForeignEngine.expire,
        ],
    ],
    ids=["rewrite", "rewrite, expire", "a cut chain", "twice"],
)
def test_rounds_go_on_after_others_rewrote_and_expired(
    lake: IcebergLakeStorage, writes: list[Callable[[IcebergForeignEngine], None]]
) -> None:
    log, chance = pk_log(lake), random.Random(2)
    for _ in range(3):
        for write in writes:
            write(engine(lake, log))
        change_randomly(log, chance, 40)
        LakeRound.plan(lake, log).run()
        assert lake_rows(lake, log.table) == log.expected(log.ends())
        found = read_duckdb(lake.connection.load(log.table.path).metadata_location)
        assert found.num_rows == len(log.expected(log.ends()))


def foreign_row(number: int, offset: int) -> dict[str, Any]:
    return {"id": number, "name": "theirs", "amount": None, "__bucket": 0, "__offset": offset, "__timestamp": 0}


def test_rows_that_others_appended_to_a_log_table_stay_theirs(lake: IcebergLakeStorage) -> None:
    log = LakeSuite().make_log(lake)
    log.append(B0, row(1), row(2))
    LakeRound.plan(lake, log).run()
    engine(lake, log).append(system_rows(lake, log, [foreign_row(-1, FAR)]))
    log.append(B0, row(3))
    LakeRound.plan(lake, log).run()
    rows = lake_rows(lake, log.table)
    assert [r for r in rows if r[1] != FAR] == log.expected(log.ends())
    assert len([r for r in rows if r[1] == FAR]) == 1


@pytest.mark.parametrize("offset", [FAR, 0], ids=["an offset of their own", "one that a row of ours has"])
def test_rows_that_others_inserted_into_a_pk_table_stop_it(lake: IcebergLakeStorage, offset: int) -> None:
    log = pk_log(lake)
    engine(lake, log).append(system_rows(lake, log, [foreign_row(1, offset), foreign_row(-1, offset)]))
    theirs = lake.connection.load(log.table.path).current_snapshot()
    assert theirs is not None
    change_randomly(log, random.Random(3), 30)
    with pytest.raises(ForeignRowsFound, match="resync") as stopped:
        LakeRound.plan(lake, log).run()
    assert (stopped.value.rows, stopped.value.snapshots) == (2, str(theirs.snapshot_id))


@pytest.mark.parametrize(
    "between", [IcebergForeignEngine.touch, IcebergForeignEngine.rewrite], ids=["touch", "rewrite"]
)
def test_rows_that_others_inserted_are_removed_where_the_table_says_so(
    lake: IcebergLakeStorage, between: Callable[[IcebergForeignEngine], None]
) -> None:
    log = LakeSuite().make_log(lake, primary_key=("id",), properties={"table.datalake.foreign-rows": "remove"})
    change_randomly(log, random.Random(1), 40)
    LakeRound.plan(lake, log).run()
    engine(lake, log).append(system_rows(lake, log, [foreign_row(1, FAR), foreign_row(-1, FAR + 1)]))
    between(engine(lake, log))
    change_randomly(log, random.Random(3), 30)
    LakeRound.plan(lake, log).run()
    assert lake_rows(lake, log.table) == log.expected(log.ends())
    found = read_duckdb(lake.connection.load(log.table.path).metadata_location)
    assert found.num_rows == len(log.expected(log.ends()))


def test_a_resync_takes_out_what_others_inserted(lake: IcebergLakeStorage, tmp_path: Path) -> None:
    """One of the rows has the offset of a row of ours, which stays."""
    world = InProcessLakeward(tmp_path / "server", lake)
    path = TablePath("db", "t")
    world.create("db.t", "id BIGINT NOT NULL, name STRING", primary_key="id")
    world.upsert("db.t", [{"id": i, "name": f"ours {i}"} for i in range(5)])
    world.tier("db.t")
    theirs = IcebergForeignEngine(lake.connection.catalog, path)
    rows = [
        {"id": number, "name": "theirs", "__bucket": 0, "__offset": offset, "__timestamp": 0}
        for number, offset in ((1, 0), (9, FAR))
    ]
    theirs.append(pa.Table.from_pylist(rows, schema=theirs.load().schema().as_arrow()))
    world.upsert("db.t", [{"id": 9, "name": "ours 9"}])
    (end,) = world.tier("db.t")
    assert isinstance(end, TableFailed)
    assert end.error["code"] == ForeignRowsFound.code
    world.coordinator.operations.resync(path, ResyncChoice.RESYNC)
    world.tier("db.t")
    found = world.read("db.t").to_table().sort_by("id").to_pylist()
    assert found == [{"id": i, "name": f"ours {i}"} for i in (0, 1, 2, 3, 4, 9)]
    assert read_duckdb(lake.connection.load(path).metadata_location).num_rows == 6
    world.close()


@pytest.mark.parametrize("theirs", ["more", "later"], ids=["another column", "the same column"])
def test_columns_that_others_added_or_moved_do_not_keep_us_from_adding_ours(
    lake: IcebergLakeStorage, theirs: str
) -> None:
    log = pk_log(lake)
    with lake.connection.load(log.table.path).update_schema() as update:
        update.add_column(theirs, IntegerType())
        update.move_first("amount")
    later = Column(name="later", type=parse_type("INT"))
    for _ in range(2):  # safe to repeat
        lake.catalog().add_columns(log.table, [later])
    descriptor = log.table.descriptor
    log.table = log.table.with_descriptor(replace(descriptor, schema=descriptor.schema.with_added([later])))
    log.upsert(B0, {**row(1), "later": 7})
    LakeRound.plan(lake, log).run()
    found = read_duckdb(lake.connection.load(log.table.path).metadata_location).to_pylist()
    assert [r["later"] for r in found if r["id"] == 1 and r["__bucket"] == 0] == [7]
    assert len(found) == len(log.expected(log.ends()))


def test_a_column_that_others_added_with_another_type_is_named(lake: IcebergLakeStorage) -> None:
    log = pk_log(lake)
    with lake.connection.load(log.table.path).update_schema() as update:
        update.add_column("later", LongType())
    with pytest.raises(LakeMismatch, match="later"):
        lake.catalog().add_columns(log.table, [Column(name="later", type=parse_type("INT"))])


def test_the_lakes_rows_are_counted_right_after_others_deleted_some(lake: IcebergLakeStorage) -> None:
    """Deletes of ours are left behind that name a file which theirs replaced."""
    log = LakeSuite().make_log(lake, primary_key=("id",))
    log.upsert(B0, *(row(i) for i in range(8)))
    LakeRound.plan(lake, log).run()
    log.upsert(B0, row(1, "new"), row(2, "new"))
    LakeRound.plan(lake, log).run()
    engine(lake, log).delete("id == 5")
    for number in (6, 5):  # the row that they deleted comes back later
        log.upsert(B0, row(number, "again"))
        snapshot = LakeRound.plan(lake, log).run()
        assert snapshot.totals is not None
        assert snapshot.totals.rows == len(lake_rows(lake, log.table))
    assert lake_rows(lake, log.table) == log.expected(log.ends())


def test_rows_that_others_deleted_by_position_are_counted_once(lake: IcebergLakeStorage) -> None:
    """A round that replaces such a row finds it in its file, where it lives no more."""
    log = LakeSuite().make_log(lake, primary_key=("id",), properties={"iceberg.format-version": "3"})
    log.upsert(B0, *(row(i) for i in range(8)))
    LakeRound.plan(lake, log).run()
    (file,) = [task.file.file_path for task in engine(lake, log).load().scan().plan_files()]
    MergeOnReadEngine(lake.connection.catalog, log.table.path).delete_rows({file: [2, 5]})
    assert lake.open_reader(log.table).totals().rows == 6
    for number in (1, 5, 2):
        log.upsert(B0, row(number, "again"))
        snapshot = LakeRound.plan(lake, log).run()
        assert snapshot.totals is not None
        assert snapshot.totals.rows == len(lake_rows(lake, log.table))
    assert lake_rows(lake, log.table) == log.expected(log.ends())


def test_status_shows_the_rows_that_are_left_right_after_others_deleted_some(
    lake: IcebergLakeStorage, tmp_path: Path
) -> None:
    """Deletes of ours are left behind that name a file which theirs replaced."""
    world, path = InProcessLakeward(tmp_path / "server", lake), TablePath("db", "t")
    world.create("db.t", "id BIGINT NOT NULL, name STRING", primary_key="id")
    for name in ("old", "new"):
        world.upsert("db.t", [{"id": i, "name": name} for i in range(5)])
        world.tier("db.t")
    IcebergForeignEngine(lake.connection.catalog, path).delete("id < 2")
    world.coordinator.refresh_figures(path)
    assert world.coordinator.views.table(path).lake_rows == 3
    world.coordinator.refresh_figures(TablePath("db", "nobody_made_it"))
    world.close()


def test_a_replaced_row_that_others_deleted_is_counted_and_no_error(lake: IcebergLakeStorage) -> None:
    log = LakeSuite().make_log(lake, primary_key=("id",))
    log.upsert(B0, row(1), row(2), row(3))
    LakeRound.plan(lake, log).run()
    engine(lake, log).delete("id == 2")
    log.upsert(B0, row(2, "again"))
    made = LakeRound.plan(lake, log)
    snapshot = made.run()
    assert snapshot.summary["lakeward.missing-replaced"] == "1"
    assert lake_rows(lake, log.table) == log.expected(log.ends())
    # The one explained row is used up: another that is nowhere has no excuse.
    late = LakeRound.plan(lake, log)
    late.take(B0, log.end(B0) + 1, None, OffsetSet([FAR]))
    with pytest.raises(ReplacedRowMissing):
        late.prepare()


def test_a_dropped_tag_is_put_back_by_the_next_round(lake: IcebergLakeStorage) -> None:
    log = pk_log(lake)
    table = lake.connection.load(log.table.path)
    table.manage_snapshots().remove_tag(TAG).commit()
    change_randomly(log, random.Random(4), 20)
    snapshot = LakeRound.plan(lake, log).run()
    refs = lake.connection.load(log.table.path).metadata.refs
    assert refs[TAG].snapshot_id == int(snapshot.snapshot_id)
    assert lake_rows(lake, log.table) == log.expected(log.ends())


def test_a_rollback_names_both_snapshots_and_the_choices(lake: IcebergLakeStorage) -> None:
    log = pk_log(lake)
    first = lake.open_reader(log.table).load_base().head
    change_randomly(log, random.Random(5), 20)
    second = LakeRound.plan(lake, log).run().snapshot_id
    assert first is not None
    engine(lake, log).roll_back(first)
    with pytest.raises(LakeRolledBack, match="resync") as stopped:
        LakeRound.plan(lake, log)
    assert (stopped.value.head, stopped.value.ours) == (first, second)
    engine(lake, log).roll_back(SnapshotId(second))  # main is moved back
    assert lake_rows(lake, log.table) == log.expected(log.ends())


def test_main_moved_away_and_back_while_a_round_was_prepared(lake: IcebergLakeStorage) -> None:
    """Only main looks the same: the tag says that one of ours came between."""
    log = pk_log(lake)
    base = lake.open_reader(log.table).load_base()
    change_randomly(log, random.Random(6), 20)
    sleeper = LakeRound.plan(lake, log).write(B0)
    request = sleeper.prepare()
    LakeRound.plan(lake, log).run()
    assert base.head is not None
    engine(lake, log).roll_back(base.head)
    with pytest.raises(CommitConflict):
        sleeper.commit(request)


def test_rows_changed_behind_a_cut_chain_are_a_rollback(lake: IcebergLakeStorage) -> None:
    log = LakeSuite().make_log(lake)
    log.append(B0, row(1), row(2))
    LakeRound.plan(lake, log).run()
    engine(lake, log).delete("id == 2")
    engine(lake, log).touch()
    engine(lake, log).expire()
    with pytest.raises(LakeRolledBack):
        lake.open_reader(log.table).load_base()


def test_a_table_of_the_fluss_plugin_is_understood(lake: IcebergLakeStorage) -> None:
    log = LakeSuite().make_log(lake, primary_key=("id",), table_id=TableId("42"))
    job = FlinkJob(lake.connection.catalog, log.table.path, "42")
    first = [{**row(i), "__bucket": 0, "__offset": i, "__timestamp": 0} for i in range(5)]
    snapshot = job.commit(system_rows(lake, log, first), [5, -1])
    reader = lake.open_reader(log.table)
    base = reader.load_base()
    assert (base.offsets, base.token, base.head) == (OffsetMap({B0: 5}), str(snapshot), str(snapshot))
    # An update of 1 and a delete of 2, as the Flink job writes them: keys of older rows, then the new row.
    keys = pa.table({"id": pa.array([1, 2], pa.int64())})
    job.commit(system_rows(lake, log, [{**row(1, "new"), "__bucket": 0, "__offset": 6, "__timestamp": 0}]), [8], keys)
    shown = lake_rows(lake, log.table)
    assert [(offset, r["id"], r["name"]) for _, offset, r in shown] == [
        (0, 0, "row 0"),
        (3, 3, "row 3"),
        (4, 4, "row 4"),
        (6, 1, "new"),
    ]
    location = lake.connection.load(log.table.path).metadata_location
    assert read_duckdb(location).num_rows == read_datafusion(location).num_rows == 4
    (deleted,) = {d for f in reader.files(reader.load_base().head or SnapshotId("")) for d in f.deletes}
    assert (deleted.content, deleted.equality_columns) == ("equality", ("id",))
    # Our next round goes on where the job stopped, on the job's snapshot as token.
    log.skip(B0, 8)
    log.upsert(B0, row(7), row(8))
    log.upsert(B1, row(9))
    done = LakeRound.plan(lake, log).run()
    assert done.offsets == OffsetMap({B0: 10, B1: 1})
    assert ROWS_KEY not in done.summary  # nobody counted before us
    assert len(lake_rows(lake, log.table)) == 7


def test_a_fluss_offsets_file_that_is_gone_is_named(lake: IcebergLakeStorage) -> None:
    log = LakeSuite().make_log(lake, table_id=TableId("42"))
    FlinkJob(lake.connection.catalog, log.table.path, "42").commit(
        system_rows(lake, log, [{**row(1), "__bucket": 0, "__offset": 0, "__timestamp": 0}]), [1]
    )
    table = lake.connection.load(log.table.path)
    head = table.metadata.current_snapshot()
    assert head is not None
    assert head.summary is not None
    table.io.delete(head.summary.additional_properties["fluss-offsets"])
    with pytest.raises(LakeTampered, match="fluss-offsets"):
        lake.open_reader(log.table).load_base()


def test_a_resync_mends_values_that_others_altered(lake: IcebergLakeStorage, tmp_path: Path) -> None:
    world, path = InProcessLakeward(tmp_path / "server", lake), TablePath("db", "t")
    world.create("db.t", "id BIGINT NOT NULL, name STRING", primary_key="id")
    world.upsert("db.t", [{"id": i, "name": f"ours {i}"} for i in range(5)])
    world.tier("db.t")
    theirs = IcebergForeignEngine(lake.connection.catalog, path)
    rows = theirs.load().scan().to_arrow().sort_by("id")
    theirs.delete("id < 3")
    altered = rows.slice(0, 3).set_column(1, rows.schema.field("name"), pa.array(["theirs"] * 3))
    theirs.append(altered)
    world.upsert("db.t", [{"id": 2, "name": "ours again"}])
    world.coordinator.operations.resync(path, ResyncChoice.RESYNC)
    world.tier("db.t")
    expected = [{"id": i, "name": "ours again" if i == 2 else f"ours {i}"} for i in range(5)]
    assert world.read("db.t").to_table().sort_by("id").to_pylist() == expected
    found = read_duckdb(lake.connection.load(path).metadata_location).select(["id", "name"]).sort_by("id")
    assert found.to_pylist() == expected
    world.close()


def test_a_resync_after_a_rollback_to_a_snapshot_of_others_doubles_no_row(
    lake: IcebergLakeStorage, tmp_path: Path
) -> None:
    """Nothing of ours is left among main's ancestors: the resync compares with the rows that are there all the same,
    also in a bucket that never had a row."""
    world, path = InProcessLakeward(tmp_path / "server", lake), TablePath("db", "t")
    remove = {"table.datalake.foreign-rows": "remove"}
    world.create("db.t", "id BIGINT NOT NULL, name STRING", primary_key="id", buckets=8, **remove)
    world.upsert("db.t", [{"id": i, "name": f"ours {i}"} for i in range(3)])
    world.tier("db.t")
    theirs = IcebergForeignEngine(lake.connection.catalog, path)
    rows = theirs.load().scan().to_arrow()
    empty = next(n for n in range(8) if n not in rows["__bucket"].to_pylist())
    theirs.append(pa.Table.from_pylist([{**rows.to_pylist()[0], "id": -1, "__bucket": empty}], rows.schema))
    head = theirs.load().current_snapshot()
    assert head is not None
    world.upsert("db.t", [{"id": 5, "name": "ours 5"}])
    world.tier("db.t")
    theirs.roll_back(SnapshotId(str(head.snapshot_id)))
    oldest = theirs.load().metadata.snapshots[0]
    theirs.load().maintenance.expire_snapshots().by_ids([oldest.snapshot_id]).commit()
    world.coordinator.operations.resync(path, ResyncChoice.RESYNC)
    world.tier("db.t")
    found = read_duckdb(lake.connection.load(path).metadata_location).select(["id", "name"]).sort_by("id")
    assert found.to_pylist() == [{"id": i, "name": f"ours {i}"} for i in (0, 1, 2, 5)]
    world.close()
