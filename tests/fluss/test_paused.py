# SPDX-License-Identifier: Apache-2.0
"""A Flink job that was paused for longer than its lease: its commit has no condition. What that does, and that ours
notices.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from lakeward.model import TablePath
from lakeward_testing.waiting import wait_until
from tests.fluss.flink import FlinkTieringJob
from tests.fluss.steps import DATABASE, Append, MakeTable
from tests.fluss.test_handover import LEASE_S
from tests.fluss.world import FlussWorld, ThreadJob

pytestmark = [pytest.mark.fluss, pytest.mark.soak]

WIDE = pa.schema([("id", pa.int64()), ("text", pa.string())])
ROWS = 400_000


def rows(start: int, stop: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(
        {"id": range(start, stop), "text": [f"{n * 7919:x}" * 4 for n in range(start, stop)]}, schema=WIDE
    )


def writers(world: FlussWorld) -> list[str]:
    """Who wrote each of the lake's snapshots, oldest first."""
    return [s.job or "flink" for s in world.lake("late").open_reader(world.table("late")).snapshots()]


def test_a_paused_flink_job_commits_late_and_the_table_stops_until_main_is_moved_back(
    lone: FlussWorld, tmp_path: Path
) -> None:
    lone.produce(
        MakeTable(name="late", schema=WIDE, freshness="2s"), Append(table="late", rows=rows(0, ROWS), chunk=20_000)
    )
    flink = FlinkTieringJob(lone.cluster, tmp_path / "flink.log", is_patient=True)
    try:
        wait_until(lambda: lone.is_being_written("late"), poll_s=0.002, what="the Flink job writes")
        flink.pause()
        assert writers(lone) == []
        notice_and_go_on(lone, flink)
    finally:
        flink.wake()
        flink.stop()


def notice_and_go_on(lone: FlussWorld, flink: FlinkTieringJob) -> None:
    ours = ThreadJob(lone.cluster.bootstrap, "ours")
    try:
        assert flink.is_paused
        lone.wait_tiered("late", LEASE_S)
        assert flink.is_paused
        own = writers(lone)
        assert set(own) == {"ours"}  # one round, or a first one that force-finish cut short and those after it
        flink.wake()
        wait_until(lambda: "flink" in writers(lone), what="the late commit")
        flink.stop()
        assert (
            lone.rows("late").num_rows > ROWS
        )  # the Flink job's deed: what it had read is there twice, and offsets went back
        lone.produce(Append(table="late", rows=rows(ROWS, ROWS + 100)))
        wait_until(lambda: "came back and committed" in ours.log, limit_s=LEASE_S, what="our job notices")
        assert writers(lone) == [*own, "flink"]
        move_back(lone)
        lone.wait_tiered("late", LEASE_S)
        assert sorted(lone.rows("late").column("id").to_pylist()) == list(range(ROWS + 100))
    finally:
        ours.stop()


def move_back(world: FlussWorld) -> None:
    """What the error says: main back to our newest snapshot."""
    lake = world.lake("late")
    try:
        ours = [s.snapshot_id for s in lake.open_reader(world.table("late")).snapshots() if s.job == "ours"][-1]
        lake.connection.load(TablePath(DATABASE, "late")).manage_snapshots().set_current_snapshot(
            snapshot_id=int(ours)
        ).commit()
    finally:
        lake.connection.close()
