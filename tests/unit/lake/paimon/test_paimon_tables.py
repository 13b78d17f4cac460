# SPDX-License-Identifier: Apache-2.0
"""What is Paimon's own: its layout, changes that name a key alone, sleepers, merged rows of others, refusals."""

from __future__ import annotations

import threading
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lakeward.changelog.columns import without_prev
from lakeward.errors import (
    CommitConflict,
    ForeignRowsFound,
    InvalidAlter,
    InvalidConfig,
    InvalidTable,
    LakewardError,
    UnsupportedType,
)
from lakeward.lake.paimon.meta.mapping import lake_options, wrong_options
from lakeward.lake.paimon.plugin import load
from lakeward.lake.paimon.storage import PaimonLakeStorage
from lakeward.lake.paimon.writer import PaimonLakeWriter
from lakeward.model import Bucket, Column, SnapshotId, parse_type
from lakeward_testing.faults import FaultAction, Faults
from lakeward_testing.lakes.rewriting import LakeRewrite
from lakeward_testing.lakes.rounds import LakeRound, lake_rows
from lakeward_testing.lakes.suite import B0, B1, COLUMNS, LakeSuite, row
from lakeward_testing.paimonforeign import PaimonForeignEngine

SUITE = LakeSuite()
PK: dict[str, Any] = {"primary_key": ("id",)}


@pytest.fixture
def lake(tmp_path: Path) -> PaimonLakeStorage:
    storage = load({"warehouse": (tmp_path / "warehouse").as_uri()})
    assert isinstance(storage, PaimonLakeStorage)
    return storage


def test_files_lie_where_paimon_looks_for_them(lake: PaimonLakeStorage, tmp_path: Path) -> None:
    """Buckets and partitions in folders; without a bucket key one bucket, and the column tells."""
    columns = {**COLUMNS, "day": "DATE NOT NULL"}
    keyed = SUITE.make_log(lake, "keyed", bucket_keys=("id",))
    plain = SUITE.make_log(lake, "plain", columns=columns, partition_keys=("day",))
    keyed.append(B1, row(1))
    plain.append(Bucket("2024-02-29", 1), row(1, day=date(2024, 2, 29)))
    for log in (keyed, plain):
        LakeRound.plan(lake, log).run()
    folders = [p.parent.relative_to(tmp_path / "warehouse" / "contract.db") for p in tmp_path.rglob("data-lw-*")]
    assert sorted(map(str, folders)) == ["keyed/bucket-1", "plain/day=2024-02-29/bucket-0"]


def test_options_follow_from_keys_and_properties(lake: PaimonLakeStorage) -> None:
    table = SUITE.table_info(
        **PK, bucket_keys=("id",), properties={"paimon.snapshot.time-retained": "2 h", "mine": "1"}
    )
    lake.catalog().create(table)
    made = lake.connection.load(table.path).table_schema
    assert [f.name for f in made.fields][-3:] == ["__bucket", "__offset", "__timestamp"]
    assert made.options == {
        "file.format": "parquet",
        "partition.legacy-name": "false",
        "snapshot.time-retained": "2 h",
        "fluss.mine": "1",
        "bucket": "2",
        "bucket-key": "id",
        "sequence.field": "__offset",
    }


def test_a_delete_may_have_its_key_alone(lake: PaimonLakeStorage) -> None:
    columns = {**COLUMNS, "must": "STRING NOT NULL", "also": "ARRAY<INT> NOT NULL", "flag": "BOOLEAN NOT NULL"}
    log = SUITE.make_log(lake, columns=columns, **PK)
    log.upsert(B0, row(1, must="x", also=[1], flag=True), row(2, must="y", also=[], flag=False))
    LakeRound.plan(lake, log).run()
    log.delete(B0, row(1, must="x", also=[1], flag=True))
    lake_round = LakeRound.plan(lake, log)
    writer, whole = lake.open_writer(lake_round.task(B0, 2, 3)), without_prev(log.batch(B0, 2, 3))
    bare = [n for n in columns if n != "id"]
    nulls = [pa.nulls(1, f.type) if f.name in bare else whole.column(f.name) for f in whole.schema]
    writer.write_changes(pa.RecordBatch.from_arrays(nulls, names=whole.schema.names))
    lake_round.take(B0, 3, writer.complete())
    lake_round.commit()
    assert lake_rows(lake, log.table) == log.expected(log.ends())


def test_a_writer_that_gives_up_lets_go_of_the_native_one_at_once(lake: PaimonLakeStorage) -> None:
    """An error's frames may hold it, and end on another thread, where it cannot."""
    log = SUITE.make_log(lake, **PK)
    log.upsert(B0, row(1))
    writer = lake.open_writer(LakeRound.plan(lake, log).task(B0, 0, 1))
    assert isinstance(writer, PaimonLakeWriter)
    writer.write_changes(without_prev(log.batch(B0, 0, 1)))
    held = writer._writer
    writer.abort()
    assert held._native_writer is None
    writer.abort()


def test_a_sleeper_does_not_take_the_number_of_an_expired_snapshot(lake: PaimonLakeStorage) -> None:
    """It looked at the head, slept while rounds came and their snapshots went, and finds its number free."""
    log = SUITE.make_log(lake, properties={"paimon.history.expire.max-snapshot-age-ms": "0"})
    log.append(B0, row(1))
    sleeper, told = LakeRound.plan(lake, log).write(B0), list[LakewardError]()
    request = sleeper.prepare()

    def commit() -> None:
        try:
            sleeper.commit(request)
        except LakewardError as error:
            told.append(error)

    with Faults() as faults:
        pause = faults.arm("lake.before-commit", action=FaultAction.PAUSE)
        thread = threading.Thread(target=commit)
        thread.start()
        pause.wait_reached()
        for number in (2, 3, 4):
            LakeRound.plan(lake, log).run()
            log.append(B0, row(number))
        upkeep, reader = lake.open_maintenance(log.table), lake.open_reader(log.table)
        upkeep.expire([s.snapshot_id for s in upkeep.expirable(10**15)])
        before = [s.snapshot_id for s in reader.snapshots()]
        pause.release()
        thread.join(120)
    assert [(type(error), getattr(error, "lost", None)) for error in told] == [(CommitConflict, True)]
    assert [s.snapshot_id for s in reader.snapshots()] == before == ["3"]
    assert sleeper.committer.find(sleeper.round_id) is None
    assert lake_rows(lake, log.table) == log.expected({B0: 3})


def test_rows_of_several_buckets_in_one_file_are_read(lake: PaimonLakeStorage) -> None:
    """A log table without a bucket key: another engine may write, or merge, its rows as it likes."""
    log = SUITE.make_log(lake)
    them = PaimonForeignEngine(lake.connection, log.table.path)
    own = {"__offset": 0, "__timestamp": 0}
    them.insert(pa.Table.from_pylist([{**row(n), "__bucket": n, **own} for n in (0, 1)], them.schema()))
    reader = lake.open_reader(log.table)
    head = reader.load_snapshot()
    assert head is not None
    (file,) = reader.files(head.snapshot_id)
    assert file.bucket is None
    for chosen in (None, [B0, None]):
        found = list(reader.scan_buckets(head.snapshot_id, columns=["id"], buckets=chosen))
        assert [(b, batch.column("id").to_pylist()) for b, batch in found] == [(None, [0, 1])]
    assert list(reader.scan_buckets(head.snapshot_id, columns=["id"], buckets=[B0])) == []


def test_rows_of_others_that_a_compaction_merged_cannot_be_taken_out(lake: PaimonLakeStorage) -> None:
    log = SUITE.make_log(lake, **PK, properties={"table.datalake.foreign-rows": "remove"})
    log.upsert(B0, row(1), row(2))
    LakeRound.plan(lake, log).run()
    them = PaimonForeignEngine(lake.connection, log.table.path)
    theirs = {**row(1, "theirs"), "__bucket": 0, "__offset": 10**12, "__timestamp": 0}
    them.insert(pa.Table.from_pylist([theirs], them.schema()))
    them.compact()
    log.upsert(B0, row(2, "new"))
    with pytest.raises(ForeignRowsFound):
        LakeRound.plan(lake, log).run()


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("merge-engine", "partial-update"),
        ("bucket", "7"),
        ("primary-key.nullable", "true"),
        ("file.format", "orc"),
        ("file.format.per.level", "0:orc"),
        ("changelog-file.format", "orc"),
        ("manifest.format", "orc"),
        ("sequence.field.sort-order", "descending"),
        ("ignore-delete", "true"),
        ("deduplicate.ignore-delete", "true"),
        ("data-evolution.enabled", "true"),
        ("rowkind.field", "name"),
        ("branch", "other"),
        ("scan.snapshot-id", "1"),
        ("incremental-between", "1,2"),
    ],
)
def test_what_rounds_rely_on_is_refused(lake: PaimonLakeStorage, key: str, value: str) -> None:
    table = SUITE.table_info(**PK, properties={f"paimon.{key}": value})
    with pytest.raises(InvalidTable, match=key):
        lake.catalog().create(table)
    assert not lake.catalog().exists(table.path)
    fine = SUITE.table_info(**PK)
    lake.catalog().create(fine)
    with pytest.raises(InvalidAlter, match=key):
        lake.catalog().set_properties(fine, {f"paimon.{key}": value})


def test_what_paimon_refuses_itself_is_told_in_its_words(lake: PaimonLakeStorage) -> None:
    table = SUITE.table_info(properties={"paimon.changelog-producer": "input"})
    with pytest.raises(InvalidTable, match=r"changelog-producer=input.*without primary keys"):
        lake.catalog().check_descriptor(table.path, table.descriptor)
    fine = SUITE.table_info()
    lake.catalog().create(fine)
    with pytest.raises(InvalidTable, match=r"changelog-producer=input.*without primary keys"):
        lake.catalog().check_alter(fine, (), {"paimon.changelog-producer": "input"})


def test_a_table_that_was_made_with_a_value_refused_since_goes_on(lake: PaimonLakeStorage) -> None:
    descriptor = SUITE.table_info(**PK, properties={"paimon.ignore-delete": "true"}).descriptor
    assert wrong_options(descriptor, lake_options(descriptor)) == {}


def test_times_with_more_digits_than_paimon_keeps_are_refused(lake: PaimonLakeStorage) -> None:
    for kind in ("TIME(6)", "TIMESTAMP(9)", "MAP<STRING NOT NULL, ARRAY<ROW<at TIMESTAMP_LTZ(7)>>>"):
        table = SUITE.table_info(columns={"at": kind})
        with pytest.raises(UnsupportedType, match="at"):
            lake.catalog().create(table)
    assert not lake.catalog().exists(table.path)
    fine = SUITE.table_info(columns={"at": "TIMESTAMP(6)"})
    lake.catalog().create(fine)
    with pytest.raises(UnsupportedType, match=r"finer.*declare 6 digits"):
        lake.catalog().add_columns(fine, [Column(name="finer", type=parse_type("TIMESTAMP(9)"))])


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({}, "missing"),
        ({"warehouse": "oss://b/w"}, "oss://b/w"),
        ({"warehouse": "/w", "metastore": "hive"}, "'hive' is not served, as pypaimon has no client"),
        ({"warehouse": "/w", "metastore": "jdbc"}, r"paimon\.uri: it is missing"),
        ({"warehouse": "/w", "metastore": "rest"}, r"paimon\.uri: it is missing"),
        ({"warehouse": "/w", "metastore": "nope"}, "'nope' is not served, as it is not known; filesystem, jdbc, rest"),
    ],
)
def test_settings_that_cannot_work_are_refused_in_words(options: dict[str, str], named: str) -> None:
    with pytest.raises(InvalidConfig, match=named):
        load(options)


def test_a_warehouse_that_cannot_be_written_to_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(InvalidConfig, match="cannot be written to"):
        load({"warehouse": str(tmp_path / "file" / "warehouse")}).catalog().check()


def test_expiry_leaves_the_files_of_others_tags(lake: PaimonLakeStorage) -> None:
    log = SUITE.make_log(lake, primary_key=("id",), bucket_keys=("id",))
    log.upsert(B0, row(1, "old"), row(2))
    LakeRound.plan(lake, log).run()
    lake.connection.load(log.table.path).create_tag("kept", 1)
    for name in ("newer", "newest"):
        log.upsert(B0, row(1, name))
        LakeRound.plan(lake, log).run()
        LakeRewrite(lake=lake, table=log.table).run()
    upkeep, reader = lake.open_maintenance(log.table), lake.open_reader(log.table)
    before = {f.path for f in upkeep.list_files()}
    upkeep.expire([s.snapshot_id for s in reader.snapshots()])
    gone = before - {f.path for f in upkeep.list_files()}
    assert [s.snapshot_id for s in reader.snapshots()] == ["1", "5"]
    assert lake_rows(lake, log.table, SnapshotId("1")) == log.expected({B0: 2})
    assert gone
    tagged = lake.connection.load(log.table.path).copy({"scan.tag-name": "kept"}).new_read_builder()
    found = tagged.new_read().to_arrow(tagged.new_scan().plan().splits())
    assert {r["id"]: r["name"] for r in found.to_pylist()} == {1: "old", 2: row(2)["name"]}
    assert lake_rows(lake, log.table) == log.expected(log.ends())
