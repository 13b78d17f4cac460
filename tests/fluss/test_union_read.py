# SPDX-License-Identifier: Apache-2.0
"""Union reads of Fluss tables: the lake's rows and the hot tail, joined by key, equality deletes of either job applied."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import lakeward.spark
from lakeward.protocol.heartbeat import TableFinished
from lakeward.read.arrow import read, request_of
from tests.fluss.ondemand import OnDemand
from tests.fluss.steps import DATABASE, Append, Delete, MakeTable, Upsert
from tests.fluss.world import FlussWorld

pytestmark = [pytest.mark.fluss, pytest.mark.soak]

USERS = pa.schema([pa.field("id", pa.int64(), nullable=False), ("name", pa.string())])


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
    world.produce(MakeTable(name="union_log", schema=schema, freshness="1h"), Append(table="union_log", rows=rows.slice(0, 150)))
    assert isinstance(rounds.run("union_log"), TableFinished)
    world.produce(Append(table="union_log", rows=rows.slice(150)))
    found = pa.Table.from_batches(list(read(world.plugin, request_of(f"{DATABASE}.union_log"))))
    assert sorted(found.column("id").to_pylist()) == list(range(200))
    rounds.close()


@pytest.mark.soak
@pytest.mark.spark
def test_the_same_on_spark(world: FlussWorld, expected: dict[int, str]) -> None:
    from lakeward.tiering.session import SessionOptions, open_session

    session: Any = open_session(SessionOptions(master="local[2,4]", archive=False))
    try:
        frame = lakeward.spark.read(session.spark, f"{DATABASE}.union_pk", fluss=world.cluster.bootstrap)
        assert sorted((r["id"], r["name"]) for r in frame.collect()) == sorted(expected.items())
    finally:
        session.close()
