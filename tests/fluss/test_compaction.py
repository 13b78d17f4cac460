# SPDX-License-Identifier: Apache-2.0
"""Tables that the Flink job compacts in its rounds (`table.datalake.auto-compaction`): ours goes on upon them, and
hands them back.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from tests.fluss.flink import FlinkTieringJob
from tests.fluss.steps import EVENTS, USERS, Append, Delete, MakeTable, Upsert
from tests.fluss.test_handover import LEASE_S, restart_coordinator
from tests.fluss.world import FlussWorld, ThreadJob
from tests.kit.fluss.jars import fluss_version

pytestmark = [pytest.mark.fluss, pytest.mark.soak]

WAVE = 100
COMPACTED = {"table.datalake.auto-compaction": "true"}
COMPACTS = fluss_version() == "0.9.1"
"""Fluss 1.0 compacts no table without system columns, whatever its property says."""


def test_ours_between_two_turns_of_a_flink_job_that_compacts(lone: FlussWorld, tmp_path: Path) -> None:
    lone.produce(
        MakeTable(name="log", schema=EVENTS, buckets=1, freshness="1s", properties=COMPACTED),
        MakeTable(name="pk", schema=USERS, primary_key=("id",), buckets=1, freshness="1s", properties=COMPACTED),
    )
    users: dict[int, str] = {}
    for turn, waves in enumerate((range(6), range(6, 9), range(9, 12))):
        is_ours = turn == 1
        job = (
            ThreadJob(lone.cluster.bootstrap, "ours")
            if is_ours
            else FlinkTieringJob(lone.cluster, tmp_path / f"flink-{turn}.log")
        )
        try:
            for wave in waves:
                write(lone, wave, users)
                check(lone, wave, users)
        finally:
            job.stop()
        if not turn:
            operations = [s.operation for s in lone.lake("log").open_reader(lone.table("log")).snapshots()]
            assert ("replace" in operations) is COMPACTS, operations
        if turn < 2:
            restart_coordinator(lone, "log")  # nobody waits for the lease of a job that left


def write(world: FlussWorld, wave: int, users: dict[int, str]) -> None:
    rows = [{"id": n, "name": f"event {n}"} for n in range(WAVE * wave, WAVE * (wave + 1))]
    changed, gone = dict.fromkeys(range(wave, WAVE, 3), f"wave {wave}"), [n for n in users if n % 20 == wave]
    world.produce(
        Append(table="log", rows=pa.RecordBatch.from_pylist(rows, schema=EVENTS)),
        Upsert(table="pk", rows=[{"id": n, "name": name} for n, name in changed.items()]),
        Delete(table="pk", keys=[{"id": n} for n in gone]),
    )
    users.update(changed)
    for n in gone:
        users.pop(n)


def check(world: FlussWorld, wave: int, users: dict[int, str]) -> None:
    world.wait_tiered("log", LEASE_S)
    world.wait_tiered("pk", LEASE_S)
    assert sorted(world.rows("log").column("id").to_pylist()) == list(range(WAVE * (wave + 1)))
    assert {k: r["name"] for k, r in world.by_key("pk").items()} == users
