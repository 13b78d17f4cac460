# SPDX-License-Identifier: Apache-2.0
"""Fluss's Flink job and ours on the same tables, one after the other and both at once; kills and restarts of
everybody.
"""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pyarrow as pa
import pytest

from lakeward.errors import FlussError, ServerUnavailable
from lakeward_testing.faults import Fault, FaultAction
from lakeward_testing.waiting import wait_until
from tests.fluss.flink import FlinkTieringJob
from tests.fluss.steps import EVENTS, USERS, Append, Delete, MakeTable, Upsert
from tests.fluss.world import FlussWorld, ThreadJob

pytestmark = [pytest.mark.fluss, pytest.mark.soak]

LEASE_S = 220.0
"""Fluss notices a dead job after 120 to 135 s; then comes a round."""


class Load:
    """A log table and a PK table that grow step by step, with what the lake must hold."""

    def __init__(self, world: FlussWorld, suffix: str = "") -> None:
        self.world, self.log, self.pk = world, f"events{suffix}", f"users{suffix}"
        self.rows, self.users = 0, dict[int, str]()
        world.produce(
            MakeTable(name=self.log, schema=EVENTS, freshness="2s"),
            MakeTable(name=self.pk, schema=USERS, primary_key=("id",), freshness="2s"),
        )

    def step(self, number: int, count: int = 300) -> None:
        rows = [{"id": n, "name": f"event {n}"} for n in range(self.rows, self.rows + count)]
        changed = {n: f"step {number} of {n}" for n in range(number % 3, count + 10 * number, 3 if number else 1)}
        gone = [n for n in self.users if n % 20 == number]
        self.world.produce(
            Append(table=self.log, rows=pa.RecordBatch.from_pylist(rows, schema=EVENTS)),
            Upsert(table=self.pk, rows=[{"id": n, "name": name} for n, name in changed.items()]),
            Delete(table=self.pk, keys=[{"id": n} for n in gone]),
        )
        self.rows += count
        self.users = {n: name for n, name in {**self.users, **changed}.items() if n not in gone}

    def check(self, limit_s: float = 60.0) -> None:
        """Everything written is in the lake, once; offsets have no gap. Rows of which a clean Paimon table cannot tell
        the bucket have none."""
        ends = self.world.wait_tiered(self.log, limit_s)
        self.world.wait_tiered(self.pk, limit_s)
        assert sum(ends.values()) == self.rows, f"the log itself has {ends}: pyfluss did not write all"
        found = self.world.rows(self.log)
        assert sorted(found.column("id").to_pylist()) == list(range(self.rows))
        is_known = -1 not in found.column("__bucket").to_pylist()
        for bucket, end in ends.items():
            offsets = sorted(r["__offset"] for r in found.to_pylist() if r["__bucket"] == bucket.number)
            assert offsets == (list(range(end)) if is_known else sorted(set(offsets) & set(range(end))))
        assert {k: r["name"] for k, r in self.world.by_key(self.pk).items()} == self.users


def restart_coordinator(world: FlussWorld, name: str) -> None:
    """It forgets who had which table: nobody waits for the lease of a job that left or died."""
    world.cluster.kill("coordinator")
    world.cluster.start_process("coordinator")
    world.cluster.wait_ready()
    wait_until(lambda: world.ends(name), what="Fluss is back", tolerate=(ServerUnavailable, FlussError))


def test_flink_then_ours_then_flink_again(lone: FlussWorld, tmp_path: Path) -> None:
    load = Load(lone)
    for turn, is_ours in enumerate((False, True, False, True)):
        job = (
            ThreadJob(lone.cluster.bootstrap, f"turn-{turn}")
            if is_ours
            else FlinkTieringJob(lone.cluster, tmp_path / f"flink-{turn}.log")
        )
        try:
            for step in (0, 1):
                load.step(2 * turn + step)
                load.check(LEASE_S)
        finally:
            job.stop()
        restart_coordinator(lone, load.log)


def work_both_at_once(world: FlussWorld, folder: Path, pairs: int) -> None:
    """Fluss's lease keeps them apart. The Flink job has a start: it is the slower one to take a table. On any lake."""
    loads = [Load(world, f"_{n}") for n in range(pairs)]
    with ExitStack() as jobs:
        jobs.callback(FlinkTieringJob(world.cluster, folder / "flink.log").stop)
        for load in loads:
            load.step(0, 100)
        world.wait_tiered(loads[0].log, 120)
        jobs.callback(ThreadJob(world.cluster.bootstrap, "beside", slots=1).stop)
        for step in range(1, 4):
            for load in loads:
                load.step(step, 100)
        for load in loads:
            load.check(LEASE_S)
        tables = [name for load in loads for name in (load.log, load.pk)]
        writers = set[str]().union(*(world.writers(name) for name in tables))
        assert writers == {"flink", "beside"}


def test_both_at_once_on_ten_tables(lone: FlussWorld, tmp_path: Path) -> None:
    work_both_at_once(lone, tmp_path, 5)


@pytest.mark.parametrize(
    ("point", "has_lease"),
    [("split.written", False), ("round.before-lake-commit", False), ("round.after-lake-commit", True)],
)
def test_a_job_killed_in_a_round_is_followed_by_another(lone: FlussWorld, point: str, has_lease: bool) -> None:
    """At once where Fluss has forgotten the dead job, else when its lease has ended."""
    load = Load(lone)
    load.step(0)
    victim = ThreadJob(lone.cluster.bootstrap, "victim", faults=Fault(point=point, action=FaultAction.KILL).to_text())
    victim.wait_dead(60)
    if not has_lease:
        restart_coordinator(lone, load.log)
    load.step(1)
    heir = ThreadJob(lone.cluster.bootstrap, "heir")
    try:
        load.check(LEASE_S)
    finally:
        heir.stop()


@pytest.mark.parametrize("server", ["coordinator", "tablet-0"])
def test_a_server_killed_and_started_again_in_the_middle(lone: FlussWorld, server: str) -> None:
    load = Load(lone)
    job = ThreadJob(lone.cluster.bootstrap, "patient")
    try:
        load.step(0)
        load.check()
        lone.cluster.kill(server)
        lone.cluster.start_process(server)
        lone.cluster.wait_ready()
        wait_until(lambda: lone.ends(load.log), what="Fluss is back", tolerate=(ServerUnavailable, FlussError))
        load.step(1)
        load.check(LEASE_S)
    finally:
        job.stop()
