# SPDX-License-Identifier: Apache-2.0
"""Rows that go by key, found where they lie: keys of every kind, rows that are gone already, and files of others."""

from __future__ import annotations

import json
from dataclasses import replace
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakeward.lake.iceberg.commit.keyindex import encode_keys, find_among, index_keys
from lakeward.lake.iceberg.plugin import IcebergLakeStorage
from lakeward.model import FLUSS_PARTITIONS, Bucket, BucketFunction, TableId
from lakeward_testing.lakes.rounds import LakeRound
from lakeward_testing.lakes.suite import B0, B1, LakeSuite, row
from lakeward_testing.scripted_log import ScriptedLog
from tests.kit.iceberg.engines import read_duckdb
from tests.kit.iceberg.flink import FlinkJob

NUMBERS = st.integers(-(2**63), 2**63 - 1)
KEYS: dict[str, tuple[pa.Schema, Any]] = {
    "long": (pa.schema([("a", pa.int64())]), st.tuples(NUMBERS)),
    "close": (pa.schema([("a", pa.int64())]), st.tuples(st.integers(0, 40).map(lambda n: n - 2**63))),
    "pair": (pa.schema([("a", pa.int64()), ("b", pa.int32())]), st.tuples(NUMBERS, st.integers(-2, 2))),
    "text": (pa.schema([("a", pa.string())]), st.tuples(st.text(max_size=3))),
    "many": (
        pa.schema([("a", pa.string()), ("b", pa.binary()), ("c", pa.decimal128(4, 2))]),
        st.tuples(st.sampled_from(["", "1:", "1"]), st.sampled_from([b"", b"1", b":1"]), st.just(Decimal("0.25"))),
    ),
}


@pytest.mark.parametrize("kind", KEYS)
@given(data=st.data())
def test_positions_of_keys_are_those_of_equal_keys(kind: str, data: st.DataObject) -> None:
    schema, keys = KEYS[kind]
    held, wanted = (data.draw(st.lists(keys, max_size=12)) for _ in range(2))
    codes, wanted_codes = (encode_keys(_table(schema, rows)) for rows in (held, wanted))
    found = index_keys(codes).find(np.unique(wanted_codes))
    assert found.tolist() == [at for at, key in enumerate(held) if key in wanted]


@given(
    lowest=st.sampled_from([-(2**63), -5, 2**63 - 24]),
    held=st.lists(st.integers(0, 23), min_size=4),
    far=st.lists(NUMBERS, max_size=3),
    wanted=st.lists(st.integers(0, 23), min_size=1),
)
def test_numbers_are_found_without_an_index(lowest: int, held: list[int], far: list[int], wanted: list[int]) -> None:
    """Wherever they lie, beside numbers that are further away than a number can say."""
    codes = np.array([*(lowest + n for n in held), *far], np.int64)
    wanted_codes = np.unique(np.array([lowest + n for n in wanted], np.int64))
    found = find_among(codes, wanted_codes)
    assert found is not None
    assert found.tolist() == np.flatnonzero([code in wanted_codes for code in codes]).tolist()


def _table(schema: pa.Schema, rows: list[tuple[Any, ...]]) -> pa.Table:
    columns = [pa.array([r[at] for r in rows], field.type) for at, field in enumerate(schema)]
    return pa.Table.from_arrays(columns, schema=schema)


def make_log(lake: IcebergLakeStorage, key: str = "id") -> ScriptedLog:
    columns = {"id": "BIGINT NOT NULL", "name": "STRING NOT NULL", "amount": "DECIMAL(10, 2)"}
    keyed: dict[str, Any] = {"primary_key": (key,), "bucket_keys": (key,), "bucket_function": BucketFunction.ICEBERG}
    return LakeSuite().make_log(lake, columns=columns, **keyed)


def run(lake: IcebergLakeStorage, log: ScriptedLog, key: str = "id") -> None:
    """A round that knows keys only, as those of a Fluss cluster."""
    made = LakeRound.plan(lake, log)
    for bucket, stop in log.ends().items():
        start = made.start(bucket)
        batch = log.batch(bucket, start, stop)
        live = {offset for b, offset, _ in log.expected(log.ends()) if b == bucket and offset >= start}
        writer = lake.open_writer(made.task(bucket, start, stop))
        if start and batch.num_rows:
            writer.delete_keys(pa.record_batch({key: batch.column(key)}))
        kept = batch.filter(pa.array([o in live for o in batch.column("__offset").to_pylist()], pa.bool_()))
        if kept.num_rows:
            writer.write(kept.select([*log.table.schema.names, "__offset", "__timestamp"]))
        made.take(bucket, stop, writer.complete())
    made.commit()


def names(lake: IcebergLakeStorage, log: ScriptedLog) -> list[tuple[int, str]]:
    found = read_duckdb(lake.connection.load(log.table.path).metadata_location)
    return sorted((r["id"], r["name"]) for r in found.to_pylist())


def test_a_file_without_rows_holds_no_key_of_any_kind() -> None:
    none = np.empty(0, np.int64)
    wanted = encode_keys(pa.table({"a": ["x", "y"]}))
    assert find_among(none, wanted) is None
    assert index_keys(none).find(wanted).tolist() == []


@pytest.mark.parametrize("key", ["id", "name"])
def test_rounds_by_key_leave_every_key_once(lake: IcebergLakeStorage, key: str) -> None:
    """A key that comes, goes and comes again has dead rows in older files: none of them is deleted twice."""
    log = make_log(lake, key)
    changed: dict[str, Any] = {"amount": Decimal("7.25")} if key == "name" else {}
    log.upsert(B0, *(row(n) for n in range(6)))
    log.upsert(B1, row(10), row(11))
    run(lake, log, key)
    log.upsert(B0, row(1, **changed) if changed else row(1, "one"), row(6))
    log.delete(B0, row(2))
    run(lake, log, key)
    log.upsert(B0, row(2), row(1, **changed) if changed else row(1, "uno"))
    log.delete(B1, row(10))
    run(lake, log, key)
    expected = [r for _, _, r in log.expected(log.ends())]
    assert names(lake, log) == sorted((r["id"], r["name"]) for r in expected)
    snapshot = lake.open_reader(log.table).load_snapshot()
    assert snapshot is not None
    assert snapshot.summary["total-equality-deletes"] == "0"
    assert snapshot.summary["total-position-deletes"] == "4"
    assert lake.open_reader(log.table).totals().rows == len(expected)


def test_a_partition_that_fluss_made_anew_begins_without_the_old_ones_rows(lake: IcebergLakeStorage) -> None:
    """Its keys would be there twice. The table's other partition, and one that is only gone, keep theirs."""
    columns = {"id": "BIGINT NOT NULL", "name": "STRING NOT NULL", "day": "STRING NOT NULL"}
    first = {FLUSS_PARTITIONS: json.dumps({"5": "mon", "6": "tue", "7": "wed"})}
    keyed: dict[str, Any] = {"primary_key": ("id", "day"), "partition_keys": ("day",), "bucket_keys": ("id",)}
    table = LakeSuite().table_info(columns=columns, properties=first, table_id=TableId("7"), **keyed)
    lake.catalog().create(table)

    def run_in(partitions: dict[str, str], **rows: list[int]) -> None:
        properties = {**table.descriptor.properties, FLUSS_PARTITIONS: json.dumps(partitions)}
        log = ScriptedLog(replace(table, descriptor=replace(table.descriptor, properties=properties)))
        for day, ids in rows.items():
            bucket = Bucket(day, 0)
            log.skip(bucket, LakeRound.plan(lake, log).start(bucket))
            log.upsert(bucket, *({"id": n, "name": f"{day} {n}", "day": day} for n in ids))
        made = LakeRound.plan(lake, log)
        for day in rows:
            made.write(Bucket(day, 0))
        made.commit()

    run_in({"5": "mon", "6": "tue", "7": "wed"}, mon=[1, 2, 3], tue=[1], wed=[1])
    run_in({"6": "tue", "9": "mon"}, tue=[2])
    run_in({"6": "tue", "9": "mon"}, mon=[2, 4])
    run_in({"6": "tue", "9": "mon"}, mon=[5])
    found = read_duckdb(lake.connection.load(table.path).metadata_location).to_pylist()
    assert sorted(r["name"] for r in found) == ["mon 2", "mon 4", "mon 5", "tue 1", "tue 2", "wed 1"]
    assert lake.open_reader(table).totals().rows == 6


def test_rows_of_the_flink_job_are_found_below_its_deletes(lake: IcebergLakeStorage) -> None:
    log = make_log(lake)
    log.upsert(B0, row(1), row(2))
    run(lake, log)
    schema = lake.connection.load(log.table.path).schema().as_arrow()
    flink_row = {**row(1, "flink"), "__bucket": 0, "__offset": 3, "__timestamp": 0}
    rows = pa.Table.from_pylist([flink_row], schema=schema)
    FlinkJob(lake.connection.catalog, log.table.path, log.table.table_id).commit(rows, [4], rows.select(["id"]))
    log.upsert(B0, row(1, "flink"))
    log.upsert(B0, row(1, "ours"))
    run(lake, log)
    assert names(lake, log) == [(1, "ours"), (2, "row 2")]
