# SPDX-License-Identifier: Apache-2.0
"""Flink -> ours -> Flink -> ours on every kind of table, then a compaction; what other engines read of PK tables after
each turn is what Fluss's KV store holds.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lakeward.model import TablePath
from lakeward.protocol.heartbeat import TableFinished
from lakeward.tiering.compact.once import compact_once
from lakeward.tiering.work.options import TieringOptions
from tests.fluss.flink import FlinkTieringJob
from tests.fluss.kinds import KINDS, Grown, counted, scan_kv
from tests.fluss.steps import DATABASE
from tests.fluss.test_handover import LEASE_S, restart_coordinator
from tests.fluss.world import FlussWorld, ThreadJob
from tests.interop.javaiceberg import JavaIceberg, start_java
from tests.kit.iceberg.engines import read_duckdb, read_pyiceberg

pytestmark = [pytest.mark.fluss, pytest.mark.soak]


@pytest.fixture
def java() -> Iterator[JavaIceberg]:
    """No catalog is asked: tables are read by the path of their metadata."""
    with start_java("http://127.0.0.1:1") as started:
        yield started


def test_every_kind_goes_from_job_to_job(lone: FlussWorld, java: JavaIceberg, tmp_path: Path) -> None:
    tables = [Grown(kind, "turns_", "2s") for kind in KINDS]
    lone.produce(*(step for table in tables for step in table.make()))
    for turn, is_ours in enumerate((False, True, False, True)):
        take_turn(lone, tables, turn, tmp_path, is_ours=is_ours)
        check_all(lone, java, tables)
    for table in tables:
        pack(lone, table.name)
        assert not table.is_pk or not equality_deletes(lone, table.name), table.name
    check_all(lone, java, tables)
    for table in tables:
        snapshots = lone.lake(table.name).open_reader(lone.table(table.name)).snapshots()
        writers = [s.job or "flink" for s in snapshots if s.operation != "replace"]
        assert list(dict.fromkeys(writers)) == ["flink", "turn-1", "turn-3"], table.name


def take_turn(world: FlussWorld, tables: list[Grown], turn: int, folder: Path, *, is_ours: bool) -> None:
    world.produce(*(step for table in tables for step in table.grow(turn)))
    job = (
        ThreadJob(world.cluster.bootstrap, f"turn-{turn}")
        if is_ours
        else FlinkTieringJob(world.cluster, folder / f"flink-{turn}.log")
    )
    try:
        for table in tables:
            world.wait_tiered(table.name, LEASE_S)
    finally:
        job.stop()
    if not is_ours:
        restart_coordinator(world, tables[0].name)


def pack(world: FlussWorld, name: str) -> None:
    """A compaction as of a table that nothing came to for an hour: what the Flink job left goes."""
    end = compact_once(world.plugin, TablePath(DATABASE, name), TieringOptions(quiet_after_s=0))
    assert isinstance(end, TableFinished), end
    head = world.lake(name).open_reader(world.table(name)).load_snapshot()
    assert head is not None
    assert head.operation == "replace"


def check_all(world: FlussWorld, java: JavaIceberg, tables: list[Grown]) -> None:
    for table in tables:
        table.check(world)
        if table.is_pk:
            check_engines(world, java, table)


def equality_deletes(world: FlussWorld, name: str) -> int:
    head = world.lake(name).open_reader(world.table(name)).load_snapshot()
    assert head is not None
    return int(head.summary["total-equality-deletes"])


def check_engines(world: FlussWorld, java: JavaIceberg, table: Grown) -> None:
    """But for what they cannot: PyIceberg reads no equality deletes, DuckDB none of a partitioned table. Only
    Flink's job writes them.
    """
    held = counted(scan_kv(world, table.name))
    assert held == counted(table.expected)
    metadata = world.metadata(table.name)
    assert counted(java.read(metadata)) == held, table.name
    has_equality_deletes = equality_deletes(world, table.name) > 0
    if not (has_equality_deletes and table.kind.is_daily):
        assert counted(read_duckdb(metadata).to_pylist()) == held, table.name
    if not has_equality_deletes:
        assert counted(read_pyiceberg(metadata).to_pylist()) == held, table.name
