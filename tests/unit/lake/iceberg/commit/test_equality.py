# SPDX-License-Identifier: Apache-2.0
"""Deletes by key: rows of earlier commits, rows of the same round, and what a table of a Fluss cluster says in its
summaries.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from lakeward.lake.iceberg.plugin import IcebergLakeStorage
from lakeward.model import FLUSS_PARTITIONS, Bucket, OffsetMap, TableInfo
from lakeward.spi import (
    COMMIT_USER_KEY,
    OFFSETS_KEY,
    OWN_OFFSETS_KEY,
    CommitProperties,
    SupportsKeyDeletes,
    decode_fluss_offsets,
    encode_fluss_offsets,
)
from lakeward_testing.lakes.rounds import LakeRound, lake_rows
from lakeward_testing.lakes.suite import B0, LakeSuite, row
from lakeward_testing.scripted_log import ScriptedLog
from tests.kit.iceberg.engines import read_duckdb
from tests.kit.iceberg.folder import folder_lake


def make_log(lake: IcebergLakeStorage, **properties: str) -> ScriptedLog:
    log = LakeSuite().make_log(lake, primary_key=("id",))
    descriptor = replace(log.table.descriptor, properties={**log.table.descriptor.properties, **properties})
    log.table = replace(log.table, descriptor=descriptor)
    return log


def write_keyed(made: LakeRound, stop: int, keys: list[int]) -> None:
    """The next sub-split of bucket 0: its live rows, and keys in place of replaced offsets."""
    start = made.start(B0)
    writer = made.lake.open_writer(made.task(B0, start, stop))
    assert isinstance(writer, SupportsKeyDeletes)
    writer.delete_keys(pa.record_batch({"id": pa.array(keys, pa.int64())}))
    live = {offset for _, offset, _ in made.log.expected({B0: stop}) if offset >= start}
    batch = made.log.batch(B0, start, stop)
    kept = batch.filter(pa.array([o in live for o in batch.column("__offset").to_pylist()]))
    if kept.num_rows:
        writer.write(kept.select(["id", "name", "amount", "__offset", "__timestamp"]))
    made.take(B0, stop, writer.complete())


@pytest.mark.parametrize("deletes", ["positions", "equality"])
def test_keys_reach_rows_of_an_earlier_sub_split(tmp_path: Path, deletes: str) -> None:
    with folder_lake(tmp_path, deletes=deletes) as lake:
        check_two_sub_splits(lake, deletes)


def check_two_sub_splits(lake: IcebergLakeStorage, deletes: str) -> None:
    log = make_log(lake)
    log.upsert(B0, row(1), row(2), row(3))
    LakeRound.plan(lake, log).run()
    log.upsert(B0, row(2, "two"), row(4), row(5))
    middle = log.end(B0)
    log.upsert(B0, row(4, "four"), row(2, "again"))
    log.delete(B0, row(5))
    log.delete(B0, row(1))
    made = LakeRound.plan(lake, log)
    write_keyed(made, middle, [2])
    write_keyed(made, log.end(B0), [4, 2, 5, 1])
    snapshot = made.commit()
    assert lake_rows(lake, log.table) == log.expected(log.ends())
    added = {k: snapshot.summary.get(f"added-{k}-deletes") for k in ("equality", "position")}
    by_position = {"equality": None, "position": "5"}
    assert added == (by_position if deletes == "positions" else {"equality": "5", "position": "3"})
    upkeep = lake.open_maintenance(log.table)
    assert {f.path for f in upkeep.list_files()} <= upkeep.references(), "files of keys do not stay behind"
    metadata = lake.connection.load(log.table.path).metadata_location
    found = [(r["id"], r["name"]) for r in read_duckdb(metadata).sort_by("id").to_pylist()]
    assert found == [(r["id"], r["name"]) for _, _, r in sorted(log.expected(log.ends()), key=lambda e: e[2]["id"])]


def test_a_table_of_fluss_names_its_offsets_file_and_keeps_its_own_copy(lake: IcebergLakeStorage) -> None:
    log = make_log(lake, **{FLUSS_PARTITIONS: "{}"})
    log.table = TableInfo(path=log.table.path, table_id=type(log.table.table_id)("7"), descriptor=log.table.descriptor)
    log.upsert(B0, row(1))
    made = LakeRound.plan(lake, log)
    made.write(B0)
    path = "/remote/lake/db/t-7/metadata/3d1c.offsets"
    properties = CommitProperties(
        round_id=made.round_id, epoch=1, job="j", offsets=made.stops, extra={OFFSETS_KEY: path}
    )
    made.commit(made.committer.prepare(made.results, made.replaced, made.reader.load_base(), properties))
    shown = made.reader.load_snapshot()
    assert shown is not None
    assert shown.summary[OFFSETS_KEY] == path
    assert json.loads(shown.summary[OWN_OFFSETS_KEY]) == {"version": 1, "table_id": 7, "bucket_offsets": [1]}
    assert made.reader.load_base().offsets == OffsetMap({B0: 1})
    fence = lake.open_maintenance(log.table).fence(made.reader.load_base(), LakeRound.plan(lake, log).round_id, 1)
    assert fence.summary[OFFSETS_KEY] == path


def test_an_offsets_file_of_ours_is_referenced_and_fluss_keeps_its_own(lake: IcebergLakeStorage) -> None:
    log = make_log(lake, **{FLUSS_PARTITIONS: "{}"})
    log.table = TableInfo(path=log.table.path, table_id=type(log.table.table_id)("7"), descriptor=log.table.descriptor)
    path, ids = "/remote/lake/db/t-7/metadata/3d1c.offsets", []
    upkeep = lake.open_maintenance(log.table)
    for step in (1, 2):
        made = LakeRound.plan(lake, log)
        offsets = {Bucket("", n): 10**12 * step + n for n in range(2_000)}
        properties = CommitProperties(
            round_id=made.round_id, epoch=1, job="j", offsets=offsets, extra={OFFSETS_KEY: path}
        )
        ids.append(made.commit(made.committer.prepare([], {}, made.reader.load_base(), properties)))
    own = [s.summary[OWN_OFFSETS_KEY] for s in ids]
    assert set(own) <= upkeep.references(), "orphan removal leaves them"
    going = [g for g in upkeep.expirable(4_000_000_000_000) if g.snapshot_id == ids[0].snapshot_id]
    upkeep.expire([g.snapshot_id for g in going])
    assert [Path(p.removeprefix("file://")).exists() for p in own] == [False, True]
    assert path not in going[0].trace, "another system's file is not ours to delete"


def test_a_fence_before_the_first_round_carries_no_name_of_fluss(lake: IcebergLakeStorage) -> None:
    """Fluss's own job fails on a snapshot that has its user and no offsets."""
    log = make_log(lake, **{FLUSS_PARTITIONS: "{}"})
    log.table = TableInfo(path=log.table.path, table_id=type(log.table.table_id)("7"), descriptor=log.table.descriptor)
    reader = lake.open_reader(log.table)
    fence = lake.open_maintenance(log.table).fence(reader.load_base(), LakeRound.plan(lake, log).round_id, 1)
    assert not {COMMIT_USER_KEY, OFFSETS_KEY} & set(fence.summary)
    assert reader.load_base().fence == 1


def test_partitions_have_numbers_in_fluss_and_names_here() -> None:
    body = {
        "version": 1,
        "table_id": 6,
        "partition_offsets": [
            {"partition_id": 1, "bucket_offsets": [100, -1, 300]},
            {"partition_id": 4, "bucket_offsets": [-1, 400]},
        ],
    }
    found = decode_fluss_offsets(body, {"4": "2024-01-02"})
    assert found == OffsetMap({Bucket("#1", 0): 100, Bucket("#1", 2): 300, Bucket("2024-01-02", 1): 400})
    assert encode_fluss_offsets("6", found, {"4": "2024-01-02"}) == body
