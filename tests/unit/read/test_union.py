# SPDX-License-Identifier: Apache-2.0
"""Union reads over real parts in one process: what only one side knows, cut logs, history, leases, and errors
in words.
"""

from __future__ import annotations

import gc
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from lakeward.errors import (
    InvalidRequest,
    LakeTampered,
    LakeUnavailable,
    LogTooShort,
    ReadTooFarAhead,
    SnapshotGone,
    TableNotFound,
)
from lakeward.model import Bucket, ExpiringSnapshot, OffsetMap, OffsetRange, SnapshotId, TablePath
from lakeward.protocol.readplan import WriteToken
from lakeward.protocol.tables import AlterTable
from lakeward.read.result import describe_freshness
from lakeward.read.tail import fold_tail, read_live, without_replaced_mixed
from lakeward_testing.clock import ManualClock
from tests.kit.inprocess import InProcessLakeward
from tests.property.union_program import iceberg_lake, memory_lake

OFF: Any = {"table.datalake.enabled": "false"}


def ids(world: InProcessLakeward, path: str, **options: Any) -> list[int]:
    return sorted(world.read(path, **options).to_table()["id"].to_pylist())


def cut_log(world: InProcessLakeward, clock: ManualClock, path: str, days: int = 9) -> int:
    """Time passes and retention takes what it may; returns where the log of bucket 0 then begins."""
    clock.advance(days * 86_400)
    table = world.store.load_table(TablePath.parse(path))
    for bucket in world.store.hot_table(table).opened():
        if table.is_pk:
            bucket.kv(world.store.hot_table(table).schemas).tick()
    world.coordinator.read_lake(TablePath.parse(path))  # retention believes the lake alone
    world.store.upkeep.upload()
    world.store.upkeep.expire()
    return world.store.bounds(table)[Bucket("", 0)].start


def test_a_pk_table_without_a_lake_is_whole_after_its_log_was_cut(world: InProcessLakeward, clock: ManualClock) -> None:
    world.create("db.t", "id bigint not null, v string", primary_key="id", buckets=1, **OFF)
    for i in range(200):
        world.upsert("db.t", [{"id": i, "v": "x" * 50}])
    assert cut_log(world, clock, "db.t") > 0
    world.upsert("db.t", [{"id": 3, "v": "new"}])
    world.delete("db.t", [{"id": 4}])
    assert ids(world, "db.t") == [i for i in range(200) if i != 4]
    assert ids(world, "db.t", mode="hot") == [i for i in range(200) if i != 4]
    assert world.read("db.t", filter=[("id", "=", 3)]).to_table().to_pylist() == [{"id": 3, "v": "new"}]


def test_a_log_table_without_a_lake_shows_what_its_log_still_has(world: InProcessLakeward, clock: ManualClock) -> None:
    world.create("db.t", "id bigint not null, v string", buckets=1, **OFF)
    for i in range(200):
        world.append("db.t", [{"id": i, "v": "x" * 50}])
    start = cut_log(world, clock, "db.t")
    assert 0 < start < 200
    assert ids(world, "db.t") == list(range(start, 200))
    result = world.read("db.t")
    assert result.bound.tail_rows == 200 - start
    result.close()


def test_a_cut_log_and_the_lake_are_one_table(world: InProcessLakeward, clock: ManualClock) -> None:
    world.create("db.t", "id bigint not null, v string")
    for i in range(200):
        world.append("db.t", [{"id": i, "v": "x" * 50}])
    assert cut_log(world, clock, "db.t") == 0, "the lake has nothing yet"
    world.tier("db.t")
    assert cut_log(world, clock, "db.t") > 0
    world.append("db.t", [{"id": 200, "v": "hot"}])
    assert ids(world, "db.t") == list(range(201))


def test_a_partition_that_one_side_dropped(world: InProcessLakeward) -> None:
    world.create("db.t", "id bigint not null, p int not null", partition_by="p", buckets=2)
    world.append("db.t", [{"id": i, "p": i % 2} for i in range(10)])
    world.tier("db.t")
    table = world.store.load_table(TablePath.parse("db.t"))
    world.store.drop_partition(table, "1")
    world.append("db.t", [{"id": 10, "p": 2}])
    assert ids(world, "db.t") == list(range(11)), "the lake alone knows partition 1, the hot store alone partition 2"
    assert ids(world, "db.t", filter=[("p", "=", 1)]) == [1, 3, 5, 7, 9]
    assert ids(world, "db.t", filter=pc.field("p") > 1) == [10]


def test_a_lake_that_is_ahead_of_the_log_for_good_is_named(world: InProcessLakeward, clock: ManualClock) -> None:
    """The lake was switched off for longer than the log is kept: rows between the two are in neither."""
    world.create("db.t", "id bigint not null, v string")
    world.append("db.t", [{"id": 0, "v": ""}])
    world.tier("db.t")
    world.federation.alter(TablePath.parse("db.t"), AlterTable(properties={"table.datalake.enabled": "false"}))
    for i in range(1, 200):
        world.append("db.t", [{"id": i, "v": "x" * 50}])
    start = cut_log(world, clock, "db.t")
    assert start > 1
    assert ids(world, "db.t") == list(range(start, 200)), "without the lake: what the log has"
    world.federation.alter(TablePath.parse("db.t"), AlterTable(properties={"table.datalake.enabled": "true"}))
    with pytest.raises(LogTooShort, match="resync"):
        world.read("db.t")
    assert ids(world, "db.t", mode="hot") == list(range(start, 200))


def test_history_is_leased_and_says_what_is_kept(world: InProcessLakeward, clock: ManualClock) -> None:
    world.create("db.t", "id bigint not null")
    moments: list[int] = []
    snapshots: list[SnapshotId] = []
    for i in range(3):
        world.append("db.t", [{"id": i}])
        world.tier("db.t")
        result = world.read("db.t", mode="lake")
        assert result.bound.snapshot_id is not None
        snapshots.append(result.bound.snapshot_id)
        moments.append(result.bound.as_of_ms)
        result.close()
        clock.advance(3_600)
    assert ids(world, "db.t", as_of=snapshots[0]) == [0]
    assert ids(world, "db.t", as_of=datetime.fromtimestamp(moments[1] / 1000, UTC)) == [0, 1]
    result = world.read("db.t", as_of=snapshots[0])
    assert "lake snapshot" in describe_freshness(result.bound)
    going = [ExpiringSnapshot(snapshot_id=snapshots[0])]
    assert world.coordinator.leases.mark(result_table(world), going) == [], "leased: expiry leaves it"
    result.close()
    assert world.coordinator.leases.mark(result_table(world), going) == [snapshots[0]]
    with pytest.raises(SnapshotGone):
        world.read("db.t", as_of=snapshots[0])
    with pytest.raises(SnapshotGone, match="history is kept from"):
        world.read("db.t", as_of=datetime(2001, 1, 1, tzinfo=UTC))
    with pytest.raises(InvalidRequest, match="as_of"):
        world.read("db.t", as_of=snapshots[0], mode="hot")


def result_table(world: InProcessLakeward) -> Any:
    return world.coordinator.board.find(TablePath.parse("db.t")).id


def test_a_result_that_is_forgotten_does_not_hold_its_lease_for_ever(
    world: InProcessLakeward, clock: ManualClock
) -> None:
    world.create("db.t", "id bigint not null")
    world.append("db.t", [{"id": 1}])
    result = world.read("db.t")
    assert world.coordinator.leases.count() == 1
    lease = result._lease
    del result
    gc.collect()
    assert lease._done.is_set(), "nobody renews it any more"
    clock.advance(3_600)
    assert world.coordinator.leases.sweep() == 1


def test_wrong_requests_are_told_in_words(world: InProcessLakeward) -> None:
    table = world.create("db.t", "id bigint not null, v string", primary_key="id")
    token = world.upsert("db.t", [{"id": 1, "v": "x"}])
    assert ids(world, "db.t", at_least=token) == [1]
    ahead = WriteToken(table_id=table.table_id, offsets=OffsetMap({Bucket("", 0): 99}))
    wrong: list[tuple[type[Exception], str, dict[str, Any]]] = [
        (ReadTooFarAhead, "99", {"at_least": ahead}),
        (InvalidRequest, "write token", {"at_least": "nonsense"}),
        (InvalidRequest, "union, lake, hot", {"mode": "all"}),
        (InvalidRequest, "there are id, v", {"columns": ["nothing"]}),
        (InvalidRequest, "twice", {"columns": ["id", "id"]}),
        (InvalidRequest, "list of names", {"columns": "id"}),
        (InvalidRequest, "columns are id, v", {"filter": [("other", "=", 1)]}),
        (InvalidRequest, "filter", {"filter": [("id", "=", "text")]}),
        (InvalidRequest, "neither a snapshot id", {"as_of": "yesterday"}),
        (SnapshotGone, "no snapshot", {"as_of": "17"}),
        (InvalidRequest, "one of the two", {"as_of": "17", "at_least": ahead}),
    ]
    for kind, words, options in wrong:
        with pytest.raises(kind, match=words):
            world.read("db.t", **options)
    with pytest.raises(TableNotFound, match=r"db\.other"):
        world.read("db.other")
    assert world.coordinator.leases.count() == 0, "a refused read leaves no lease"


def test_a_missing_lake_file_is_named_and_the_hot_store_can_still_be_read(
    world: InProcessLakeward, tmp_path: Path
) -> None:
    world.create("db.t", "id bigint not null")
    world.append("db.t", [{"id": 1}])
    world.tier("db.t")
    for file in (tmp_path / "warehouse").rglob("data/**/*.parquet"):
        file.unlink()
    with pytest.raises(LakeTampered, match="a data file cannot be read"):
        world.read("db.t").to_table()


def test_the_hot_store_can_be_read_while_the_lake_does_not_answer(tmp_path: Path) -> None:
    world = InProcessLakeward(tmp_path, iceberg_lake(tmp_path))
    try:
        world.create("db.log", "id bigint not null")
        world.create("db.pk", "id bigint not null", primary_key="id")
        world.append("db.log", [{"id": 1}])
        world.upsert("db.pk", [{"id": 1}])
        (tmp_path / "catalog.db").write_bytes(b"this is no database")
        world.restart()
        for path in ("db.log", "db.pk"):
            with pytest.raises(LakeUnavailable):
                world.read(path)
            assert ids(world, path, mode="hot") == [1]
    finally:
        world.close()


def test_rows_of_several_buckets_in_one_file_are_told_apart(tmp_path: Path) -> None:
    """A file that others wrote under another spec does not say its bucket."""
    world = InProcessLakeward(tmp_path, memory_lake(tmp_path))
    try:
        table = world.create(
            "db.t", "p int not null, id bigint not null", primary_key="p,id", partition_by="p", buckets=1
        )
        world.upsert("db.t", [{"p": p, "id": 1} for p in (1, 2)])
        world.delete("db.t", [{"p": 1, "id": 1}])
        hot = world.plugin.store()
        folds = [fold_tail(hot, table, b, OffsetRange(1, v.end)) for b, v in hot.freeze(table).items()]
        mixed = pa.record_batch(
            {
                "p": pa.array([1, 2], pa.int32()),
                "id": [1, 1],
                "__bucket": pa.array([0, 0], pa.int32()),
                "__offset": [0, 0],
            }
        )
        assert without_replaced_mixed(mixed, folds, table).to_pylist() == [
            {"p": 2, "id": 1, "__bucket": 0, "__offset": 0}
        ]
    finally:
        world.close()


def test_a_tail_that_is_held_gives_the_rows_of_one_that_is_read_twice(world: InProcessLakeward) -> None:
    table = world.create("db.t", "id bigint not null, name string, more string", primary_key="id", buckets=2)
    world.upsert("db.t", [{"id": i, "name": "a", "more": "x"} for i in range(20)])
    world.upsert("db.t", [{"id": i, "name": "b", "more": "y"} for i in range(0, 20, 3)])
    world.delete("db.t", [{"id": i} for i in range(0, 20, 5)])
    hot = world.plugin.store()
    for bucket, bounds in hot.freeze(table).items():
        tail = OffsetRange(3, bounds.end)
        twice, once = fold_tail(hot, table, bucket, tail), fold_tail(hot, table, bucket, tail, hold=["name"])
        assert twice.held is None
        assert once.replaced == twice.replaced
        rows = [[r for b in read_live(hot, table, f, ["name"]) for r in b.to_pylist()] for f in (twice, once)]
        assert rows[0] == rows[1] != []
        assert {*rows[1][0]} == {"name", "__offset", "__timestamp"}


def test_a_log_table_streams_with_constant_memory(tmp_path: Path) -> None:
    """4 M rows of 40 bytes, half in eight lake files, half in the log: never more than a fraction of them at once."""
    world = InProcessLakeward(tmp_path, iceberg_lake(tmp_path))
    try:
        world.create("db.t", ", ".join(f"c{i} bigint not null" for i in range(5)), buckets=2)
        part = pa.table({f"c{i}": np.random.default_rng(i).integers(0, 2**60, 250_000) for i in range(5)})
        for number in range(16):
            world.append("db.t", part)
            if number < 8:
                world.tier("db.t")
        gc.collect()
        before, most, rows = pa.total_allocated_bytes(), 0, 0
        for batch in world.read("db.t").reader():
            rows += batch.num_rows
            del batch
            most = max(most, pa.total_allocated_bytes() - before)
        assert rows == 4_000_000
        assert most < 4_000_000 * 40 / 3
    finally:
        world.close()


def test_rows_as_other_libraries_have_them(world: InProcessLakeward) -> None:
    world.create("db.t", "id bigint not null, v string", buckets=1, **OFF)
    rows = [{"id": 1, "v": "x"}, {"id": 2, "v": None}]
    world.append("db.t", rows)
    assert world.read("db.t").to_polars().to_dicts() == rows
    assert world.read("db.t").to_duckdb().fetchall() == [(1, "x"), (2, None)]
    assert world.read("db.t").to_pandas()["id"].tolist() == [1, 2]
