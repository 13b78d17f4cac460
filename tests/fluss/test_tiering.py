# SPDX-License-Identifier: Apache-2.0
"""Tables of a real Fluss cluster, written by pyfluss, tiered by our job, read back by DuckDB; Fluss's own
view agrees.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from lakeward.hot.fluss.wire.messages import CLIENT, FETCH_LOG
from lakeward.hot.fluss.wire.servers import LogBucket, path_message
from lakeward.model import Bucket
from lakeward.spi import COMMIT_USER, COMMIT_USER_KEY, OFFSETS_KEY
from lakeward_testing.waiting import wait_until
from tests.fluss.steps import DATABASE, Append, Delete, LakeSnapshotOf, MakePartition, MakeTable, Upsert
from tests.fluss.world import FlussWorld, ThreadJob

pytestmark = [pytest.mark.fluss, pytest.mark.usefixtures("job")]

EVENTS = pa.schema([("id", pa.int64()), ("name", pa.string()), ("amount", pa.decimal128(10, 2))])
USERS = pa.schema([pa.field("id", pa.int64(), nullable=False), ("name", pa.string()), ("age", pa.int32())])
ALL_TYPES = pa.schema(
    [
        ("id", pa.int64()),
        ("flag", pa.bool_()),
        ("tiny", pa.int8()),
        ("small", pa.int16()),
        ("plain", pa.int32()),
        ("single", pa.float32()),
        ("double", pa.float64()),
        ("short_money", pa.decimal128(10, 2)),
        ("long_money", pa.decimal128(38, 9)),
        ("word", pa.string()),
        ("raw", pa.binary()),
        ("day", pa.date32()),
        ("clock", pa.time32("ms")),
        ("at_ms", pa.timestamp("ms")),
        ("at_us", pa.timestamp("us")),
        ("zone_us", pa.timestamp("us", tz="UTC")),
    ]
)
UTC = dt.UTC


def events(start: int, stop: int) -> pa.RecordBatch:
    rows = [{"id": n, "name": f"event {n}", "amount": Decimal(n) / 4} for n in range(start, stop)]
    return pa.RecordBatch.from_pylist(rows, schema=EVENTS)


def typed_row(number: int) -> dict[str, Any]:
    return {
        "id": number,
        "flag": number % 2 == 0,
        "tiny": -number,
        "small": -300 * number,
        "plain": -70_000 * number,
        "single": number / 4,
        "double": number / 8,
        "short_money": Decimal(number) / 4,
        "long_money": Decimal(f"{-12345678901234567890123456789 * number}E-9"),
        "word": "grüße " * number,
        "raw": bytes([0, number, 255]),
        "day": dt.date(2024, 2, 28) + dt.timedelta(days=number),
        "clock": dt.time(23, 59, 58, 123_000),
        "at_ms": dt.datetime(2024, 2, 29, 12, 0, 0, 7_000 * number),
        "at_us": dt.datetime(1969, 12, 31, 23, 0, 0, 1_000 * number),
        "zone_us": dt.datetime(2024, 2, 29, 12, 0, 0, 7 * number, tzinfo=UTC),
    }


def test_a_log_table_arrives_whole_and_in_order(world: FlussWorld) -> None:
    world.produce(MakeTable(name="events", schema=EVENTS), Append(table="events", rows=events(0, 20_000)))
    world.wait_tiered("events")
    world.produce(Append(table="events", rows=events(20_000, 21_000)))
    ends = world.wait_tiered("events")
    found = world.rows("events").sort_by("id")
    assert found.drop_columns(["__bucket", "__offset", "__timestamp"]).to_pylist() == events(0, 21_000).to_pylist()
    for bucket, end in ends.items():
        offsets = [r["__offset"] for r in found.to_pylist() if r["__bucket"] == bucket.number]
        assert sorted(offsets) == list(range(end))


def test_fluss_and_pyfluss_agree_on_the_lake(world: FlussWorld) -> None:
    world.produce(MakeTable(name="agreed", schema=EVENTS), Append(table="agreed", rows=events(0, 100)))
    ends = world.wait_tiered("agreed")
    ((snapshot_id, offsets),) = world.produce(LakeSnapshotOf(table="agreed"))
    assert {Bucket("", b): o for (_, b), o in offsets.items()} == dict(ends)
    head = world.lake("agreed").open_reader(world.table("agreed")).load_snapshot()
    assert head is not None
    assert str(snapshot_id) == head.snapshot_id
    assert head.summary[COMMIT_USER_KEY] == COMMIT_USER
    assert head.summary[OFFSETS_KEY].startswith(str(world.cluster.home / "remote" / "lake"))


def test_every_type(world: FlussWorld) -> None:
    rows = [*(typed_row(n) for n in range(1, 6)), {**dict.fromkeys(ALL_TYPES.names), "id": 6}]
    batch = pa.RecordBatch.from_pylist(rows, schema=ALL_TYPES)
    keyed = pa.schema([pa.field("id", pa.int64(), nullable=False), *list(ALL_TYPES)[1:]])
    world.produce(
        MakeTable(name="typed", schema=ALL_TYPES, buckets=1),
        Append(table="typed", rows=batch),
        MakeTable(name="typed_pk", schema=keyed, primary_key=("id",), buckets=1),
        Upsert(table="typed_pk", rows=rows),
    )
    wait_until(lambda: has_kv_snapshot(world, "typed_pk"), what="a KV snapshot")
    for name in ("typed", "typed_pk"):
        world.wait_tiered(name)
        assert list(world.by_key(name).values()) == rows, name


def has_kv_snapshot(world: FlussWorld, name: str) -> bool:
    table = world.table(name)
    found = world.plugin.store().take_snapshot(table, Bucket("", 0), "tests")
    world.plugin.store().release_snapshots(table, "tests")
    return found is not None


def test_a_pk_table_equals_a_dict_after_every_round(world: FlussWorld) -> None:
    expected: dict[int, Mapping[str, Any]] = {n: {"id": n, "name": f"user {n}", "age": n} for n in range(500)}
    world.produce(
        MakeTable(name="users", schema=USERS, primary_key=("id",)), Upsert(table="users", rows=list(expected.values()))
    )
    world.wait_tiered("users")
    assert world.by_key("users") == expected
    for step in range(1, 4):
        changed = {n: {"id": n, "name": f"change {step} of {n}", "age": -n} for n in range(step, 520 + step, 7)}
        gone = list(range(step * 11, 500, 50))
        world.produce(
            Upsert(table="users", rows=list(changed.values())), Delete(table="users", keys=[{"id": n} for n in gone])
        )
        expected = {n: r for n, r in {**expected, **changed}.items() if n not in gone}
        world.wait_tiered("users")
        assert world.by_key("users") == expected


def test_partitions_of_log_and_pk_tables(world: FlussWorld) -> None:
    schema = pa.schema(
        [pa.field("id", pa.int64(), nullable=False), pa.field("day", pa.string(), nullable=False), ("n", pa.int32())]
    )
    rows = [{"id": n, "day": f"2024-01-0{1 + n % 2}", "n": n} for n in range(60)]
    for name, key in (("daily", ()), ("daily_pk", ("id", "day"))):
        world.produce(
            MakeTable(name=name, schema=schema, primary_key=key, partition_keys=("day",)),
            *(MakePartition(table=name, spec={"day": f"2024-01-0{d}"}) for d in (1, 2)),
        )
    world.produce(
        Append(table="daily", rows=pa.RecordBatch.from_pylist(rows, schema=schema)), Upsert(table="daily_pk", rows=rows)
    )
    world.wait_tiered("daily")
    world.wait_tiered("daily_pk")
    later = {"id": 7, "day": "2024-01-03", "n": 7}
    world.produce(
        MakePartition(table="daily", spec={"day": "2024-01-03"}),
        Append(table="daily", rows=pa.RecordBatch.from_pylist([later], schema=schema)),
        Upsert(table="daily_pk", rows=[{**rows[3], "n": -3}]),
        Delete(table="daily_pk", keys=[{"id": 4, "day": "2024-01-01"}]),
    )
    world.wait_tiered("daily")
    world.wait_tiered("daily_pk")
    plain = world.rows("daily").drop_columns(["__bucket", "__offset", "__timestamp"]).to_pylist()
    assert sorted(plain, key=lambda r: (r["id"], r["day"])) == sorted([*rows, later], key=lambda r: (r["id"], r["day"]))
    assert world.by_key("daily_pk") == {r["id"]: {**r, "n": -3} if r["id"] == 3 else r for r in rows if r["id"] != 4}


@pytest.mark.soak
def test_remote_segments_are_read_from_storage(world: FlussWorld) -> None:
    wide = pa.schema([("id", pa.int64()), ("text", pa.string())])
    rows = pa.RecordBatch.from_pylist([{"id": n, "text": f"{n * 7919:x}" * 30} for n in range(30_000)], schema=wide)
    uncompressed = {"table.log.arrow.compression.type": "NONE"}
    world.produce(
        MakeTable(name="remote", schema=wide, buckets=1, freshness="1h", properties=uncompressed),
        Append(table="remote", rows=rows, chunk=1_000),
    )
    table, store = world.table("remote"), world.plugin.store()
    wait_until(lambda: first_answer(world, "remote").get("remote"), what="remote segments")
    end = store.freeze(table)[Bucket("", 0)].end
    batches = list(store.read_log(table, Bucket("", 0), 500, end - 500))
    assert [o for b in batches for o in b.column("__offset").to_pylist()] == list(range(500, end - 500))
    assert pa.Table.from_batches(batches).select(["id", "text"]).to_pylist() == rows.slice(500, 29_000).to_pylist()


def first_answer(world: FlussWorld, name: str) -> dict[str, Any]:
    """What Fluss answers to a fetch of the oldest records: themselves, or where they lie."""
    table = world.table(name)
    bucket = LogBucket(int(table.table_id), None, 0)
    leader = world.plugin.servers.leader(path_message(DATABASE, name), bucket)
    wanted = {
        "table_id": bucket.table_id,
        "is_projected": 0,
        "buckets": [{"bucket": 0, "offset": 0, "max_bytes": 1000}],
    }
    answer = leader.call(
        FETCH_LOG, {"follower": CLIENT, "max_bytes": 1000, "tables": [wanted], "max_wait_ms": 0, "min_bytes": 1}
    )
    found: dict[str, Any] = answer["tables"][0]["buckets"][0]
    return found


def test_the_job_reported_no_failure(job: ThreadJob) -> None:
    assert "WARNING" not in job.log
    assert "ERROR" not in job.log
