# SPDX-License-Identifier: Apache-2.0
"""Java Iceberg reads what we wrote for Fluss tables: positions of replaced rows, of the same round too,
every type.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from lakeward.protocol.heartbeat import TableFinished
from tests.fluss.ondemand import OnDemand
from tests.fluss.steps import Append, Delete, MakePartition, MakeTable, Upsert
from tests.fluss.test_tiering import ALL_TYPES, typed_row
from tests.fluss.world import FlussWorld
from tests.interop.javaiceberg import JavaIceberg, start_java

pytestmark = [pytest.mark.fluss, pytest.mark.soak]

USERS = pa.schema(
    [pa.field("id", pa.int64(), nullable=False), pa.field("day", pa.string(), nullable=False), ("name", pa.string())]
)


@pytest.fixture(scope="module")
def java() -> Iterator[JavaIceberg]:
    """No catalog is asked: tables are read by the path of their metadata."""
    with start_java("http://127.0.0.1:1") as started:
        yield started


@pytest.mark.parametrize("is_partitioned", [False, True])
def test_replaced_and_deleted_rows(
    world: FlussWorld, rounds: OnDemand, java: JavaIceberg, is_partitioned: bool
) -> None:
    name = "java_daily" if is_partitioned else "java_users"
    days = ("2024-01-01", "2024-01-02")
    key, parts = (("id", "day"), ("day",)) if is_partitioned else (("id",), ())
    world.produce(
        MakeTable(name=name, schema=USERS, primary_key=key, partition_keys=parts, freshness="1h"),
        *(MakePartition(table=name, spec={"day": d}) for d in days if is_partitioned),
    )
    expected: dict[int, dict[str, Any]] = {}
    for turn in range(4):
        changed = {
            n: {"id": n, "day": days[n % 2], "name": f"turn {turn} of {n}"}
            for n in range(turn, 200 + 50 * turn, 1 + 2 * turn)
        }
        twice = {n: {**changed[n], "name": f"twice {turn}"} for n in list(changed)[::4]}
        gone = [n for n in {**expected, **changed} if n % 13 == turn]
        world.produce(
            Upsert(table=name, rows=list(changed.values())),
            Upsert(table=name, rows=list(twice.values())),
            Delete(table=name, keys=[{k: {"id": n, "day": days[n % 2]}[k] for k in key} for n in gone]),
        )
        expected = {n: r for n, r in {**expected, **changed, **twice}.items() if n not in gone}
        assert isinstance(rounds.run(name), TableFinished)
        found = java.read(world.metadata(name))
        assert sorted((r["id"], r["day"], r["name"]) for r in found) == sorted(
            (r["id"], r["day"], r["name"]) for r in expected.values()
        )
    head = world.lake(name).open_reader(world.table(name)).load_snapshot()
    assert head is not None
    assert int(head.summary["total-equality-deletes"]) == 0
    assert int(head.summary["total-position-deletes"]) > 0


def test_every_type(world: FlussWorld, rounds: OnDemand, java: JavaIceberg) -> None:
    """But for times of day, which Spark has no type for."""
    schema = pa.schema([f for f in ALL_TYPES if f.name != "clock"])
    rows = [{k: v for k, v in typed_row(n).items() if k != "clock"} for n in range(1, 6)] + [
        {**dict.fromkeys(schema.names), "id": 6}
    ]
    world.produce(
        MakeTable(name="java_typed", schema=schema, buckets=1, freshness="1h"),
        Append(table="java_typed", rows=pa.RecordBatch.from_pylist(rows, schema=schema)),
    )
    assert isinstance(rounds.run("java_typed"), TableFinished)
    found = {r["id"]: r for r in java.read(world.metadata("java_typed"))}
    for row in rows:
        spelled = {k: v for k, v in found[row["id"]].items() if not k.startswith("__")}
        assert set(spelled) == {k for k, v in row.items() if v is not None}
        for name in ("flag", "tiny", "small", "plain", "single", "double", "word"):
            assert spelled.get(name) == row[name], name
        if row["day"] is not None:
            assert spelled["day"] == row["day"].isoformat()
            assert spelled["at_us"].startswith(row["at_us"].isoformat(timespec="seconds"))
