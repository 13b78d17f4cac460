# SPDX-License-Identifier: Apache-2.0
"""The coordinator under many tables and jobs: heartbeat latency in process and over HTTP, quiet and beside producers; state size;
restart to first lease. `python -m bench.coordinator [tables]`."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from bench.report import Report
from lakeward.coordinator.coordinator import Coordinator
from lakeward.coordinator.federation import Federation
from lakeward.coordinator.options import CoordinatorOptions
from lakeward.coordinator.statestore import StateStore
from lakeward.hot.embedded.http import ServerConnection
from lakeward.model.clock import SystemClock
from lakeward.model.ids import InstanceId, JobName, RoundId, new_round_id
from lakeward.model.offsets import OffsetMap, OffsetRange
from lakeward.model.round import RoundResult
from lakeward.model.schema import Column, Schema
from lakeward.model.table import TableDescriptor, TablePath
from lakeward.model.types import Int64Type
from lakeward.protocol import routes
from lakeward.protocol.commit import CommitReport, CommittedRange
from lakeward.protocol.heartbeat import HandedOut, HeartbeatAnswer, HeartbeatRequest, TableFinished, TableInWork
from lakeward.protocol.tables import CreateTable
from lakeward.spi.registry import load_lake
from lakeward.testing.hotadmin import MemoryHotAdmin
from lakeward.testing.serverprocess import ServerProcess
from lakeward.testing.world import B0

JOBS = 50
SECONDS = 20.0
DESCRIPTOR = TableDescriptor(schema=Schema(columns=(Column(name="id", type=Int64Type()),)), properties={"table.datalake.freshness": "10 s"})


def main() -> None:
    tables = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000
    report = Report("coordinator")
    with tempfile.TemporaryDirectory() as folder:
        measure_in_process(report, Path(folder), tables)
    with tempfile.TemporaryDirectory() as folder:
        measure_server(report, Path(folder), tables)
    report.finish()


class JobScript:
    """One job's side of the protocol; every table it gets is finished with its next beat."""

    def __init__(self, number: int) -> None:
        self.name, self.instance = JobName(f"job-{number}"), InstanceId(f"i-{number}")
        self.held: list[HandedOut] = []

    def request(self) -> HeartbeatRequest:
        done = tuple(
            TableFinished(
                table_id=t.table_id, epoch=t.epoch, round_id=RoundId("r"), result=RoundResult(round_id=RoundId("r"), snapshot_id=None)
            )
            for t in self.held[:2]
        )
        working = tuple(TableInWork(table_id=t.table_id, epoch=t.epoch) for t in self.held[2:])
        self.held = self.held[2:]
        return HeartbeatRequest(job=self.name, instance=self.instance, slots=4, room=4 - len(working), tiering=working, finished=done)

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
    report.add(f"heartbeat p99 in process, {count} tables, {JOBS} jobs", figure=_p99_ms(latencies), unit="ms", target="<= 20", cost=cost)
    size = sum(f.stat().st_size for f in folder.glob("state.db*")) / 2**20
    report.add(f"state on disk, {count} tables", figure=round(size, 1), unit="MB", target="<= 200", cost=cost)
    coordinator.close()
    began = time.perf_counter()
    coordinator = open_coordinator()
    coordinator.start()
    script = JobScript(JOBS)
    while not script.held:
        script.take(coordinator.heartbeat(script.request()))
    report.add(f"restart to first lease, {count} tables", figure=round(1_000 * (time.perf_counter() - began)), unit="ms")
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
        coordinator.commit(
            CommitReport(
                table_id=table.table_id,
                round_id=new_round_id(),
                snapshot_id=None,
                epoch=table.epoch,
                job=job.name,
                instance=job.instance,
                offsets=OffsetMap({B0: stop}),
                ranges=(CommittedRange(bucket=B0, range=OffsetRange(start, stop), rows=stop - start),),
            )
        )
    hot.append(table.path, 100)


# ---- a real server ---------------------------------------------------------------------------------------------------
def measure_server(report: Report, folder: Path, count: int) -> None:
    server = ServerProcess(folder / "data", settings={"datalake.format": "memory"}).start()
    try:
        client = server.client()
        for n in range(count):
            client.create_table(f"db.t{n}", "id BIGINT", freshness="10 s")
        with report.measure() as cost:
            quiet = _beat_over_http(server.url, SECONDS)
        report.add(f"heartbeat p99 over HTTP, {count} tables, {JOBS} jobs", figure=_p99_ms(quiet), unit="ms", target="<= 20", cost=cost)
        producers = [
            subprocess.Popen([sys.executable, "-m", "bench.coordinator", "produce", server.url, str(n), str(SECONDS + 5)]) for n in range(2)
        ]
        with report.measure() as cost:
            busy = _beat_over_http(server.url, SECONDS)
        for producer in producers:
            producer.wait()
        report.add(
            "heartbeat p99 over HTTP while producers saturate the server", figure=_p99_ms(busy), unit="ms", target="<= 200", cost=cost
        )
    finally:
        server.close()


def _beat_over_http(url: str, seconds: float) -> list[float]:
    """Each job beats once a second, as they do."""
    latencies: list[float] = []

    def work(numbers: range) -> None:
        connection, jobs, end = ServerConnection(url), [JobScript(n) for n in numbers], time.perf_counter() + seconds
        while time.perf_counter() < end:
            cycle = time.perf_counter()
            for job in jobs:
                request = job.request()
                began = time.perf_counter()
                answer = connection.call(HeartbeatAnswer, "POST", routes.HEARTBEAT, request)
                latencies.append(time.perf_counter() - began)
                job.take(answer)
            time.sleep(max(0.0, cycle + 1 - time.perf_counter()))

    threads = [threading.Thread(target=work, args=(range(n, JOBS, 5),)) for n in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return latencies


def produce(url: str, number: str, seconds: str) -> None:
    """A producer as fast as it can be, on a table of its own."""
    from lakeward.client import connect

    with connect(url) as client:
        table, rows, end = client.table(f"db.t{number}"), [{"id": n} for n in range(1_000)], time.monotonic() + float(seconds)
        while time.monotonic() < end:
            table.append(rows)


def _p99_ms(latencies: list[float]) -> float:
    return round(1_000 * sorted(latencies)[int(0.99 * len(latencies))], 2)


if __name__ == "__main__":
    if sys.argv[1:2] == ["produce"]:
        produce(*sys.argv[2:5])
    else:
        main()
