# SPDX-License-Identifier: Apache-2.0
"""Logs and KV snapshots with rows of two schemas; fixed-size types in a KV snapshot.

Fluss 0.9.1 adds no column to a table with an Iceberg lake, 1.0 does: the lake is switched on after that here."""

from __future__ import annotations

import json
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa
import pytest

from lakeward.errors import FlussError
from lakeward.hot.fluss.wire.messages import Api
from lakeward.hot.fluss.wire.servers import path_message
from lakeward.model import Bucket
from lakeward.protocol.heartbeat import TableFinished
from lakeward_testing.faults import FaultAction, Faults
from lakeward_testing.waiting import wait_until
from tests.fluss.ondemand import OnDemand
from tests.fluss.steps import DATABASE, Append, MakeTable, Upsert
from tests.fluss.test_types import make_like
from tests.fluss.world import FlussWorld
from tests.kit.fluss import ddl_pb2
from tests.kit.fluss.jars import fluss_version

pytestmark = [pytest.mark.fluss, pytest.mark.soak]

ALTER_TABLE = Api(1044, "AlterTable", ddl_pb2.AlterTableRequest, ddl_pb2.Empty)
OLD = pa.schema([pa.field("id", pa.int64(), nullable=False), ("name", pa.string())])
NEW = pa.schema([*OLD, ("age", pa.int32())])
ROWS: list[dict[str, Any]] = [{"id": n, "name": f"old {n}"} for n in range(50)]
LATER: list[dict[str, Any]] = [{"id": n, "name": f"new {n}", "age": n} for n in range(40, 90)]
OFF = {"table.datalake.enabled": "false"}
B0 = Bucket("", 0)


def alter(world: FlussWorld, name: str, columns: Mapping[str, str] | None = None, **configs: str) -> None:
    added = [{"name": c, "type": json.dumps({"type": t}).encode(), "position": 0} for c, t in (columns or {}).items()]
    changed = [{"key": k.replace("_", "."), "value": v, "how": 0} for k, v in configs.items()]
    values = {"path": path_message(DATABASE, name), "ignore": 0, "configs": changed, "columns": added}
    world.plugin.servers.call_coordinator(ALTER_TABLE, values)


def wait_snapshot(world: FlussWorld, name: str) -> None:
    """A KV snapshot of everything written so far."""
    store, table = world.plugin.store(), world.table(name)
    end = world.ends(name)[B0]

    def is_there() -> bool:
        found = store.take_snapshot(table, B0, "tests")
        return found is not None and found.log_offset >= end

    wait_until(is_there, what="a KV snapshot")
    store.release_snapshots(table, "tests")


def test_a_log_with_rows_from_before_and_after_a_new_column(world: FlussWorld, rounds: OnDemand) -> None:
    world.produce(
        MakeTable(name="grown", schema=OLD, buckets=1, freshness="1h", properties=OFF),
        Append(table="grown", rows=pa.RecordBatch.from_pylist(ROWS, schema=OLD)),
    )
    alter(world, "grown", {"age": "INTEGER"})
    world.produce(Append(table="grown", rows=pa.RecordBatch.from_pylist(LATER, schema=NEW)))
    store, table = world.plugin.store(), world.table("grown")
    assert table.schema.schema_id == 2
    found = pa.Table.from_batches(list(store.read_log(table, B0, 45, 55, ["age", "id"])))
    assert found.column("age").to_pylist() == [None] * 5 + list(range(40, 45))
    assert found.column("id").to_pylist() == [*range(45, 50), *range(40, 45)]
    alter(world, "grown", table_datalake_enabled="true")
    assert isinstance(rounds.run("grown"), TableFinished)
    read = world.rows("grown").sort_by("__offset").select(NEW.names).to_pylist()
    assert read == [*({**r, "age": None} for r in ROWS), *LATER]
    if fluss_version() == "0.9.1":
        with pytest.raises(FlussError, match="AddColumn"):
            alter(world, "grown", {"more": "STRING"})
        return
    alter(world, "grown", {"more": "STRING"})
    wider = pa.schema([*NEW, ("more", pa.string())])
    world.produce(Append(table="grown", rows=pa.RecordBatch.from_pylist([{"id": 100, "more": "more"}], schema=wider)))
    assert isinstance(rounds.run("grown"), TableFinished)
    assert [r["id"] for r in world.rows("grown").to_pylist() if r["more"] == "more"] == [100]


def test_a_kv_snapshot_with_rows_from_before_and_after_a_new_column(world: FlussWorld, rounds: OnDemand) -> None:
    world.produce(
        MakeTable(name="grown_pk", schema=OLD, primary_key=("id",), buckets=1, freshness="1h", properties=OFF),
        Upsert(table="grown_pk", rows=ROWS),
    )
    alter(world, "grown_pk", {"age": "INTEGER"})
    world.produce(Upsert(table="grown_pk", rows=LATER))
    wait_snapshot(world, "grown_pk")
    alter(world, "grown_pk", table_datalake_enabled="true")
    assert isinstance(rounds.run("grown_pk"), TableFinished)
    assert set(world.rows("grown_pk").column("__offset").to_pylist()) == {-1}
    expected: dict[int, dict[str, Any]] = {r["id"]: r for r in [*({**r, "age": None} for r in ROWS), *LATER]}
    assert world.by_key("grown_pk") == expected
    world.produce(Upsert(table="grown_pk", rows=[{**LATER[0], "age": -1}]))
    assert isinstance(rounds.run("grown_pk"), TableFinished)
    assert world.by_key("grown_pk") == {**expected, 40: {**LATER[0], "age": -1}}


@pytest.mark.parametrize("key", [(), ("id",)], ids=["log", "pk"])
@pytest.mark.parametrize("point", ["split.before-read", "round.before-lake-commit"])
def test_a_column_that_comes_in_the_middle_of_a_round(
    world: FlussWorld, rounds: OnDemand, key: tuple[str, ...], point: str
) -> None:
    """The round ends as it was planned, or gives up; the next one has the column."""
    name = f"midway_{len(key)}_{point.replace('.', '_').replace('-', '_')}"
    expected = {r["id"]: {**r, "age": None} for r in ROWS}
    world.produce(
        MakeTable(name=name, schema=OLD, primary_key=key, buckets=1, freshness="1h"), _written(name, key, ROWS)
    )
    with Faults() as faults, ThreadPoolExecutor(1) as beside:
        pause = faults.arm(point, action=FaultAction.PAUSE)
        ended = beside.submit(rounds.run, name)
        pause.wait_reached()
        try:
            if fluss_version() == "0.9.1":
                with pytest.raises(FlussError, match="AddColumn"):
                    alter(world, name, {"age": "INTEGER"})
            else:
                alter(world, name, {"age": "INTEGER"})
                more = [{"id": 100 + n, "name": f"new {n}", "age": n} for n in range(20)]
                world.produce(_written(name, key, more))
                expected |= {r["id"]: r for r in more}
        finally:
            pause.release()
        ended.result(120)
    assert isinstance(rounds.run(name), TableFinished)
    assert world.committed(name) == world.ends(name)
    assert {k: {"age": None, **r} for k, r in world.by_key(name).items()} == expected


def _written(name: str, key: tuple[str, ...], rows: list[dict[str, Any]]) -> Append | Upsert:
    schema = pa.schema([f for f in NEW if f.name in rows[0]])
    return Upsert(table=name, rows=rows) if key else Append(table=name, rows=pa.RecordBatch.from_pylist(rows, schema))


def test_char_and_binary_of_a_kv_snapshot(world: FlussWorld, rounds: OnDemand) -> None:
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("word", pa.string()), ("code", pa.binary(4))])
    world.produce(MakeTable(name="fixed_kv_first", schema=schema, primary_key=("id",), buckets=1, freshness="1h"))
    make_like(world, "fixed_kv_first", "fixed_kv", word={"type": "CHAR", "length": 5})
    rows: list[dict[str, Any]] = [
        {"id": 1, "word": "grüß", "code": b"\0\1\2\3"},
        {"id": 2, "word": "five5", "code": b"abcd"},
        {"id": 3, "word": None, "code": None},
    ]
    world.produce(Upsert(table="fixed_kv", rows=rows))
    wait_snapshot(world, "fixed_kv")
    assert isinstance(rounds.run("fixed_kv"), TableFinished)
    assert set(world.rows("fixed_kv").column("__offset").to_pylist()) == {-1}
    assert [{**r, "word": r["word"] and r["word"].rstrip()} for r in world.by_key("fixed_kv").values()] == rows
