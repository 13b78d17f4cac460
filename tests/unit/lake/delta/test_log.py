# SPDX-License-Identifier: Apache-2.0
"""A Delta log: checkpoints and clean-up, entries that come too late, what a crash leaves, table features."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pytest

from lakeward.errors import (
    CommitConflict,
    InvalidAlter,
    InvalidConfig,
    InvalidTable,
    LakeRolledBack,
    LakeSchemaBroken,
    LakeTampered,
    SnapshotGone,
    UnsupportedType,
)
from lakeward.lake.delta.meta.log import DeltaLog
from lakeward.lake.delta.plugin import DeltaLakeStorage, open_lake
from lakeward.model import Column, OffsetMap, OffsetSet, SnapshotId, parse_type
from lakeward.spi import Renewal
from lakeward_testing.deltaforeign import DeltaForeignEngine
from lakeward_testing.lakes import LakeRound, lake_rows
from lakeward_testing.lakes.removal import LATER_MS
from lakeward_testing.lakes.rewriting import LakeRewrite
from lakeward_testing.lakes.suite import B0, LakeSuite, row
from lakeward_testing.scripted_log import ScriptedLog

SHORT = {"delta.history.expire.max-snapshot-age-ms": "1000"}


def after_rounds(lake: DeltaLakeStorage, count: int, **options: Any) -> tuple[ScriptedLog, DeltaLog]:
    log = LakeSuite().make_log(lake, primary_key=("id",), **options)
    for number in range(count):
        log.upsert(B0, row(number), row(0, f"version {number}"))
        LakeRound.plan(lake, log).run()
    return log, lake.log(log.table.path)


def test_the_log_does_not_grow_for_ever(lake: DeltaLakeStorage) -> None:
    log, delta = after_rounds(lake, 25, properties=SHORT)
    upkeep = lake.open_maintenance(log.table)
    upkeep.expire([s.snapshot_id for s in upkeep.expirable(LATER_MS)])
    assert delta.listing().entries == tuple(range(20, 27))
    assert list(delta.listing().checkpoints) == [20]
    assert json.loads(Path(delta.folder, "_last_checkpoint").read_text())["version"] == 20
    log.upsert(B0, row(1, "after it"))
    LakeRound.plan(lake, log).run()
    assert lake_rows(lake, log.table) == log.expected(log.ends())
    with pytest.raises(SnapshotGone):
        lake.open_reader(log.table).load_snapshot(SnapshotId("3"))


def test_a_restore_whose_entry_others_cleaned_up_is_noticed(lake: DeltaLakeStorage) -> None:
    """Our offsets outlive it in the checkpoint, over the rows of an older version."""
    log, delta = after_rounds(lake, 4)
    others = DeltaForeignEngine(delta)
    others.restore(SnapshotId("2"))
    others.touch()
    others.clean_log()
    assert [e.operation for e in delta.entries(delta.listing().versions)] == ["WRITE"]
    reader = lake.open_reader(log.table)
    with pytest.raises(LakeRolledBack):
        reader.load_base()
    base = reader.load_base_as_is()
    assert (base.offsets, base.token) == (OffsetMap(), None), "a resync begins with nothing known"


@pytest.mark.parametrize("deeds", [("touch",), ("optimize", "touch")])
def test_a_restore_to_as_many_rows_is_noticed_too(lake: DeltaLakeStorage, deeds: Sequence[str]) -> None:
    """A row changes in each round, and one comes for one that goes: rows of our newest commit are no longer there."""
    log = LakeSuite().make_log(lake, primary_key=("id",))
    delta = lake.log(log.table.path)
    for number in range(4):
        log.upsert(B0, row(1, f"version {number}"), row(10 + number))
        if number:
            log.delete(B0, row(9 + number))
        LakeRound.plan(lake, log).run()
    LakeRewrite(lake=lake, table=log.table).run()
    others = DeltaForeignEngine(delta)
    others.restore(SnapshotId("2"))
    for deed in (*deeds, "clean_log"):
        getattr(others, deed)()
    assert len(lake_rows(lake, log.table)) == len(log.expected(log.ends()))
    with pytest.raises(LakeRolledBack):
        lake.open_reader(log.table).load_base()


def test_a_compaction_of_others_that_was_cleaned_up_stops_nothing(lake: DeltaLakeStorage) -> None:
    log, delta = after_rounds(lake, 4)
    others = DeltaForeignEngine(delta)
    for deed in (others.optimize, others.touch, others.clean_log):
        deed()
    log.upsert(B0, row(1, "after it"))
    LakeRound.plan(lake, log).run()
    assert lake_rows(lake, log.table) == log.expected(log.ends())


def test_a_row_that_others_deleted_may_be_replaced(lake: DeltaLakeStorage) -> None:
    log, delta = after_rounds(lake, 3)
    DeltaForeignEngine(delta).delete(pc.field("id") != 0)
    log.upsert(B0, row(0, "back"))
    LakeRound.plan(lake, log).run()
    assert lake_rows(lake, log.table) == log.expected(log.ends())


def test_a_rewrite_changes_no_data_for_those_who_follow_the_log(lake: DeltaLakeStorage) -> None:
    log, delta = after_rounds(lake, 3)
    LakeRewrite(lake=lake, table=log.table).run()
    actions = delta.actions(delta.listing().versions[-1])
    moved = [a.get("add") or a["remove"] for a in actions if a.get("add") or a.get("remove")]
    assert len(moved) == 4
    assert {a["dataChange"] for a in moved} == {False}


def test_a_commit_on_a_version_that_was_cleaned_away_is_refused(lake: DeltaLakeStorage) -> None:
    """Its file could be created: nobody else has one of that name any more."""
    log, delta = after_rounds(lake, 2, properties=SHORT)
    log.upsert(B0, row(1, "paused"))
    zombie = LakeRound.plan(lake, log).write(B0)
    request = zombie.prepare()
    for number in range(20):
        log.upsert(B0, row(number))
        LakeRound.plan(lake, log).run()
    upkeep = lake.open_maintenance(log.table)
    upkeep.expire([s.snapshot_id for s in upkeep.expirable(LATER_MS)])
    assert not Path(delta.path(3)).exists()
    with pytest.raises(CommitConflict) as refused:
        zombie.commit(request)
    assert refused.value.lost
    assert not Path(delta.path(3)).exists()
    assert lake_rows(lake, log.table) == log.expected(log.ends())


def test_what_a_process_that_died_left_beside_the_log_is_no_entry(lake: DeltaLakeStorage) -> None:
    log, delta = after_rounds(lake, 1)
    Path(delta.folder, ".00000000000000000002.json.dead.tmp").write_text('{"add":')
    log.upsert(B0, row(7))
    LakeRound.plan(lake, log).run()
    assert lake_rows(lake, log.table) == log.expected(log.ends())


def test_an_entry_that_is_not_json_is_named(lake: DeltaLakeStorage) -> None:
    log, delta = after_rounds(lake, 1)
    Path(delta.path(2)).write_text('{"add":')
    with pytest.raises(LakeTampered, match=r"00000000000000000002\.json"):
        lake.open_reader(log.table).load_base()


def test_a_vector_that_is_not_what_was_written_is_named(lake: DeltaLakeStorage) -> None:
    log, delta = after_rounds(lake, 2)
    (vector,) = Path(delta.root).glob("*/deletion_vector_*.bin")
    data = bytearray(vector.read_bytes())
    data[-6] ^= 1
    vector.write_bytes(data)
    with pytest.raises(LakeTampered, match="deletion_vector"):
        lake_rows(lake, log.table)


# ---- table features -------------------------------------------------------------------------------------------------
def test_a_table_asks_of_its_readers_what_it_uses(lake: DeltaLakeStorage) -> None:
    """A log table none of it, until rows go from it."""
    log = LakeSuite().make_log(lake)
    delta = lake.log(log.table.path)
    features = ["domainMetadata", "invariants"]
    assert delta.load().protocol == {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": features}
    lake.catalog().add_columns(log.table, [Column(name="at", type=parse_type("TIMESTAMP(3)"))])
    assert delta.load().protocol["readerFeatures"] == ["timestampNtz"]
    log.append(B0, row(1), row(2))
    LakeRound.plan(lake, log).run()
    again = LakeRound.plan(lake, log, generation=1)
    again.renewal = Renewal(head=again.base.head or SnapshotId(""), offsets={B0: OffsetSet([0])})
    again.take(B0, 2, None)
    again.commit()
    protocol = delta.load().protocol
    assert (protocol["minReaderVersion"], protocol["readerFeatures"]) == (3, ["deletionVectors", "timestampNtz"])
    assert protocol["writerFeatures"] == ["deletionVectors", *features, "timestampNtz"]
    assert [r["id"] for _, _, r in lake_rows(lake, log.table)] == [2]


def test_a_feature_that_rounds_do_not_keep_stops_them_in_words(lake: DeltaLakeStorage) -> None:
    log, delta = after_rounds(lake, 1)
    protocol = delta.load().protocol
    more = {**protocol, "writerFeatures": [*protocol["writerFeatures"], "changeDataFeed"]}
    assert delta.append(2, [{"protocol": more}])
    with pytest.raises(LakeSchemaBroken, match="changeDataFeed"):
        LakeRound.plan(lake, log)


@pytest.mark.parametrize("kind", ["TIME(3)", "TIMESTAMP(9)", "ARRAY<TIME(0)>"])
def test_a_type_that_delta_has_not_is_refused(lake: DeltaLakeStorage, kind: str) -> None:
    table = LakeSuite().table_info(columns={"id": "BIGINT", "x": kind})
    with pytest.raises(UnsupportedType):
        lake.catalog().create(table)
    assert not lake.catalog().exists(table.path)


@pytest.mark.parametrize("warehouse", ["", "hdfs://host/folder", "s3://"])
def test_a_warehouse_is_a_folder_or_a_bucket(warehouse: str) -> None:
    with pytest.raises(InvalidConfig, match="neither a folder"):
        open_lake({"warehouse": warehouse})


def test_a_warehouse_may_be_given_as_a_file_uri(tmp_path: Path) -> None:
    assert open_lake({"warehouse": (tmp_path / "a b").as_uri()}).warehouse.location == str(tmp_path / "a b")


@pytest.mark.parametrize(
    ("key", "reason"),
    [
        ("delta.appendOnly", "rounds rely on it"),
        ("delta.columnMapping.mode", "rounds rely on it"),
        ("delta.enableChangeDataFeed", "rounds do not keep what it promises other engines"),
        ("delta.feature.rowTracking", "rounds do not keep what it promises other engines"),
    ],
)
def test_a_property_that_rounds_would_not_keep_is_refused(lake: DeltaLakeStorage, key: str, reason: str) -> None:
    suite = LakeSuite()
    with pytest.raises(InvalidTable, match=f"{key} 'true': {reason}"):
        lake.catalog().create(suite.table_info("new", properties={key: "true"}))
    assert not lake.catalog().exists(suite.table_info("new").path)
    log = suite.make_log(lake)
    with pytest.raises(InvalidAlter, match=f"property {key}: {reason}"):
        lake.catalog().set_properties(log.table, {key: "true"})


def test_a_log_cleaned_up_to_an_expiry_still_shows_its_rows(lake: DeltaLakeStorage) -> None:
    """Another engine writes a checkpoint at our expiry, which is not a snapshot, and deletes the entries before it."""
    log, delta = after_rounds(lake, 3, properties=SHORT)
    upkeep, reader = lake.open_maintenance(log.table), lake.open_reader(log.table)
    upkeep.expire([s.snapshot_id for s in upkeep.expirable(LATER_MS)][:1])
    before = reader.load_base()
    DeltaForeignEngine(delta).clean_log()
    assert len(delta.listing().versions) == 1
    base, head = reader.load_base(), reader.load_snapshot()
    assert (base.offsets, base.token, base.lake_rows) == (before.offsets, before.token, before.lake_rows)
    assert head is not None
    assert (head.snapshot_id, head.offsets) == (base.head, log.ends())
    ends = log.ends()
    assert lake_rows(lake, log.table) == log.expected(log.ends())
    assert reader.totals().snapshots == len(reader.snapshots()) == 1
    log.upsert(B0, row(1, "after it"))
    LakeRound.plan(lake, log).run()
    assert lake_rows(lake, log.table) == log.expected(log.ends())
    assert lake_rows(lake, log.table, head.snapshot_id) == log.expected(ends)
