# SPDX-License-Identifier: Apache-2.0
"""Resync rounds: a lake or a log that was restored, or rows that nobody has any more."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from lakeward.model import Bucket
from lakeward.protocol.heartbeat import TableFailed, TableFinished
from lakeward_testing.clock import ManualClock
from tests.kit.memoryforeign import MemoryForeignEngine
from tests.unit.tiering.world import BUCKET, ListBucket, World, make_table

PK = ("id BIGINT NOT NULL", "name STRING")


def rows(start: int, stop: int, name: str = "n") -> list[dict[str, object]]:
    return [{"id": i, "name": f"{name}{i}"} for i in range(start, stop)]


def test_pk_lake_rolled_back_by_others_is_brought_to_the_kv_state() -> None:
    world = World(make_table(*PK, key=("id",)))
    world.store.upsert(rows(0, 10))
    world.run()
    first = world.reader.snapshots()[0].snapshot_id
    world.store.upsert(rows(3, 6, "u"))
    world.store.delete([{"id": 9}])
    world.run()
    MemoryForeignEngine(world.memory, world.table.path).roll_back(first)
    world.store.upsert(rows(20, 22))
    end = world.run()
    assert isinstance(end, TableFailed)
    assert end.error["code"] == "lake-rolled-back"
    assert isinstance(world.run(resync=True, generation=1), TableFinished)
    assert world.lake_rows() == world.store.rows()
    assert world.coordinator.generation == 1
    world.store.upsert(rows(0, 4, "after"))
    assert isinstance(world.run(), TableFinished)
    assert world.lake_rows() == world.store.rows()
    assert world.reader.load_base().generation == 1


def test_pk_hot_store_restored_from_an_older_copy_takes_the_lake_back_to_it() -> None:
    """Rows of the lost future leave the lake; rows that the lost future had deleted come back."""
    world = World(make_table(*PK, key=("id",)))
    world.store.upsert(rows(0, 10))
    old_live, old_end = dict(world.store.buckets[BUCKET].live), world.store.buckets[BUCKET].end
    old_batches = list(world.store.buckets[BUCKET].batches)
    world.run()
    world.store.upsert(rows(3, 6, "lost"))
    world.store.delete([{"id": 0}])
    world.run()
    world.store.buckets[BUCKET] = ListBucket(batches=old_batches, live=old_live, end=old_end)
    end = world.run()
    assert isinstance(end, TableFailed)
    assert end.error["code"] == "hot-store-behind"
    assert isinstance(world.run(resync=True, generation=1), TableFinished)
    assert world.lake_rows() == world.store.rows()
    assert world.coordinator.offsets[BUCKET] == old_end


def test_a_resync_that_landed_before_its_report_is_adopted_not_redone() -> None:
    world = World(make_table(*PK, key=("id",)))
    world.store.upsert(rows(0, 10))
    world.run()

    def crash() -> None:
        raise KeyboardInterrupt

    world.coordinator.before_commit = crash
    with pytest.raises(KeyboardInterrupt):
        world.run(resync=True, generation=1)
    world.coordinator.before_commit = lambda: None
    before = world.snapshots()
    world.store.upsert(rows(0, 2, "later"))
    assert isinstance(world.run(resync=True, generation=1), TableFinished)
    assert world.snapshots() == before + 1, "one ordinary round, no second resync"
    assert world.lake_rows() == world.store.rows()
    assert world.coordinator.generation == 1


def test_log_lake_restored_from_backup_is_rewound_while_the_log_is_there() -> None:
    world = World()
    for n in range(3):
        world.store.append(rows(5 * n, 5 * n + 5))
        world.run()
    first = world.reader.snapshots()[0].snapshot_id
    MemoryForeignEngine(world.memory, world.table.path).roll_back(first)
    assert isinstance(world.run(resync=True, generation=1), TableFinished)
    assert world.lake_rows() == world.store.rows()
    assert world.coordinator.offsets[BUCKET] == 15


def test_log_rows_that_are_gone_become_a_gap_on_purpose() -> None:
    world = World()
    world.store.append(rows(0, 5))
    world.run()
    world.store.append(rows(5, 10))
    world.store.append(rows(10, 15))
    world.store.cut_log(10)
    assert isinstance(world.run(), TableFailed)
    end = world.run(resync=True, generation=1)
    assert isinstance(end, TableFinished), end
    assert [row[2] for row in world.lake_rows()] == [0, 1, 10, 11, 12, 13, 14, 2, 3, 4]
    report = world.coordinator.rounds[-1]
    assert [(r.range.start, r.range.stop) for r in report.ranges] == [(10, 15)]


@pytest.mark.parametrize("key", [(), ("id",)])
@pytest.mark.parametrize("count", [0, 5])
def test_a_resync_with_nothing_to_write_is_through_at_once(key: tuple[str, ...], count: int) -> None:
    world = World(make_table(*PK, key=key))
    add = world.store.upsert if key else world.store.append
    add(rows(0, count))
    world.run()
    assert isinstance(world.run(resync=True, generation=1), TableFinished)
    assert (world.coordinator.generation, world.reader.load_base().generation) == (1, 1)
    add(rows(count, count + 2))
    assert isinstance(world.run(), TableFinished)
    assert world.lake_rows() == world.store.rows()


def test_log_rows_that_are_gone_become_a_gap_also_while_no_new_ones_come() -> None:
    """Of a bucket without a row in its log: the next rows go on there, without a second resync."""
    world, other = World(), Bucket("", 1)
    for bucket in (BUCKET, other):
        world.store.append(rows(0, 5), bucket)
    world.run()
    for bucket in (BUCKET, other):
        world.store.append(rows(5, 10), bucket)
        world.store.cut_log(10, bucket)
    assert isinstance(world.run(), TableFailed)
    world.store.append(rows(10, 12))
    assert isinstance(world.run(resync=True, generation=1), TableFinished)
    assert dict(world.coordinator.offsets) == {BUCKET: 12, other: 10}
    world.store.append(rows(20, 21), other)
    assert isinstance(world.run(), TableFinished)
    assert len(world.lake_rows()) == 10 + 2 + 1


def test_what_a_plan_takes_is_not_taken_from_writing() -> None:
    """Planning takes longer than the round may take: every bucket is written all the same."""
    clock = ManualClock()
    world = World(make_table(*PK, key=("id",), buckets=3), clock=clock)
    for number in range(3):
        world.store.upsert(rows(10 * number, 10 * number + 10), Bucket("", number))
    world.store.on_freeze = lambda: clock.advance(60)
    end = world.run(limit_ms=90_000)
    assert isinstance(end, TableFinished)
    assert not end.force_finished
    assert world.lake_rows() == world.store.rows()


def test_a_lake_of_another_table_is_refused() -> None:
    world = World()
    world.store.append(rows(0, 5))
    world.run()
    other = make_table()
    world.table = world.store.table = world.coordinator.table = other
    end = world.run()
    assert isinstance(end, TableFailed)
    assert end.error["code"] == "lake-foreign"


def test_a_resync_mends_rows_that_others_altered_doubled_or_put_there() -> None:
    """A later round of the same keys finds the renewed rows; one of them is replaced in the resync round's own log."""
    world = World(make_table(*PK, key=("id",)))
    world.store.upsert(rows(0, 10))
    world.run()
    theirs = MemoryForeignEngine(world.memory, world.table.path)
    theirs.update(pc.field("id") < 4, "name", "altered")
    (lake,) = theirs.rows()
    theirs.insert(lake.slice(2, 6))
    theirs.insert(lake.slice(0, 1).set_column(lake.column_names.index("id"), "id", pa.array([99])))
    assert isinstance(world.run(resync=True, generation=1), TableFinished)
    assert world.lake_rows() == world.store.rows()
    world.store.upsert(rows(0, 6, "later"))
    world.store.delete([{"id": 7}])
    assert isinstance(world.run(), TableFinished)
    assert world.lake_rows() == world.store.rows()
