# SPDX-License-Identifier: Apache-2.0
"""The coordinator under many tables and jobs: heartbeat latency in process and over HTTP, quiet and beside producers;
state size; restart to first lease. `LAKEWARD_BENCH_SCALE=0.2 python -m bench.coordinator` takes a fifth of the time.

Every table gets a row now and then, so that rounds are handed out, committed and finished all the while."""

from __future__ import annotations

import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from bench.report import Cost, Report
from lakeward.client import Client, connect
from lakeward.coordinator.coordinator import Coordinator
from lakeward.coordinator.federation import Federation
from lakeward.coordinator.options import CoordinatorOptions
from lakeward.coordinator.state.statestore import StateStore
from lakeward.hot.embedded.remote.coordinatorclient import HttpCoordinatorClient
from lakeward.hot.embedded.remote.http import ServerConnection
from lakeward.hot.embedded.remote.storeclient import EmbeddedStoreClient
from lakeward.model import (
    Column,
    InstanceId,
    Int64Type,
    JobName,
    OffsetMap,
    OffsetRange,
    RoundId,
    RoundResult,
    Schema,
    SystemClock,
    TableDescriptor,
    TableInfo,
    TablePath,
    new_round_id,
)
from lakeward.protocol import routes
from lakeward.protocol.heartbeat import (
    CommitReport,
    CommittedRange,
    HandedOut,
    HeartbeatAnswer,
    HeartbeatRequest,
    TableFinished,
    TableInWork,
)
from lakeward.protocol.tables import CreateTable
from lakeward.server.admission.interpreter import share_turns
from lakeward.spi import load_lake
from tests.kit.hotadmin import MemoryHotAdmin
from tests.kit.serverprocess import ServerProcess
from tests.kit.world import B0

SCALE = float(os.environ.get("LAKEWARD_BENCH_SCALE", "1"))
TABLES, JOBS, PRODUCERS, SPEAKERS = 1_000, 50, 2, 5
SECONDS = 20.0 * SCALE
ROWS_EVERY_S = 10.0
"""How often each table gets a row; also its freshness, so each is due about as often."""

LEAD_S = 12.0
"""After that rows have waited long enough for rounds to be due."""

DESCRIPTOR = TableDescriptor(
    schema=Schema(columns=(Column(name="id", type=Int64Type()),)), properties={"table.datalake.freshness": "10 s"}
)


def main() -> None:
    report = Report("coordinator")
    share_turns()  # as the server does
    with tempfile.TemporaryDirectory() as folder:
        measure_in_process(report, Path(folder), TABLES)
    with tempfile.TemporaryDirectory() as folder:
        measure_server(report, Path(folder), TABLES)
    report.finish()


class JobScript:
    """One job's side of the protocol; every table it gets is finished with its next beat."""

    def __init__(self, number: int) -> None:
        self.name, self.instance = JobName(f"job-{number}"), InstanceId(f"i-{number}")
        self.held: list[HandedOut] = []

    def request(self) -> HeartbeatRequest:
        done = tuple(
            TableFinished(
                table_id=t.table_id,
                epoch=t.epoch,
                round_id=RoundId("r"),
                result=RoundResult(round_id=RoundId("r"), snapshot_id=None),
            )
            for t in self.held[:2]
        )
        working = tuple(TableInWork(table_id=t.table_id, epoch=t.epoch) for t in self.held[2:])
        self.held = self.held[2:]
        return HeartbeatRequest(
            job=self.name, instance=self.instance, slots=4, room=4 - len(working), tiering=working, finished=done
        )

    def take(self, answer: HeartbeatAnswer) -> None:
        self.held += answer.tables


# ---- in process ------------------------------------------------------------------------------------------------------
def measure_in_process(report: Report, folder: Path, count: int) -> None:
    clock, lake = SystemClock(), load_lake("memory", {"name": str(folder)})
    hot, options = MemoryHotAdmin(clock), CoordinatorOptions(lake_format="memory")

    def open_coordinator() -> Coordinator:
        made = Coordinator(StateStore.open(folder / "state.db"), hot, lambda name: lake, clock, options)
        made.open()
        return made

    coordinator = open_coordinator()
    federation = Federation(coordinator)
    for n in range(count):
        federation.create(CreateTable(path=TablePath("db", f"t{n}"), descriptor=DESCRIPTOR))
        hot.append(TablePath("db", f"t{n}"), 100)
    coordinator.start()
    with report.measure() as cost:
        latencies = _beat_for(coordinator, hot, SECONDS)
    report.add(
        f"heartbeat p99 in process, {count} tables, {JOBS} jobs",
        figure=_p99_ms(latencies),
        unit="ms",
        target="<= 20",
        cost=cost,
    )
    size = sum(f.stat().st_size for f in folder.glob("state.db*")) / 2**20
    report.add(f"state on disk, {count} tables", figure=round(size, 1), unit="MB", target="<= 200", cost=cost)
    coordinator.close()
    began = time.perf_counter()
    coordinator = open_coordinator()
    coordinator.start()
    script = JobScript(JOBS)
    while not script.held:
        script.take(coordinator.heartbeat(script.request()))
        time.sleep(0.01)
    report.add(
        f"restart to first lease, {count} tables", figure=round(1_000 * (time.perf_counter() - began)), unit="ms"
    )
    coordinator.close()


def _beat_for(coordinator: Coordinator, hot: MemoryHotAdmin, seconds: float) -> list[float]:
    """Beats of all jobs in turn, with commits and new rows between them."""
    jobs, latencies, end = [JobScript(n) for n in range(JOBS)], [], time.perf_counter() + seconds
    while time.perf_counter() < end:
        for job in jobs:
            for table in job.held[:2]:
                _commit(coordinator, hot, table, job)
            request = job.request()
            began = time.perf_counter()
            answer = coordinator.heartbeat(request)
            latencies.append(time.perf_counter() - began)
            job.take(answer)
            time.sleep(0.005)
    return latencies


def _commit(coordinator: Coordinator, hot: MemoryHotAdmin, table: HandedOut, job: JobScript) -> None:
    start = coordinator.committed(table.path).offsets.get(B0, 0)
    stop = hot.bounds(hot.load_table(table.path))[B0].end
    if stop > start:
        coordinator.commit(_report(table, job, start, stop))
    hot.append(table.path, 100)


def _report(table: HandedOut, job: JobScript, start: int, stop: int) -> CommitReport:
    return CommitReport(
        table_id=table.table_id,
        round_id=new_round_id(),
        snapshot_id=None,
        epoch=table.epoch,
        job=job.name,
        instance=job.instance,
        offsets=OffsetMap({B0: stop}),
        ranges=(CommittedRange(bucket=B0, range=OffsetRange(start, stop), rows=stop - start),),
    )


# ---- a real server ---------------------------------------------------------------------------------------------------
def measure_server(report: Report, folder: Path, count: int) -> None:
    server = ServerProcess(folder / "data", settings={"datalake.format": "memory"}).start()
    try:
        client = server.client()
        for n in range(count):
            client.create_table(f"db.t{n}", "id BIGINT", freshness="10 s")
        for n in range(PRODUCERS):
            client.create_table(f"load.t{n}", "id BIGINT, name STRING, price DOUBLE", freshness="10 s")
        with report.measure() as cost:
            idle = _beat_over_http(server.url, SECONDS)
        _add(report, f"heartbeat over HTTP, {count} tables, {JOBS} jobs", idle, "<= 20", cost)
        with _children("trickle", [[str(count)]], server.url), report.measure() as cost:
            quiet = _beat_over_http(server.url, SECONDS)
        _add(
            report,
            f"heartbeat over HTTP while rows trickle into all {count} tables and rounds run",
            quiet,
            "<= 20",
            cost,
        )
        loads = [[str(n)] for n in range(PRODUCERS)]
        with (
            _children("trickle", [[str(count)]], server.url),
            _children("produce", loads, server.url),
            report.measure() as cost,
        ):
            before = _stored_rows(client)
            busy = _beat_over_http(server.url, SECONDS)
            rows = _stored_rows(client) - before
        _add(report, "heartbeat over HTTP while producers saturate the server", busy, "<= 200", cost)
        report.add(
            "rows taken from those producers meanwhile", figure=rows / busy.elapsed_s / 1e3, unit="k rows/s", cost=cost
        )
    finally:
        server.close()


def _add(report: Report, case: str, beats: Beats, target: str, cost: Cost) -> None:
    report.add(f"{case}: p99", figure=_p99_ms(beats.latencies), unit="ms", target=target, cost=cost)
    report.add(f"{case}: p50", figure=round(1_000 * statistics.median(beats.latencies), 2), unit="ms")
    report.add(f"{case}: rounds finished", figure=round(beats.rounds / beats.elapsed_s, 1), unit="1/s")


@contextmanager
def _children(what: str, arguments: Sequence[Sequence[str]], url: str) -> Iterator[None]:
    """Processes of their own, so that what they do does not hold up the beats on this side."""
    started = [subprocess.Popen([sys.executable, "-m", "bench.coordinator", what, url, *more]) for more in arguments]
    try:
        time.sleep(LEAD_S)
        yield
    finally:
        for child in started:
            child.terminate()
            child.wait()


@dataclass
class Beats:
    latencies: list[float] = field(default_factory=list)
    rounds: int = 0
    elapsed_s: float = 0.0


def _beat_over_http(url: str, seconds: float) -> Beats:
    """Each job beats once a second, as they do, and not all at the same moment. Processes of their own speak for ten
    jobs each.
    """
    command = [sys.executable, "-m", "bench.coordinator", "beat", url]
    started_at = time.time() + 2.0
    children = [
        subprocess.Popen([*command, str(n), str(started_at), str(seconds)], stdout=subprocess.PIPE, text=True)
        for n in range(SPEAKERS)
    ]
    told = [json.loads(child.communicate()[0]) for child in children]
    return Beats(
        latencies=[latency for child in told for latency in child["latencies"]],
        rounds=sum(child["rounds"] for child in told),
        elapsed_s=max(child["elapsed_s"] for child in told),
    )


def beat(url: str, first: str, started_at: str, seconds: str) -> None:
    """One process: its jobs beat in turn; commits between beats are not measured."""
    connection, jobs = ServerConnection(url), {n: JobScript(n) for n in range(int(first), JOBS, SPEAKERS)}
    rounds, beats = Rounds(HttpCoordinatorClient(connection), EmbeddedStoreClient(connection)), Beats()
    for second in range(int(float(seconds))):
        for number, job in jobs.items():
            for table in job.held[:2]:
                rounds.commit(table, job)
                beats.rounds += 1
            time.sleep(max(0.0, float(started_at) + second + number / JOBS - time.time()))
            request = job.request()
            sent = time.perf_counter()
            answer = connection.call(HeartbeatAnswer, "POST", routes.HEARTBEAT, request)
            beats.latencies.append(time.perf_counter() - sent)
            job.take(answer)
    print(
        json.dumps({"latencies": beats.latencies, "rounds": beats.rounds, "elapsed_s": time.time() - float(started_at)})
    )


@dataclass
class Rounds:
    """What a round asks of the server around its heartbeats."""

    coordinator: HttpCoordinatorClient
    store: EmbeddedStoreClient
    tables: dict[TablePath, TableInfo] = field(default_factory=dict)

    def commit(self, table: HandedOut, job: JobScript) -> None:
        info = self.tables.get(table.path) or self.tables.setdefault(table.path, self.store.load_table(table.path))
        start = self.coordinator.committed(table.path).offsets.get(B0, 0)
        stop = self.store.freeze(info)[B0].end
        if stop > start:
            self.coordinator.commit(_report(table, job, start, stop))


def trickle(url: str, count: str) -> None:
    """A row for each table in turn, every one within `ROWS_EVERY_S`."""
    with connect(url) as client:
        tables = [client.table(f"db.t{n}") for n in range(int(count))]
        for number in itertools.count():
            due = time.monotonic() + ROWS_EVERY_S / len(tables)
            table = tables[number % len(tables)]
            table.append([{"id": number}])
            table.close()
            time.sleep(max(0.0, due - time.monotonic()))


def produce(url: str, number: str) -> None:
    """A producer as fast as it can be, on a table of its own: batches of 10,000 rows, several under way."""
    count = 10_000
    columns = {"id": range(count), "name": [f"name {n}" for n in range(count)], "price": [n / 7 for n in range(count)]}
    rows = pa.table({"id": pa.array(columns["id"], pa.int64()), "name": columns["name"], "price": columns["price"]})
    with connect(url) as client:
        table = client.table(f"load.t{number}")
        while True:
            table.append(pa.concat_tables([rows] * 32))


def _stored_rows(client: Client) -> int:
    return sum(b.end for n in range(PRODUCERS) for b in client.table(f"load.t{n}").bounds().values())


def _p99_ms(latencies: list[float]) -> float:
    return round(1_000 * sorted(latencies)[int(0.99 * len(latencies))], 2)


CHILDREN: dict[str, Callable[..., None]] = {"trickle": trickle, "produce": produce, "beat": beat}

if __name__ == "__main__":
    if sys.argv[1:]:
        CHILDREN[sys.argv[1]](*sys.argv[2:])
    else:
        main()
