# SPDX-License-Identifier: Apache-2.0
"""Upserts and lookups of a PK table beside what RocksDB does with the same keys and values. `bench.hot_store` runs
these cases.

Rows have 10 columns and about 100 B; batches 10,000 rows; fsync before each acknowledgement.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.flight as flight
from rocksdict import Options, Rdict, WriteBatch

from bench.report import Report
from lakeward.hot.embedded.kv.keycodec import KeyCodec
from lakeward.hot.embedded.kv.rowcodec import RowCodec
from lakeward.hot.embedded.serve.service import FlightService
from lakeward.hot.embedded.store import EmbeddedStore
from lakeward.model import (
    Bucket,
    Column,
    Schema,
    TableDescriptor,
    TableId,
    TableInfo,
    TablePath,
    parse_type,
    to_arrow_schema,
)
from lakeward.protocol.auth import TokenSet
from lakeward.protocol.flight import BatchHeader, PutCommand, PutKind, to_bytes

KEYS = 1_000_000
UPDATED = 200_000
BATCH = 10_000
WINDOW = 4
"""Batches a producer has under way; the client library's writers do the same."""

TYPES = {
    "id": "BIGINT NOT NULL",
    "customer": "BIGINT",
    "part": "INT",
    "quantity": "INT",
    "price": "DECIMAL(12, 2)",
    "discount": "DOUBLE",
    "shipped": "DATE",
    "changed": "TIMESTAMP(6)",
    "mode": "STRING",
    "comment": "STRING",
}
SCHEMA = Schema(columns=tuple(Column(name=n, type=parse_type(t)) for n, t in TYPES.items()))
TABLE = TableInfo(
    path=TablePath("bench", "orders"),
    table_id=TableId("bench-orders"),
    descriptor=TableDescriptor(schema=SCHEMA, primary_key=("id",)),
)
ZERO = Bucket("", 0)
Put = Callable[[Sequence[pa.RecordBatch]], None]
Encoded = tuple[list[bytes], list[bytes]]


def make_rows(keys: npt.NDArray[np.int64], seed: int) -> pa.RecordBatch:
    chance, count = np.random.default_rng(seed), len(keys)
    numbers = chance.integers(0, 1 << 40, count)
    modes = pa.array(["AIR", "TRUCK", "SHIP", "RAIL", "MAIL"]).take(pa.array(numbers % 5))
    columns = [
        pa.array(keys),
        pa.array(numbers),
        pa.array((numbers % 200_000).astype(np.int32)),
        pa.array((numbers % 50).astype(np.int32)),
        pa.array(numbers % 100_000).cast(pa.decimal128(21, 2)).cast(pa.decimal128(12, 2)),
        pa.array(chance.random(count)),
        pa.array((numbers % 20_000).astype(np.int32)).cast(pa.date32()),
        pa.array(numbers).cast(pa.timestamp("us")),
        modes,
        pa.array(numbers).cast(pa.string()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=to_arrow_schema(SCHEMA))


def make_batches(keys: npt.NDArray[np.int64], seed: int) -> list[pa.RecordBatch]:
    return [make_rows(keys[at : at + BATCH], seed + at) for at in range(0, len(keys), BATCH)]


def encode(batches: Sequence[pa.RecordBatch]) -> list[Encoded]:
    """The very keys and values that KV stores for these rows."""
    codec = RowCodec({1: SCHEMA})
    keys = KeyCodec([codec.arrow.field("id")])
    return [
        (keys.encode(b).to_pylist(), codec.pack(codec.encode(b), np.zeros(b.num_rows, np.int64), 0).to_pylist())
        for b in batches
    ]


def timed(call: Callable[[Any], None], argument: Any) -> float:
    begin = time.perf_counter()
    call(argument)
    return time.perf_counter() - begin


def raw_seconds(folder: Path, rounds: Sequence[Sequence[Encoded]]) -> list[float]:
    """rocksdict alone: multi-get, then a write batch, as shipped."""
    database = Rdict(str(folder / "raw"), Options(raw_mode=True))

    def put(batches: Sequence[Encoded]) -> None:
        for keys, values in batches:
            database[keys]
            batch = WriteBatch(raw_mode=True)
            for key, value in zip(keys, values, strict=True):
                batch.put(key, value)
            database.write(batch)

    try:
        return [timed(put, batches) for batches in rounds]
    finally:
        database.close()


def flight_put(port: int) -> Put:
    """Upserts over Flight, a few batches under way."""
    client = flight.FlightClient(f"grpc://127.0.0.1:{port}")
    command = PutCommand(table=TABLE.path, table_id=TABLE.table_id, kind=PutKind.UPSERT, schema_id=1)
    header = to_bytes(BatchHeader(bucket=ZERO))

    def put(batches: Sequence[pa.RecordBatch]) -> None:
        writer, reader = client.do_put(flight.FlightDescriptor.for_command(to_bytes(command)), batches[0].schema)
        for sent, batch in enumerate(batches):
            if sent >= WINDOW:
                reader.read()
            writer.write_with_metadata(batch, header)
        for _ in batches[-WINDOW:]:
            reader.read()
        writer.close()

    return put


@contextmanager
def serving(folder: Path) -> Iterator[int]:
    """A process with the store and its Flight service; yields the port. Ends when its standard input does."""
    process = subprocess.Popen(
        [sys.executable, "-m", "bench.hot_store_pk", str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stdin is not None
    try:
        yield int(process.stdout.readline())
    finally:
        process.stdin.close()
        process.wait(60)
        process.stdout.close()


def serve(folder: Path) -> None:
    store = EmbeddedStore.open(folder)
    store.create_table(TABLE)
    service = FlightService(store, TokenSet.parse([]))
    print(service.port, flush=True)
    sys.stdin.read()
    service.shutdown()
    store.close()


def report_puts(
    report: Report, what: str, put: Put, rounds: Sequence[Sequence[pa.RecordBatch]], raw: Sequence[float], target: str
) -> None:
    with report.measure() as cost:
        seconds = [timed(put, batches) for batches in rounds]
    rows = [sum(b.num_rows for b in batches) for batches in rounds]
    for case, count, taken, limit in (
        (f"{what}: {rows[0]} new keys", rows[0], seconds[0], raw[0]),
        (f"{what}: {rows[1]} of them again", rows[1], seconds[1], raw[1]),
        (f"{what}: both", sum(rows), sum(seconds), sum(raw)),
    ):
        last = case.endswith("both")
        report.add(
            case,
            figure=count / taken / 1e3,
            unit="k rows/s",
            beside=count / limit / 1e3,
            beside_what="rocksdict multi-get + write batch, no server",
            target=target if last else None,
            of="ratio",
            cost=cost if last else None,
        )


def report_reads(report: Report, store: EmbeddedStore, keys: npt.NDArray[np.int64]) -> None:
    wanted = [
        pa.RecordBatch.from_arrays([pa.array(keys[at : at + BATCH])], names=["id"]) for at in range(0, UPDATED, BATCH)
    ]
    begin = time.perf_counter()
    found = sum(store.lookup(TABLE, ZERO, batch).num_rows for batch in wanted)
    report.add("lookup in batches of 10,000", figure=found / (time.perf_counter() - begin) / 1e3, unit="k rows/s")
    begin = time.perf_counter()
    snapshot = store.take_snapshot(TABLE, ZERO, "bench")
    assert snapshot is not None
    report.add("KV snapshot taken", figure=(time.perf_counter() - begin) * 1e3, unit="ms")
    begin = time.perf_counter()
    rows = sum(b.num_rows for b in store.read_snapshot(TABLE, snapshot))
    report.add("KV snapshot read", figure=rows / (time.perf_counter() - begin) / 1e3, unit="k rows/s")
    store.release_snapshots(TABLE, "bench")


def measure_pk(report: Report, keys: int = KEYS, updated: int = UPDATED) -> None:
    """Adds the PK cases to `report`."""
    order = np.random.default_rng(5).permutation(keys).astype(np.int64)
    again = np.random.default_rng(6).permutation(order)[:updated]
    rounds = [make_batches(order, 0), make_batches(again, 1 << 32)]
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        raw = raw_seconds(folder, [encode(batches) for batches in rounds])
        with serving(folder / "served") as port:
            report_puts(report, "upsert over Flight", flight_put(port), rounds, raw, ">= 0.5")
        store = EmbeddedStore.open(folder / "embedded")
        store.create_table(TABLE)

        def put(batches: Sequence[pa.RecordBatch]) -> None:
            for batch in batches:
                store.upsert(TABLE, ZERO, batch)

        report_puts(report, "upsert in process", put, rounds, raw, ">= 0.5")
        report_reads(report, store, again)
        begin = time.perf_counter()
        store.close()
        store = EmbeddedStore.open(folder / "embedded")
        store.lookup(TABLE, ZERO, pa.RecordBatch.from_arrays([pa.array(order[:1])], names=["id"]))
        report.add("restart to first lookup", figure=(time.perf_counter() - begin) * 1e3, unit="ms")
        store.close()


if __name__ == "__main__":
    serve(Path(sys.argv[1]))
