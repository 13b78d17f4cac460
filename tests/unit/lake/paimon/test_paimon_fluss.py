# SPDX-License-Identifier: Apache-2.0
"""Tables that a Fluss cluster made: what its own job writes into snapshots is read, and ours say the same."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lakeward.errors import LakeForeign, LakeMismatch, LakeTampered
from lakeward.hot.fluss.clusterview import view_commit
from lakeward.lake.paimon.plugin import load
from lakeward.lake.paimon.scan.datafile import merge_by_key
from lakeward.lake.paimon.storage import PaimonLakeStorage
from lakeward.model import FLUSS_PARTITIONS, Bucket, IntentState, OffsetMap, RoundId, TableId
from lakeward.spi import COMMIT_USER, COMMIT_USER_KEY, OFFSETS_KEY
from lakeward_testing.lakes.removal import intent_of
from lakeward_testing.lakes.rounds import LakeRound, lake_rows
from lakeward_testing.lakes.suite import B0, B1, COLUMNS, LakeSuite, row
from lakeward_testing.paimonforeign import PaimonForeignEngine
from lakeward_testing.scripted_log import ScriptedLog

SUITE, TABLE_ID = LakeSuite(), TableId("7")


@pytest.fixture
def lake(tmp_path: Path) -> PaimonLakeStorage:
    storage = load({"warehouse": str(tmp_path / "warehouse")})
    assert isinstance(storage, PaimonLakeStorage)
    return storage


def fluss_log(lake: PaimonLakeStorage, partitions: dict[str, str] | None = None, **made: Any) -> ScriptedLog:
    properties = {FLUSS_PARTITIONS: json.dumps(partitions or {})}
    return SUITE.make_log(lake, table_id=TABLE_ID, properties=properties, **made)


def flink_commit(lake: PaimonLakeStorage, log: ScriptedLog, path: Path, offsets: dict[str, Any] | None) -> None:
    """A snapshot as Fluss's own job leaves it: the path of its offsets, and the commit user, outside the properties."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if offsets is not None:
        path.write_text(json.dumps({"version": 1, "table_id": int(TABLE_ID), **offsets}))
    engine = PaimonForeignEngine(lake.connection, log.table.path)
    engine.touch()
    table = engine.table()
    head = Path(table.table_path) / "snapshot" / f"snapshot-{table.snapshot_manager().get_latest_snapshot().id}"
    body = json.loads(head.read_text())
    head.write_text(json.dumps({**body, "commitUser": COMMIT_USER, "properties": {OFFSETS_KEY: str(path)}}))


def offsets_path(tmp_path: Path, name: str = "a", table_id: str = TABLE_ID) -> Path:
    return tmp_path / "remote" / "lake" / "shop" / f"t-{table_id}" / "metadata" / f"{name}.offsets"


def test_a_snapshot_of_the_flink_job_is_a_base(lake: PaimonLakeStorage, tmp_path: Path) -> None:
    log = fluss_log(lake)
    flink_commit(lake, log, offsets_path(tmp_path), {"bucket_offsets": [3, -1]})
    reader = lake.open_reader(log.table)
    base = reader.load_base()
    assert (base.offsets, base.token) == (OffsetMap({B0: 3}), "1")
    (snapshot,) = reader.snapshots()
    assert (snapshot.summary[COMMIT_USER_KEY], snapshot.offsets) == (COMMIT_USER, None)
    flink_commit(lake, log, offsets_path(tmp_path, "gone"), None)
    assert len(reader.snapshots()) == 2
    with pytest.raises(LakeTampered, match=r"gone\.offsets"):
        reader.load_base()


def test_a_table_that_was_made_anew_is_told_by_the_path(lake: PaimonLakeStorage, tmp_path: Path) -> None:
    log = fluss_log(lake)
    flink_commit(lake, log, offsets_path(tmp_path, table_id="6"), {"bucket_offsets": [3]})
    with pytest.raises(LakeForeign, match="6"):
        lake.open_reader(log.table).load_base()


def test_partitions_of_the_flink_job_have_numbers(lake: PaimonLakeStorage, tmp_path: Path) -> None:
    log = fluss_log(lake, {"4": "2024-02-29"})
    numbered = [{"partition_id": 3, "bucket_offsets": [9]}, {"partition_id": 4, "bucket_offsets": [-1, 5]}]
    flink_commit(lake, log, offsets_path(tmp_path), {"partition_offsets": numbered})
    offsets = lake.open_reader(log.table).load_base().offsets
    assert offsets == OffsetMap({Bucket("#3", 0): 9, Bucket("2024-02-29", 1): 5})


def test_our_rounds_say_the_path_too_and_a_fence_copies_it(lake: PaimonLakeStorage, tmp_path: Path) -> None:
    """Our own copy counts: Fluss deletes the file once it knows a newer snapshot."""
    log = fluss_log(lake)
    flink_commit(lake, log, offsets_path(tmp_path), {"bucket_offsets": [0, 0]})
    log.append(B0, row(1), row(2))
    LakeRound.plan(lake, log, extra={OFFSETS_KEY: str(offsets_path(tmp_path, "b"))}).run()
    reader = lake.open_reader(log.table)
    lake.open_maintenance(log.table).fence(reader.load_base(), RoundId("fence"), 2)
    _, ours, fence = reader.snapshots()
    for snapshot in (ours, fence):
        assert snapshot.summary[OFFSETS_KEY] == str(offsets_path(tmp_path, "b"))
        assert snapshot.offsets == OffsetMap({B0: 2, B1: 0})


def test_a_table_that_fluss_made_has_no_sequence_field_and_times_of_other_digits(lake: PaimonLakeStorage) -> None:
    log = fluss_log(lake, columns={"id": "BIGINT NOT NULL", "at": "TIMESTAMP(6)"}, primary_key=("id",))
    options = lake.connection.load(log.table.path).table_schema.options
    assert "sequence.field" not in options
    assert lake.takes_one_writer(log.table)
    finer = SUITE.table_info(
        table_id=TABLE_ID,
        columns={"id": "BIGINT NOT NULL", "at": "TIMESTAMP(9)"},
        primary_key=("id",),
        properties=dict(log.table.descriptor.properties),
    )
    lake.catalog().validate(finer)
    own = replace(finer, descriptor=replace(finer.descriptor, properties={}))
    assert not lake.takes_one_writer(own)
    with pytest.raises(LakeMismatch, match=r"sequence\.field: lake none, wanted __offset"):
        lake.catalog().validate(own)


def test_of_a_key_the_row_that_was_written_last_counts(lake: PaimonLakeStorage) -> None:
    log = fluss_log(lake, primary_key=("id",), bucket_keys=("id",))
    log.upsert(B0, *(row(n, f"first {n}") for n in range(9)))
    LakeRound.plan(lake, log).run()
    log.upsert(B0, row(1, "second"))
    log.delete(B0, row(2))
    LakeRound.plan(lake, log).run()
    assert lake_rows(lake, log.table) == log.expected(log.ends())


def test_rows_are_merged_by_offset_or_by_sequence() -> None:
    def file(offset: int, sequence: int) -> Iterator[pa.Table]:
        yield pa.table({"id": [1], "__offset": [offset], "_SEQUENCE_NUMBER": [sequence]})

    def kept(*, is_by_offset: bool) -> list[int]:
        rows = merge_by_key([file(8, 1), file(-1, 2)], ["id"], is_by_offset=is_by_offset)
        return [n for part in rows for n in part.column("_SEQUENCE_NUMBER").to_pylist()]

    assert (kept(is_by_offset=True), kept(is_by_offset=False)) == ([1], [2])


def test_an_intent_is_recorded_abandoned_and_forgotten(lake: PaimonLakeStorage) -> None:
    log = fluss_log(lake)
    log.append(B0, row(1))
    intents, made = lake.open_intents(log.table), LakeRound.plan(lake, log)
    intent = intent_of(made)
    intents.record(intent)
    intents.record(replace(intent, recorded_at_ms=9))
    assert intents.open_intents(TABLE_ID) == [intent]
    assert intents.open_intents(TableId("8")) == []
    intents.abandon(made.round_id)
    intents.abandon(RoundId("nobody"))
    assert intents.open_intents(TABLE_ID) == [replace(intent, state=IntentState.ABANDONED)]
    made.run()
    assert [i.state for i in intents.open_intents(TABLE_ID)] == [IntentState.COMMITTED]
    intents.forget(made.round_id)
    intents.forget(made.round_id)
    assert intents.open_intents(TABLE_ID) == []


def test_a_partition_made_anew_leaves_no_row_of_the_old_one(lake: PaimonLakeStorage) -> None:
    day = Bucket("2024-02-29", 0)
    made: dict[str, Any] = {
        "columns": {**COLUMNS, "day": "STRING NOT NULL"},
        "primary_key": ("id", "day"),
        "bucket_keys": ("id",),
        "partition_keys": ("day",),
    }
    log = fluss_log(lake, {"4": day.partition}, **made)
    log.upsert(day, *(row(n, day=day.partition) for n in range(5)))
    LakeRound.plan(lake, log).run()
    again = SUITE.table_info(table_id=TABLE_ID, properties={FLUSS_PARTITIONS: json.dumps({"5": day.partition})}, **made)
    log = ScriptedLog(again)
    log.upsert(day, row(3, "new", day=day.partition))
    LakeRound.plan(lake, log).run()
    assert lake_rows(lake, again) == log.expected(log.ends())
    offsets = lake.open_reader(again).load_base().offsets
    assert offsets == OffsetMap({Bucket("#4", 0): 5, day: 1})


def test_a_round_shows_its_rows_and_not_bytes_that_nobody_knows(lake: PaimonLakeStorage, tmp_path: Path) -> None:
    log = fluss_log(lake)
    log.append(B0, *(row(n) for n in range(3)))
    LakeRound.plan(lake, log, extra={OFFSETS_KEY: str(offsets_path(tmp_path))}).run()
    (ours,) = lake.open_reader(log.table).snapshots()
    shown = view_commit(log.table, ours)
    assert (shown.kind, shown.rows, shown.deletes, shown.bytes_written) == ("tier", 3, None, None)
