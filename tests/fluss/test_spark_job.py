# SPDX-License-Identifier: Apache-2.0
"""`lakeward tier --fluss`: the whole job on Spark, as a user starts it, against a cluster that wants a login."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from lakeward.model import Bucket
from lakeward_testing.waiting import wait_until
from tests.fluss.conftest import LOGIN
from tests.fluss.steps import EVENTS, USERS, Append, Delete, MakePartition, MakeTable, Upsert
from tests.fluss.world import SYSTEM, FlussWorld

pytestmark = [pytest.mark.fluss, pytest.mark.spark, pytest.mark.soak]

DAILY = pa.schema([("id", pa.int64()), ("name", pa.string()), pa.field("day", pa.string(), nullable=False)])
DAYS = ("2024-01-01", "2024-01-02")
B0 = Bucket("", 0)


def events(start: int, stop: int, **more: str) -> list[dict[str, object]]:
    return [{"id": n, "name": f"event {n}", **more} for n in range(start, stop)]


def has_snapshot(world: FlussWorld) -> bool:
    found = world.plugin.store().take_snapshot(world.table("pk"), B0, "tests")
    world.plugin.store().release_snapshots(world.table("pk"), "tests")
    return found is not None


def write(world: FlussWorld, turn: int) -> None:
    start, stop = 5_000 * turn, 5_000 * (turn + 1)
    world.produce(
        Append(table="log", rows=pa.RecordBatch.from_pylist(events(start, stop), schema=EVENTS)),
        *(
            Append(table="daily", rows=pa.RecordBatch.from_pylist(events(start, start + 100, day=d), schema=DAILY))
            for d in DAYS
        ),
        Upsert(table="pk", rows=[{"id": n, "name": f"turn {turn}"} for n in range(300 * turn, 1_000)]),
        *([Delete(table="pk", keys=[{"id": n} for n in range(0, 1_000, 10)])] if turn else []),
    )


def test_the_job_on_spark(guarded: FlussWorld, tmp_path: Path) -> None:
    """A log table, a partitioned one, and a PK table whose first round reads a KV snapshot; then a round of changes to
    each.
    """
    guarded.produce(
        MakeTable(name="log", schema=EVENTS, freshness="3s"),
        MakeTable(name="daily", schema=DAILY, partition_keys=("day",), freshness="3s"),
        *(MakePartition(table="daily", spec={"day": d}) for d in DAYS),
        MakeTable(name="pk", schema=USERS, primary_key=("id",), buckets=1, freshness="3s"),
    )
    write(guarded, 0)
    wait_until(lambda: has_snapshot(guarded), what="a KV snapshot")
    command = [
        sys.executable,
        "-m",
        "lakeward.cli",
        "tier",
        "--fluss",
        guarded.cluster.bootstrap,
        "--fluss-user",
        LOGIN.user,
    ]
    with (tmp_path / "job.log").open("wb") as log:
        job = subprocess.Popen(
            [*command, "--name", "spark", "--master", "local[2,4]"], stdout=log, stderr=subprocess.STDOUT
        )
    try:
        for name in ("log", "daily", "pk"):
            guarded.wait_tiered(name, 120)
        assert set(guarded.rows("pk").column("__offset").to_pylist()) == {-1}
        write(guarded, 1)
        for name in ("log", "daily", "pk"):
            guarded.wait_tiered(name, 60)
    finally:
        job.send_signal(signal.SIGTERM)
        job.wait(120)
    assert guarded.rows("log").sort_by("id").drop_columns(SYSTEM).to_pylist() == events(0, 10_000)
    daily = guarded.rows("daily").sort_by([("day", "ascending"), ("id", "ascending")]).drop_columns(SYSTEM).to_pylist()
    assert daily == [r for d in DAYS for turn in range(2) for r in events(5_000 * turn, 5_000 * turn + 100, day=d)]
    expected = {n: f"turn {int(n >= 300)}" for n in range(1_000) if n % 10}
    assert {k: r["name"] for k, r in guarded.by_key("pk").items()} == expected
    said = (tmp_path / "job.log").read_text()
    assert LOGIN.password not in said
    assert job.returncode == 0, said
