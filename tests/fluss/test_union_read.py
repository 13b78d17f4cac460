# SPDX-License-Identifier: Apache-2.0
"""Union reads of Fluss tables: the lake's rows and the hot tail, joined by key, equality deletes of either
job applied.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakeward.spark
from lakeward.protocol.heartbeat import TableFinished
from lakeward.read.arrow import read, request_of
from tests.fluss.flink import FlinkTieringJob
from tests.fluss.ondemand import OnDemand
from tests.fluss.steps import DATABASE, USERS, Append, Delete, MakeTable, Upsert
from tests.fluss.world import FlussWorld

pytestmark = [pytest.mark.fluss, pytest.mark.soak]


@pytest.fixture(scope="module")
def expected(world: FlussWorld) -> dict[int, str]:
    """A PK table tiered twice, with a tail of changes that the lake has not seen; what a union read must give."""
    rounds, rows = OnDemand(world), {n: f"user {n}" for n in range(100)}
    world.produce(MakeTable(name="union_pk", schema=USERS, primary_key=("id",), freshness="1h"), upsert(rows))
    assert isinstance(rounds.run("union_pk"), TableFinished)
    second = {n: f"second {n}" for n in range(0, 100, 3)}
    world.produce(upsert(second))
    assert isinstance(rounds.run("union_pk"), TableFinished)
    tail, gone = {n: f"tail {n}" for n in range(0, 120, 2)}, range(0, 100, 10)
    world.produce(upsert(tail), Delete(table="union_pk", keys=[{"id": n} for n in gone]))
    rounds.close()
    return {n: name for n, name in {**rows, **second, **tail}.items() if n not in gone}


def upsert(rows: dict[int, str]) -> Upsert:
    return Upsert(table="union_pk", rows=[{"id": n, "name": name} for n, name in rows.items()])


def test_lake_and_tail_of_a_pk_table(world: FlussWorld, expected: dict[int, str]) -> None:
    found = pa.Table.from_batches(list(read(world.plugin, request_of(f"{DATABASE}.union_pk")))).to_pylist()
    assert sorted((r["id"], r["name"]) for r in found) == sorted(expected.items())


def test_lake_and_tail_of_a_log_table(world: FlussWorld) -> None:
    rounds, schema = OnDemand(world), pa.schema([("id", pa.int64())])
    rows = pa.RecordBatch.from_pylist([{"id": n} for n in range(200)], schema=schema)
    world.produce(
        MakeTable(name="union_log", schema=schema, freshness="1h"), Append(table="union_log", rows=rows.slice(0, 150))
    )
    assert isinstance(rounds.run("union_log"), TableFinished)
    world.produce(Append(table="union_log", rows=rows.slice(150)))
    found = pa.Table.from_batches(list(read(world.plugin, request_of(f"{DATABASE}.union_log"))))
    assert sorted(found.column("id").to_pylist()) == list(range(200))
    rounds.close()


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    from lakeward.tiering.job.session import SessionOptions, open_session

    session: Any = open_session(SessionOptions(master="local[2,4]", archive=False))
    yield session.spark
    session.close()


@pytest.mark.spark
def test_the_same_on_spark(world: FlussWorld, expected: dict[int, str], spark: Any) -> None:
    frame = lakeward.spark.read(spark, f"{DATABASE}.union_pk", fluss=world.cluster.bootstrap)
    assert sorted((r["id"], r["name"]) for r in frame.collect()) == sorted(expected.items())


@pytest.mark.spark
def test_equality_deletes_of_the_flink_job_are_applied(lone: FlussWorld, tmp_path: Path, spark: Any) -> None:
    """Two rounds of the Flink job, the second with updates and deletes; then a tail that it has not seen."""
    rows = {n: f"user {n}" for n in range(100)}
    flink = FlinkTieringJob(lone.cluster, tmp_path / "flink.log")
    try:
        lone.produce(MakeTable(name="union_pk", schema=USERS, primary_key=("id",), freshness="2s"), upsert(rows))
        lone.wait_tiered("union_pk", 120)
        second, gone = {n: f"second {n}" for n in range(0, 100, 3)}, range(5, 100, 10)
        lone.produce(upsert(second), Delete(table="union_pk", keys=[{"id": n} for n in gone]))
        lone.wait_tiered("union_pk", 120)
    finally:
        flink.stop()
    snapshots = lone.lake("union_pk").open_reader(lone.table("union_pk")).snapshots()
    assert {s.job for s in snapshots} == {""}
    assert int(snapshots[-1].summary["total-equality-deletes"]) > 0
    tail = {n: f"tail {n}" for n in range(0, 120, 7)}
    lone.produce(upsert(tail), Delete(table="union_pk", keys=[{"id": 1}]))
    expected = sorted(
        (n, name)
        for n, name in {**{n: x for n, x in {**rows, **second}.items() if n not in gone}, **tail}.items()
        if n != 1
    )
    found = pa.Table.from_batches(list(read(lone.plugin, request_of(f"{DATABASE}.union_pk")))).to_pylist()
    assert sorted((r["id"], r["name"]) for r in found) == expected
    frame = lakeward.spark.read(spark, f"{DATABASE}.union_pk", fluss=lone.cluster.bootstrap)
    assert sorted((r["id"], r["name"]) for r in frame.collect()) == expected
