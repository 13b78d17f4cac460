# SPDX-License-Identifier: Apache-2.0
"""What rounds and tables leave behind: files of a failed round, and a table that is made anew under its old name."""

from __future__ import annotations

import pytest

from lakeward.lake.orphans import OrphanOptions
from lakeward.model import SystemClock
from lakeward.protocol.heartbeat import TableFailed, TableFinished
from lakeward.spi import PluginCache
from lakeward.tiering.job.orphans import OrphanDuty
from lakeward_testing.clock import ManualClock
from lakeward_testing.faults import Faults
from tests.fluss.ondemand import OnDemand
from tests.fluss.steps import DATABASE, EVENTS, USERS, Append, DropTable, MakeTable, Upsert, events
from tests.fluss.world import FlussWorld, ThreadJob

pytestmark = [pytest.mark.fluss, pytest.mark.soak]


def test_the_job_removes_files_of_failed_rounds_after_a_commit(world: FlussWorld) -> None:
    rounds = OnDemand(world)
    world.produce(MakeTable(name="left", schema=EVENTS, freshness="1h"), Append(table="left", rows=events(0, 100)))
    with Faults() as faults:
        faults.arm("round.before-lake-commit")
        assert isinstance(rounds.run("left"), TableFailed)
    folder = world.cluster.warehouse / DATABASE / "left"
    orphans = set(folder.rglob("*.parquet"))
    assert orphans
    done = rounds.run("left")
    assert isinstance(done, TableFinished)
    kept = set(folder.rglob("*.parquet")) - orphans
    clock = ManualClock(now_ms=SystemClock().now_ms() + 3_600_000)  # files have the machine's time
    duty = OrphanDuty(rounds.plugin, PluginCache(), clock, OrphanOptions())
    duty.after_round(world.table("left").path, done)
    assert set(folder.rglob("*.parquet")) == kept
    assert sorted(world.rows("left").column("id").to_pylist()) == list(range(100))
    rounds.close()


def test_a_table_made_anew_under_its_old_name(lone: FlussWorld) -> None:
    """In Fluss and in the lake, while the same job runs: it sees another table."""
    job = ThreadJob(lone.cluster.bootstrap, "same")
    try:
        for turn in range(2):
            lone.produce(
                MakeTable(name="again", schema=EVENTS, freshness="1s"),
                MakeTable(name="again_pk", schema=USERS, primary_key=("id",), freshness="1s"),
                Append(table="again", rows=events(100 * turn, 100 * turn + 70)),
                Upsert(table="again_pk", rows=[{"id": n, "name": f"turn {turn}"} for n in range(turn, 50)]),
            )
            lone.wait_tiered("again")
            lone.wait_tiered("again_pk")
            assert sorted(lone.rows("again").column("id").to_pylist()) == list(range(100 * turn, 100 * turn + 70))
            assert {k: r["name"] for k, r in lone.by_key("again_pk").items()} == dict.fromkeys(
                range(turn, 50), f"turn {turn}"
            )
            catalog = lone.lake("again").connection.catalog
            lone.produce(DropTable(table="again"), DropTable(table="again_pk"))
            for name in ("again", "again_pk"):
                catalog.drop_table((DATABASE, name))
    finally:
        job.stop()
