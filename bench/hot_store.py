# SPDX-License-Identifier: Apache-2.0
"""The embedded hot store over Flight beside the raw limits, memory when idle, small puts, growth with tables and
segments.

10 columns, about 100 B per row, batches of 10,000. `python -m bench.hot_store small` is a short run that stores no
results.
"""

from __future__ import annotations

import gc
import json
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.flight as flight

from bench.hot_peers import peer
from bench.hot_store_pk import BATCH, SCHEMA, WINDOW, make_batches, measure_pk
from bench.report import Report
from lakeward.hot.embedded.options import StoreOptions
from lakeward.hot.embedded.store import EmbeddedStore
from lakeward.model import Bucket, TableDescriptor, TableId, TableInfo, TablePath
from lakeward.protocol.flight import Act, ActionRequest, BatchHeader, PutCommand, PutKind, log_ticket, to_bytes

BUCKETS, PRODUCERS, TABLES = 4, 2, 20
Send = Callable[[int, Sequence[pa.RecordBatch]], None]


def make_table(name: str, fsync: str = "always") -> TableInfo:
    descriptor = TableDescriptor(schema=SCHEMA, bucket_count=BUCKETS, properties={"table.log.fsync": fsync})
    return TableInfo(path=TablePath("bench", name), table_id=TableId(f"bench-{name}"), descriptor=descriptor)


LOG = make_table("log")
ALWAYS, INTERVAL = make_table("always"), make_table("interval", "interval")
MANY = [make_table(f"t{n}", "interval") for n in range(TABLES)]


def all_tables() -> list[TableInfo]:
    return [LOG, ALWAYS, INTERVAL, *MANY]


# ---- clients ---------------------------------------------------------------------------------------------------------
def put(
    client: flight.FlightClient,
    descriptor: flight.FlightDescriptor,
    batches: Sequence[tuple[bytes, pa.RecordBatch]],
    window: int = WINDOW,
) -> None:
    """One stream with a few batches under way, as the client library's writers do."""
    writer, reader = client.do_put(descriptor, batches[0][1].schema)
    for sent, (header, batch) in enumerate(batches):
        if sent >= window:
            reader.read()
        writer.write_with_metadata(batch, header)
    for _ in batches[-window:]:
        reader.read()
    writer.close()


def command_of(table: TableInfo) -> flight.FlightDescriptor:
    command = PutCommand(
        table=table.path, table_id=table.table_id, kind=PutKind.APPEND, schema_id=table.schema.schema_id
    )
    return flight.FlightDescriptor.for_command(to_bytes(command))


def produce(
    port: int, descriptor: flight.FlightDescriptor, batches: Sequence[pa.RecordBatch], header: Callable[[int], bytes]
) -> float:
    """Seconds that the producers need, each with a stream and half of the buckets."""

    def run(number: int) -> None:
        client = flight.FlightClient(f"grpc://127.0.0.1:{port}")
        put(client, descriptor, [(header(number + i % 2 * 2), b) for i, b in enumerate(batches[number::PRODUCERS])])

    threads = [threading.Thread(target=run, args=(n,)) for n in range(PRODUCERS)]
    begin = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return time.perf_counter() - begin


def headed(number: int) -> bytes:
    return to_bytes(BatchHeader(bucket=Bucket("", number)))


def read_all(client: flight.FlightClient, ticket: bytes) -> tuple[int, float]:
    begin = time.perf_counter()
    rows = sum(chunk.data.num_rows for chunk in client.do_get(flight.Ticket(ticket)))
    return rows, time.perf_counter() - begin


# ---- cases -----------------------------------------------------------------------------------------------------------
def measure_append(report: Report, folder: Path, port: int, batches: Sequence[pa.RecordBatch]) -> None:
    """Turn by turn, so that both sides meet the same weather."""
    rows, ours, raw = sum(b.num_rows for b in batches), [], []
    with peer("raw", folder / "raw") as (raw_port, _), report.measure() as cost:
        for _ in range(3):
            raw.append(produce(raw_port, flight.FlightDescriptor.for_path("x"), batches, lambda n: str(n).encode()))
            ours.append(produce(port, command_of(LOG), batches, headed))
    report.add(
        f"append, {BUCKETS} buckets, {PRODUCERS} producers, fsync always",
        figure=rows / min(ours) / 1e3,
        unit="k rows/s",
        beside=rows / min(raw) / 1e3,
        beside_what="the same IPC bytes over Flight to a file, fsynced",
        target=">= 0.5",
        of="ratio",
        cost=cost,
    )


def measure_read(report: Report, folder: Path, port: int) -> None:
    client = flight.FlightClient(f"grpc://127.0.0.1:{port}")
    ticket = to_bytes(log_ticket(LOG, Bucket("", 0), 0, end_of(client, LOG)))
    batches = [c.data for c in client.do_get(flight.Ticket(ticket))]
    with peer("memory", folder) as (raw_port, _), report.measure() as cost:
        raw_client = flight.FlightClient(f"grpc://127.0.0.1:{raw_port}")
        writer, _ = raw_client.do_put(flight.FlightDescriptor.for_path("x"), batches[0].schema)
        for batch in batches:
            writer.write_batch(batch)
        writer.close()
        times = [(read_all(client, ticket)[1], read_all(raw_client, b"")[1]) for _ in range(5)]
    rows = sum(b.num_rows for b in batches)
    report.add(
        "read a bucket's range, all columns",
        figure=rows / min(t for t, _ in times) / 1e3,
        unit="k rows/s",
        beside=rows / min(t for _, t in times) / 1e3,
        beside_what="Flight do_get of the same batches from memory",
        target=">= 0.6",
        of="ratio",
        cost=cost,
    )


def end_of(client: flight.FlightClient, table: TableInfo) -> int:
    """The end of bucket 0, as an action tells it."""
    request = ActionRequest(table=table.path, table_id=table.table_id)
    (answer,) = client.do_action(flight.Action(str(Act.FREEZE), to_bytes(request)))
    return int(json.loads(answer.body.to_pybytes())["bounds"]["0"]["end"])


def measure_small(report: Report, port: int, count: int) -> None:
    for table, policy in ((ALWAYS, "always"), (INTERVAL, "interval")):
        cuts = statistics.quantiles(_small_puts(port, table, count), n=100)
        for percent in (50, 99):
            report.add(f"1-row append, fsync {policy}, p{percent}", figure=cuts[percent - 1], unit="ms")


def _small_puts(port: int, table: TableInfo, count: int) -> list[float]:
    client, one = flight.FlightClient(f"grpc://127.0.0.1:{port}"), make_batches(np.arange(1, dtype=np.int64), 0)[0]
    writer, reader = client.do_put(command_of(table), one.schema)
    times = []
    for _ in range(count):
        begin = time.perf_counter()
        writer.write_with_metadata(one, headed(0))
        reader.read()
        times.append((time.perf_counter() - begin) * 1e3)
    writer.close()
    return times


def measure_memory(report: Report, folder: Path, batches: Sequence[pa.RecordBatch], rows: int) -> None:
    with peer("store", folder / "memory") as (port, process):
        per_table = max(1, rows // TABLES // BATCH)
        for table in MANY:
            produce(port, command_of(table), (list(batches) * (per_table // len(batches) + 1))[:per_table], headed)
        time.sleep(2.0)
        report.add(
            f"server memory, idle, after {rows:,} rows in {TABLES} tables",
            figure=process.memory_info().rss / 1e6,
            unit="MB",
            target="< 500",
        )


def measure_growth(report: Report, folder: Path, batch: pa.RecordBatch) -> None:
    """In process, without fsync: what bookkeeping costs."""
    store = EmbeddedStore.open(folder / "growth", StoreOptions.with_settings({"log.segment.file-size": "64kb"}))
    small = batch.slice(0, 100)
    tables = [make_table(f"g{n}", "never") for n in range(100)]
    for table in tables:
        store.create_table(table)
    few = _cost_us(store, tables[:1], small)
    report.add(
        "append of 100 rows, 100 tables",
        figure=_cost_us(store, tables, small),
        unit="us",
        beside=few,
        beside_what="1 table",
    )
    log = tables[0]
    while store.sizes()[0].local_segments < 1000:
        for _ in range(100):
            store.append(log, Bucket("", 0), small)
    report.add(
        "append of 100 rows, 1,000 segments",
        figure=_cost_us(store, [log], small),
        unit="us",
        beside=few,
        beside_what="1 segment",
    )
    begin = time.perf_counter()
    store.close()
    store = EmbeddedStore.open(folder / "growth", StoreOptions.with_settings({}))
    report.add("stop and start with 100 tables, 1,000 segments", figure=(time.perf_counter() - begin) * 1e3, unit="ms")
    store.close()


def _cost_us(store: EmbeddedStore, tables: Sequence[TableInfo], batch: pa.RecordBatch) -> float:
    for table in tables:
        store.append(table, Bucket("", 0), batch)
    times = []
    for n in range(500):
        begin = time.perf_counter()
        store.append(tables[n % len(tables)], Bucket("", 0), batch)
        times.append(time.perf_counter() - begin)
    return statistics.median(times) * 1e6


def main(small: bool) -> None:
    report = Report("hot_store")
    batches = make_batches(np.arange(200_000 if small else 2_000_000, dtype=np.int64), 0)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        with peer("store", folder / "store") as (port, _):
            measure_append(report, folder, port, batches)
            measure_read(report, folder, port)
            measure_small(report, port, 100 if small else 2000)
        measure_growth(report, folder, batches[0])
        measure_memory(report, folder, batches[:100], 1_000_000 if small else 10_000_000)
    del batches
    gc.collect()
    if small:
        return
    measure_pk(report)
    report.finish()


if __name__ == "__main__":
    main(sys.argv[1:] == ["small"])
