# SPDX-License-Identifier: Apache-2.0
"""Partitions that go away: in the middle of a round, and before a lake that is ahead is taken over."""

from __future__ import annotations

import threading

import pyarrow as pa
import pytest

from lakeward.hot.fluss.tables import partition_ids
from lakeward.hot.fluss.wire.messages import Api
from lakeward.hot.fluss.wire.servers import path_message
from lakeward.model import GONE_PARTITION, Bucket
from lakeward.protocol.heartbeat import TableFailed, TableFinished
from lakeward_testing.faults import FaultAction, Faults
from lakeward_testing.waiting import wait_until
from tests.fluss.ondemand import OnDemand
from tests.fluss.steps import DATABASE, Append, MakePartition, MakeTable, Upsert
from tests.fluss.world import FlussWorld
from tests.kit.fluss import ddl_pb2

pytestmark = [pytest.mark.fluss, pytest.mark.soak]

DAILY = pa.schema([("id", pa.int64()), pa.field("day", pa.string(), nullable=False)])
DROP_PARTITION = Api(1037, "DropPartition", ddl_pb2.DropPartitionRequest, ddl_pb2.Empty)


def rows(day: str, start: int, stop: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([{"id": n, "day": day} for n in range(start, stop)], schema=DAILY)


def make(world: FlussWorld, name: str) -> None:
    world.produce(
        MakeTable(name=name, schema=DAILY, partition_keys=("day",), buckets=1, freshness="1h"),
        *(MakePartition(table=name, spec={"day": d}) for d in ("one", "two")),
        *(Append(table=name, rows=rows(d, 0, 50)) for d in ("one", "two")),
    )


def drop(world: FlussWorld, name: str, day: str) -> None:
    """Until the tablet server is done with it too: the coordinator answers before that, and a read may still find
    everything.
    """
    store, table, spec = world.plugin.store(), world.table(name), {"values": [{"key": "day", "value": day}]}
    last = {Bucket(day, 0): 50}
    assert store.marks_now(table, last)
    world.plugin.servers.call_coordinator(
        DROP_PARTITION, {"path": path_message(DATABASE, name), "spec": spec, "ignore": 0}
    )
    wait_until(lambda: not store.marks_now(table, last), what=f"{day} of {name} is gone")


@pytest.mark.parametrize(("point", "is_in_time"), [("round.before-write", True), ("round.before-lake-commit", False)])
def test_a_partition_that_is_dropped_in_a_round(
    world: FlussWorld, rounds: OnDemand, point: str, is_in_time: bool
) -> None:
    """Before it was read the round fails, at once, and the next one goes on without it; what was read is committed."""
    name, ends = f"falling_{int(is_in_time)}", list[object]()
    make(world, name)
    with Faults() as faults:
        pause = faults.arm(point, action=FaultAction.PAUSE)
        worker = threading.Thread(target=lambda: ends.append(rounds.run(name)))
        worker.start()
        pause.wait_reached()
        drop(world, name, "one")
        pause.release()
        worker.join(120)
    assert isinstance(ends[0], TableFailed if is_in_time else TableFinished)
    world.produce(Append(table=name, rows=rows("two", 50, 60)))
    assert isinstance(rounds.run(name), TableFinished)
    found = sorted((r["day"], r["id"]) for r in world.rows(name).to_pylist())
    assert found == [*([] if is_in_time else [("one", n) for n in range(50)]), *(("two", n) for n in range(60))]


def test_offsets_of_partitions_that_are_gone_are_told_too_when_a_lake_that_is_ahead_is_taken_over(
    world: FlussWorld, rounds: OnDemand
) -> None:
    make(world, "gone")
    number = partition_ids(world.table("gone"))["one"]
    with Faults() as faults:
        faults.arm("round.before-coordinator-commit")
        assert isinstance(rounds.run("gone"), TableFailed)
    drop(world, "gone", "one")
    assert isinstance(rounds.run("gone"), TableFinished)
    assert dict(world.committed("gone")) == {Bucket("two", 0): 50, Bucket(f"{GONE_PARTITION}{number}", 0): 50}


def test_a_pk_partition_that_is_dropped_and_made_anew(world: FlussWorld, rounds: OnDemand) -> None:
    """The old one's rows stay while it is gone, and leave with the first round of the new one."""
    schema, one = pa.schema([DAILY.field("id").with_nullable(False), DAILY.field("day")]), {"day": "one"}
    world.produce(
        MakeTable(
            name="anew", schema=schema, primary_key=("id", "day"), partition_keys=("day",), buckets=1, freshness="1h"
        ),
        *(MakePartition(table="anew", spec={"day": d}) for d in ("one", "two")),
        Upsert(table="anew", rows=[{"id": n, "day": d} for d in ("one", "two") for n in range(50)]),
    )
    assert isinstance(rounds.run("anew"), TableFinished)
    drop(world, "anew", "one")
    world.produce(MakePartition(table="anew", spec=one), Upsert(table="anew", rows=[{"id": 99, "day": "two"}]))
    assert isinstance(rounds.run("anew"), TableFinished)
    assert world.rows("anew").num_rows == 101
    world.produce(Upsert(table="anew", rows=[{"id": n, **one} for n in range(40, 60)]))
    assert isinstance(rounds.run("anew"), TableFinished)
    found = sorted((r["day"], r["id"]) for r in world.rows("anew").to_pylist())
    assert found == [*(("one", n) for n in range(40, 60)), *(("two", n) for n in (*range(50), 99))]
