# SPDX-License-Identifier: Apache-2.0
"""Clean tables, as Fluss makes them from 1.0 on: the user's columns alone. Rounds of ours and of the Flink job in turn,
and where each row came from.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from lakeward.errors import LakeOverlap, LakeSchemaBroken
from lakeward.hot.fluss.overlaps import check_counts, flink_snapshots
from lakeward.lake.iceberg.meta.mapping import lake_schema, lake_spec
from lakeward.lake.iceberg.plugin import IcebergLakeStorage
from lakeward.model import FLUSS_PARTITIONS, Bucket, BucketFunction, OffsetRange, SystemClock, TableId
from lakeward.spi import OFFSETS_KEY, CommitProperties, LakeFile, LakeSnapshot
from lakeward.tiering.compact.ground import load_compaction
from lakeward.tiering.work.options import CompactionPolicy, TieringOptions
from lakeward_testing.lakes.rewriting import LakeRewrite
from lakeward_testing.lakes.rounds import LakeRound, lake_rows
from lakeward_testing.lakes.suite import B0, B1, LakeSuite, row
from lakeward_testing.scripted_log import ScriptedLog
from tests.kit.iceberg.engines import read_duckdb
from tests.kit.iceberg.flink import FlinkJob
from tests.kit.iceberg.merge_on_read import MergeOnReadEngine

KEYED = {"primary_key": ("id",), "bucket_keys": ("id",), "bucket_function": BucketFunction.ICEBERG}


def make_log(lake: IcebergLakeStorage, **options: Any) -> ScriptedLog:
    """A clean table in the lake, made as Fluss makes it."""
    table = LakeSuite().table_info(properties={FLUSS_PARTITIONS: "{}"}, table_id=TableId("7"), **options)
    catalog, name = lake.connection.catalog, (table.path.database, table.path.table)
    catalog.create_namespace_if_not_exists(table.path.database)
    schema = lake_schema(table.descriptor, clean=True)
    catalog.create_table(name, schema, partition_spec=lake_spec(table.descriptor, schema))
    return ScriptedLog(table)


def run(lake: IcebergLakeStorage, log: ScriptedLog) -> LakeSnapshot:
    """A round of ours, told to Fluss."""
    made = LakeRound.plan(lake, log)
    for bucket in sorted(log.ends()):
        if log.end(bucket) > made.start(bucket):
            made.write(bucket, batches=2)
    extra = {OFFSETS_KEY: "/remote/lake/db/t-7/metadata/3d1c.offsets"}
    properties = CommitProperties(round_id=made.round_id, epoch=1, job="j", offsets=made.stops, extra=extra)
    return made.commit(made.committer.prepare(made.results, {}, made.reader.load_base(), properties))


def rows_of(log: ScriptedLog, bucket: Bucket, start: int) -> pa.Table:
    return pa.Table.from_batches([log.batch(bucket, start, log.end(bucket))]).select(list(log.table.schema.names))


def flink(lake: IcebergLakeStorage, log: ScriptedLog) -> FlinkJob:
    return FlinkJob(lake.connection.catalog, log.table.path, "7")


def test_rounds_of_both_in_turn_and_every_row_has_its_offset(lake: IcebergLakeStorage) -> None:
    log = make_log(lake)
    log.append(B0, row(1), row(2))
    log.append(B1, row(3))
    job = flink(lake, log)
    job.commit_clean({0: rows_of(log, B0, 0), 1: rows_of(log, B1, 0)}, [2, 1])
    log.append(B0, row(4), row(5), row(6))
    run(lake, log)
    log.append(B0, row(7))
    log.append(B1, row(8), row(9))
    job.commit_clean({0: rows_of(log, B0, 5), 1: rows_of(log, B1, 1)}, [6, 3])
    log.append(B1, row(10))
    assert run(lake, log).lake_rows == 10
    assert lake_rows(lake, log.table) == log.expected(log.ends())
    reader = lake.open_reader(log.table)
    head = reader.load_snapshot()
    assert head is not None
    tail = (pc.field("__bucket") == 1) & (pc.field("__offset") >= 2)  # as a stream from an offset asks
    found = reader.scan(head.snapshot_id, columns=["id", "__timestamp"], filter=tail)
    rows = [tuple(r.values()) for b in found for r in b.to_pylist()]
    assert sorted(rows) == [(n, datetime(1969, 12, 31, 23, 59, 59, 999_000, UTC)) for n in (9, 10)]
    names = lake.connection.load(log.table.path).schema().column_names
    assert names == list(log.table.schema.names)
    everything = read_duckdb(lake.connection.load(log.table.path).metadata_location)
    assert sorted(everything.column("id").to_pylist()) == list(range(1, 11))
    assert lake.connection.load(log.table.path).inspect.files().num_rows == len(reader.files(head.snapshot_id))


def test_files_of_one_commit_follow_each_other_in_the_order_in_which_it_lists_them(lake: IcebergLakeStorage) -> None:
    log = make_log(lake)
    log.append(B0, *(row(n) for n in range(5)))
    rows = rows_of(log, B0, 0)
    flink(lake, log).commit_clean([(0, rows.slice(0, 2)), (0, rows.slice(2, 1)), (0, rows.slice(3))], [5])
    assert lake_rows(lake, log.table) == log.expected(log.ends())


def test_a_commit_of_the_flink_job_without_files_changes_nothing(lake: IcebergLakeStorage) -> None:
    log = make_log(lake)
    log.append(B0, row(1), row(2))
    job = flink(lake, log)
    job.commit_clean({0: rows_of(log, B0, 0)}, [2])
    job.commit_clean({}, [2])
    log.append(B0, row(3))
    run(lake, log)
    job.commit_clean({}, [3])
    log.append(B0, row(4))
    assert run(lake, log).lake_rows == 4
    assert lake_rows(lake, log.table) == log.expected(log.ends())


def test_a_filter_on_offsets_prunes_files_of_ours(lake: IcebergLakeStorage) -> None:
    log = make_log(lake)
    for number in range(3):
        log.append(B0, row(2 * number), row(2 * number + 1))
        snapshot = run(lake, log)
    reader = lake.open_reader(log.table)
    files = reader.files(snapshot.snapshot_id)
    assert sorted(f.offsets for f in files if f.offsets) == [OffsetRange(0, 2), OffsetRange(2, 4), OffsetRange(4, 6)]
    for other in files:
        if other.offsets is not None and other.offsets.start != 2:
            lake.connection.load(log.table.path).io.delete(other.path)
    found = reader.scan(snapshot.snapshot_id, columns=["id", "__offset"], filter=(pc.field("__offset") == 3))
    assert [b.to_pylist() for b in found] == [[{"id": 3, "__offset": 3}]]


def test_a_log_that_began_late_is_counted_back_from_a_file_of_ours(lake: IcebergLakeStorage) -> None:
    log = make_log(lake)
    log.skip(B0, 100)
    log.append(B0, row(1), row(2))
    flink(lake, log).commit_clean({0: rows_of(log, B0, 100)}, [102])
    log.append(B0, row(3))
    run(lake, log)
    assert lake_rows(lake, log.table) == log.expected(log.ends())


def test_rows_of_another_engine_have_no_offset(lake: IcebergLakeStorage) -> None:
    log = make_log(lake)
    log.append(B0, row(1))
    run(lake, log)
    table = lake.connection.load(log.table.path)
    table.append(rows_of(log, B0, 0).cast(table.schema().as_arrow()))
    reader = lake.open_reader(log.table)
    snapshot = reader.load_snapshot()
    assert snapshot is not None
    found = reader.scan(snapshot.snapshot_id, columns=["__bucket", "__offset"])
    assert sorted(tuple(r.values()) for b in found for r in b.to_pylist()) == [(-1, -1), (0, 0)]


def test_a_rewrite_keeps_every_row_where_it_was(lake: IcebergLakeStorage) -> None:
    log = make_log(lake)
    for number in range(3):
        log.append(B0, row(2 * number), row(2 * number + 1))
        log.append(B1, row(100 + number))
        run(lake, log)
    log.append(B0, row(50))
    flink(lake, log).commit_clean({0: rows_of(log, B0, 6)}, [7, 3])
    log.append(B1, row(103))
    run(lake, log)
    landed = LakeRewrite(lake=lake, table=log.table).run()
    files = lake.open_reader(log.table).files(landed.snapshot_id)
    assert sorted((f.bucket, f.record_count, f.offsets) for f in files if f.bucket) == [
        (B0, 7, OffsetRange(0, 7)),
        (B1, 4, OffsetRange(0, 4)),
    ]
    assert lake_rows(lake, log.table) == log.expected(log.ends())


def files_of(lake: IcebergLakeStorage, log: ScriptedLog) -> list[LakeFile]:
    reader = lake.open_reader(log.table)
    head = reader.load_snapshot()
    assert head is not None
    return list(reader.files(head.snapshot_id))


def compact(lake: IcebergLakeStorage, log: ScriptedLog, *, is_quiet: bool = False, **policy: Any) -> list[LakeFile]:
    """What the planner chooses, rewritten and committed: the files that are there then."""
    options = TieringOptions(compaction=CompactionPolicy(**policy), quiet_after_s=-60 if is_quiet else 3600)
    ground = load_compaction(log.table, lake, options, SystemClock())
    assert ground.groups
    rewrite = LakeRewrite(lake=lake, table=log.table)
    rewrite.groups = list(ground.groups)
    rewrite.run()
    return files_of(lake, log)


def test_a_compacted_log_table_is_counted_as_before(lake: IcebergLakeStorage) -> None:
    """Two files of ours become one, below a file of the Flink job that says nothing of its offsets."""
    log = make_log(lake)
    for number in range(2):
        log.append(B0, row(2 * number), row(2 * number + 1))
        run(lake, log)
    log.append(B0, *(row(10 + n) for n in range(9)))
    flink(lake, log).commit_clean({0: rows_of(log, B0, 4)}, [13])
    log.append(B1, row(30))
    run(lake, log)
    files = [(f.record_count, f.offsets) for f in compact(lake, log, fan_in=2) if f.bucket == B0]
    assert sorted(files) == [(4, OffsetRange(0, 4)), (9, OffsetRange(4, 13))]
    assert lake_rows(lake, log.table) == log.expected(log.ends())
    log.append(B0, row(20))
    run(lake, log)
    assert lake_rows(lake, log.table) == log.expected(log.ends())


def test_a_compacted_log_file_with_holes_says_where_it_begins_and_ends(lake: IcebergLakeStorage) -> None:
    """Another engine deleted rows: those of the file they lay in know their offsets no more once it is rewritten."""
    log = make_log(lake)
    for number in range(2):
        log.append(B0, *(row(4 * number + n) for n in range(4)))
        run(lake, log)
    engine = MergeOnReadEngine(lake.connection.catalog, log.table.path)
    engine.delete_rows({f.path: [0, 2] for f in files_of(lake, log)})
    (worn,) = compact(lake, log, is_quiet=True)
    assert (worn.record_count, worn.offsets) == (4, OffsetRange(1, 8))
    engine.delete_rows({worn.path: [0, 3]})
    (again,) = compact(lake, log)
    assert (again.record_count, again.offsets) == (2, OffsetRange(1, 8))
    log.append(B0, row(9))
    run(lake, log)
    assert sorted(f.offsets for f in files_of(lake, log) if f.offsets) == [OffsetRange(1, 8), OffsetRange(8, 9)]


@pytest.mark.parametrize("is_quiet", [True, False])
def test_a_compaction_of_a_pk_table_applies_the_deletes_of_the_flink_job(
    lake: IcebergLakeStorage, is_quiet: bool
) -> None:
    """Its files say nothing of their offsets, and nobody asks for them."""
    log = make_log(lake, **KEYED)
    log.upsert(B0, *(row(n) for n in range(3)))
    run(lake, log)
    schema, job = rows_of(log, B0, 0).schema, flink(lake, log)
    for number in range(2):
        gone, new = (pa.Table.from_pylist([row(number, *name)], schema) for name in ((), ("again",)))
        job.commit_clean({0: new}, [5 + 2 * number], {0: gone})
    (file,) = compact(lake, log, fan_in=3, is_quiet=is_quiet)
    assert (file.record_count, file.offsets, file.deletes) == (3, None, ())
    expected = {0: "again", 1: "again", 2: row(2)["name"]}
    head = lake.connection.load(log.table.path).metadata_location
    assert {r["id"]: r["name"] for r in read_duckdb(head).to_pylist()} == expected


def test_a_pk_table_after_the_flink_job(lake: IcebergLakeStorage) -> None:
    """Its deletes are whole rows; ours are keys."""
    log = make_log(lake, **KEYED)
    log.upsert(B0, row(1), row(2))
    flink(lake, log).commit_clean({0: rows_of(log, B0, 0)}, [2])
    log.upsert(B0, row(2, "two"))
    log.delete(B0, row(1))
    made = LakeRound.plan(lake, log)
    writer = lake.open_writer(made.task(B0, 2, log.end(B0)))
    writer.delete_keys(pa.record_batch({"id": pa.array([1, 2], pa.int64())}))
    writer.write(log.batch(B0, 3, 4).select([*log.table.schema.names, "__offset", "__timestamp"]))
    made.take(B0, log.end(B0), writer.complete())
    made.commit()
    flink(lake, log).commit_clean(
        {0: pa.Table.from_pylist([row(2, "again")], rows_of(log, B0, 0).schema)},
        [log.end(B0) + 2],
        {0: pa.Table.from_pylist([row(2, "two")], rows_of(log, B0, 0).schema)},
    )
    snapshot = lake.open_reader(log.table).load_snapshot()
    assert snapshot is not None
    found = list(lake.open_reader(log.table).scan(snapshot.snapshot_id, columns=["id", "name", "__bucket", "__offset"]))
    assert [r for b in found for r in b.to_pylist()] == [{"id": 2, "name": "again", "__bucket": 0, "__offset": -1}]


@pytest.mark.parametrize(("stop", "is_late"), [(4, False), (3, True), (1, True)])
def test_more_rows_than_offsets_are_an_overlap(lake: IcebergLakeStorage, stop: int, is_late: bool) -> None:
    """Two rows that a late job adds: its offsets may have moved on by less, or back."""
    log = make_log(lake)
    log.append(B0, row(1), row(2))
    run(lake, log)
    log.append(B0, row(3), row(4))
    flink(lake, log).commit_clean({0: rows_of(log, B0, 2)}, [stop])
    reader = lake.open_reader(log.table)
    head, snapshots = reader.load_snapshot(), reader.snapshots()
    assert head is not None
    ours, above = flink_snapshots(snapshots, head.snapshot_id)
    assert ours is not None
    expected = pytest.raises(LakeOverlap, match=f"Move main back to snapshot {ours.snapshot_id}")
    with expected if is_late else nullcontext():
        check_counts("t", reader.files, ours, above, head, is_pk=False)


def test_a_clean_table_of_ours_does_not_fit(lake: IcebergLakeStorage) -> None:
    """Only Fluss makes them; in a table of the embedded store somebody dropped the columns."""
    log = make_log(lake)
    properties = {k: v for k, v in log.table.descriptor.properties.items() if k != FLUSS_PARTITIONS}
    log.table = replace(log.table, descriptor=replace(log.table.descriptor, properties=properties))
    with pytest.raises(LakeSchemaBroken, match="__bucket"):
        LakeRound.plan(lake, log)
