# SPDX-License-Identifier: Apache-2.0
"""Types that need care: nested ones, CHAR and BINARY, times finer than the lake's; log and PK tables, written by
pyfluss.
"""

from __future__ import annotations

import datetime as dt
import json
from typing import Any

import pyarrow as pa
import pytest

from lakeward.hot.fluss.wire.messages import TABLE_INFO, Api
from lakeward.hot.fluss.wire.servers import path_message
from lakeward.model import Bucket
from lakeward.protocol.heartbeat import TableFinished
from lakeward_testing.waiting import wait_until
from tests.fluss.flink import upsert_typed
from tests.fluss.ondemand import OnDemand
from tests.fluss.steps import DATABASE, Append, MakeTable, Upsert
from tests.fluss.test_tiering import ALL_TYPES, typed_row
from tests.fluss.world import FlussWorld
from tests.kit.fluss import ddl_pb2

pytestmark = [pytest.mark.fluss, pytest.mark.soak]

CREATE_TABLE = Api(1005, "CreateTable", ddl_pb2.CreateTableRequest, ddl_pb2.Empty)
PLACE = pa.struct([("city", pa.string()), ("at", pa.timestamp("us")), ("codes", pa.list_(pa.int32()))])
NESTED = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("tags", pa.list_(pa.string())),
        ("matrix", pa.list_(pa.list_(pa.int64()))),
        ("scores", pa.map_(pa.string(), pa.int32())),
        ("place", PLACE),
        ("places", pa.list_(pa.struct([("x", pa.float64()), ("y", pa.float64())]))),
    ]
)
FINE = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("at", pa.timestamp("ns")),
        ("zone", pa.timestamp("ns", tz="UTC")),
        ("stamps", pa.list_(pa.timestamp("ns"))),
    ]
)


def nested_row(number: int) -> dict[str, Any]:
    at = dt.datetime(2024, 2, 29, 12, 0, 0, number)
    return {
        "id": number,
        "tags": [f"tag {n}" for n in range(number)],
        "matrix": [[number, -number], [], [2**40 + number]],
        "scores": [("a", number), ("b", -number)],
        "place": {"city": f"city {number}", "at": at, "codes": [1, 2, number]},
        "places": [{"x": number / 2, "y": -1.0}],
    }


ROWS = [*(nested_row(n) for n in range(1, 40)), {**dict.fromkeys(NESTED.names), "id": 40}]


def as_read(row: dict[str, Any]) -> dict[str, Any]:
    """DuckDB and Arrow agree on all but the order of a map's entries, which is kept."""
    return {k: list(v) if k == "scores" and v is not None else v for k, v in row.items()}


def wait_snapshot(world: FlussWorld, name: str) -> None:
    store, table = world.plugin.store(), world.table(name)
    wait_until(lambda: store.take_snapshot(table, Bucket("", 0), "tests") is not None, what="a KV snapshot")
    store.release_snapshots(table, "tests")


def test_nested_values_of_log_and_pk_tables(world: FlussWorld, rounds: OnDemand) -> None:
    world.produce(
        MakeTable(name="nested", schema=NESTED, buckets=1, freshness="1h"),
        Append(table="nested", rows=pa.RecordBatch.from_pylist(ROWS, schema=NESTED)),
        MakeTable(name="nested_pk", schema=NESTED, primary_key=("id",), buckets=1, freshness="1h"),
        Upsert(
            table="nested_pk", rows=[{**r, "scores": None if r["scores"] is None else dict(r["scores"])} for r in ROWS]
        ),
    )
    for name in ("nested", "nested_pk"):
        assert isinstance(rounds.run(name), TableFinished)
        assert [as_read(dict(r)) for r in world.by_key(name).values()] == ROWS, name


def test_nested_values_of_a_kv_snapshot(world: FlussWorld, rounds: OnDemand) -> None:
    """The first round reads the snapshot, not the log; the second one finds its rows by key."""
    rows = [{**r, "scores": None if r["scores"] is None else dict(r["scores"])} for r in ROWS]
    world.produce(
        MakeTable(name="nested_kv", schema=NESTED, primary_key=("id",), buckets=1, freshness="1h"),
        Upsert(table="nested_kv", rows=rows),
    )
    wait_snapshot(world, "nested_kv")
    assert isinstance(rounds.run("nested_kv"), TableFinished)
    assert set(world.rows("nested_kv").column("__offset").to_pylist()) == {-1}
    assert [as_read(dict(r)) for r in world.by_key("nested_kv").values()] == ROWS
    world.produce(Upsert(table="nested_kv", rows=[{**rows[0], "tags": ["changed"]}]))
    assert isinstance(rounds.run("nested_kv"), TableFinished)
    assert world.by_key("nested_kv")[1]["tags"] == ["changed"]


def test_indexed_rows_of_a_kv_snapshot(world: FlussWorld, rounds: OnDemand) -> None:
    """pyfluss makes such a table but cannot write to it: Fluss's Java client does."""
    schema = ALL_TYPES.set(0, pa.field("id", pa.int64(), nullable=False))
    indexed = {"table.kv.format": "indexed"}
    world.produce(
        MakeTable(name="indexed", schema=schema, primary_key=("id",), buckets=1, freshness="1h", properties=indexed)
    )
    upsert_typed(world.cluster, DATABASE, "indexed", 40)
    wait_snapshot(world, "indexed")
    assert isinstance(rounds.run("indexed"), TableFinished)
    assert set(world.rows("indexed").column("__offset").to_pylist()) == {-1}
    expected = [*(typed_row(n) for n in range(1, 40)), {**dict.fromkeys(schema.names), "id": 40}]
    assert list(world.by_key("indexed").values()) == expected


def test_finer_times_are_cut_off_and_said_once(
    world: FlussWorld, rounds: OnDemand, caplog: pytest.LogCaptureFixture
) -> None:
    at = 1_709_208_000_000_000_000 + 123_456_789
    whole = {"at": [at, -at], "zone": [at, 1], "stamps": [[at], None]}
    batch = pa.RecordBatch.from_arrays(
        [pa.array([1, 2]), *(pa.array(whole[f.name], f.type) for f in list(FINE)[1:])], schema=FINE
    )
    world.produce(MakeTable(name="fine", schema=FINE, buckets=1, freshness="1h"), Append(table="fine", rows=batch))
    assert isinstance(rounds.run("fine"), TableFinished)
    world.produce(Append(table="fine", rows=batch.slice(0, 1)))
    assert isinstance(rounds.run("fine"), TableFinished)
    found = world.rows("fine").sort_by([("id", "ascending"), ("__offset", "ascending")])
    micros = [at // 1000, at // 1000, -(at // 1000)]
    assert found.column("at").cast(pa.int64()).to_pylist() == micros
    assert found.column("zone").cast(pa.int64()).to_pylist() == [at // 1000, at // 1000, 0]
    assert found.column("stamps").cast(pa.list_(pa.int64())).to_pylist() == [[at // 1000], [at // 1000], None]
    said = [r.getMessage() for r in caplog.records if "finer than a microsecond" in r.getMessage()]
    assert [m.partition(":")[0].rpartition(".")[2] for m in said] == ["at", "zone", "stamps"]


def test_char_and_binary(world: FlussWorld, rounds: OnDemand) -> None:
    """pyfluss cannot make a CHAR column from an Arrow schema: the table is made over the wire,
    and written by pyfluss.
    """
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("word", pa.string()), ("code", pa.binary(4))])
    for name, key in (("fixed", ()), ("fixed_pk", ("id",))):
        world.produce(MakeTable(name=f"{name}_first", schema=schema, primary_key=key, buckets=1, freshness="1h"))
        make_like(world, f"{name}_first", name, word={"type": "CHAR", "length": 5})
    rows: list[dict[str, Any]] = [
        {"id": 1, "word": "grüß", "code": b"\0\1\2\3"},
        {"id": 2, "word": "five5", "code": b"abcd"},
        {"id": 3, "word": None, "code": None},
    ]
    world.produce(
        Append(table="fixed", rows=pa.RecordBatch.from_pylist(rows, schema=schema)),
        Upsert(table="fixed_pk", rows=rows),
    )
    for name in ("fixed", "fixed_pk"):
        assert isinstance(rounds.run(name), TableFinished)
        assert [{**r, "word": r["word"] and r["word"].rstrip()} for r in world.by_key(name).values()] == rows, name


def make_like(world: FlussWorld, old: str, new: str, **types: dict[str, Any]) -> None:
    """A table as another one, with other types for some columns."""
    answer = world.plugin.servers.call_any(TABLE_INFO, {"path": path_message(DATABASE, old)})
    body = json.loads(bytes(answer["json"]))
    for column in body["schema"]["columns"]:
        column["data_type"] = types.get(column["name"], column["data_type"])
    lake = "table.datalake.iceberg."
    body["properties"] = {k: v for k, v in body["properties"].items() if not k.startswith(lake)}
    values = {"path": path_message(DATABASE, new), "json": json.dumps(body).encode(), "ignore_if_exists": 0}
    world.plugin.servers.call_coordinator(CREATE_TABLE, values)
