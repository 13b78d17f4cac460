# SPDX-License-Identifier: Apache-2.0
"""Kills at every step of a round: of the job, and of the server under it. After each, every row is in the lake once."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog

from lakeward.client import Client, Table
from lakeward_testing.faults import Fault, FaultAction
from lakeward_testing.waiting import wait_until
from tests.spark.processes import Job, Rows, Server, check_exactly_once, lake_rows, lake_snapshots, wait_tiered

POINTS = (
    "round.planned",
    "round.before-write",
    "split.batch",
    "round.written",
    "round.before-lease-check",
    "round.before-lake-commit",
    "round.after-lake-commit",
)
WORST = "round.after-lake-commit"
"""The catalog is the server's own, so that the report travels with the lake commit: the job dies before it knows of
either. Kills at the other moments are in the soak; tests/chaos/test_steps.py hurts a round at every one of them."""

APART = ("round.before-coordinator-commit", "round.after-coordinator-commit")
"""Passed where the catalog is not the server's own: the report is a call after the lake commit."""
WORST_APART = "round.before-coordinator-commit"
"""Between the two commits."""

SHORT_LEASE = {"coordinator.lease.duration": "2 s", "coordinator.sweep.interval": "200 ms"}


def rows(start: int, stop: int, name: str = "n") -> list[dict[str, Any]]:
    return [{"id": i, "name": f"{name}{i}"} for i in range(start, stop)]


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server whose leases end quickly and whose orphan removal does not wait long."""
    made = Server(
        tmp_path_factory.mktemp("quick"),
        {**SHORT_LEASE, "coordinator.orphan.interval": "500 ms", "coordinator.orphan.grace": "1 s"},
    )
    yield made
    made.stop()


@pytest.fixture(scope="module")
def apart(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server whose lake has a catalog of its own."""
    folder = tmp_path_factory.mktemp("apart")
    lake = sql_catalog(folder)
    made = Server(folder, {**SHORT_LEASE, **{f"datalake.iceberg.{key}": value for key, value in lake.items()}})
    yield made
    made.stop()


def sql_catalog(folder: Path) -> dict[str, str]:
    return {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}/warehouse"}


def sql_rows(folder: Path, table: Table) -> Rows:
    with closing(SqlCatalog("lakeward", **sql_catalog(folder))) as catalog:
        rows: Rows = catalog.load_table(table.path).scan().to_arrow().to_pylist()
        return rows


class Pair:
    """A log table and a PK table that change in every round."""

    def __init__(self, client: Client, name: str) -> None:
        self.client = client
        self.log = client.create_table(f"crash.{name}_log", "id BIGINT, name STRING", freshness="1 s")
        self.pk = client.create_table(f"crash.{name}_pk", "id BIGINT, name STRING", primary_key="id", freshness="1 s")
        self._turn = 0

    @property
    def tables(self) -> tuple[Table, Table]:
        return self.log, self.pk

    def write(self) -> None:
        n, self._turn = self._turn, self._turn + 1
        self.log.append(rows(50 * n, 50 * n + 50))
        self.pk.upsert(rows(10 * n, 10 * n + 40, f"v{n}-"))
        self.pk.delete([{"id": 10 * n}])

    def write_unless(self, is_over: bool) -> bool:
        if not is_over:
            self.write()
        return is_over

    def check(self, state: Any, read: Callable[[Client, Table], Rows] = lake_rows) -> None:
        wait_tiered(self.client, *self.tables, state=state)
        for table in self.tables:
            check_exactly_once(self.client, table, read)


def slug(point: str) -> str:
    return point.replace(".", "_").replace("-", "_")


def kill_and_check(
    server: Server, point: str, *, spark: bool, read: Callable[[Client, Table], Rows] = lake_rows
) -> None:
    """The job dies at the third time it comes by; its successor of the same name takes over at once.

    On Spark a split is written in a Python worker, whose death Spark mends: there the whole job is killed while it
    waits."""
    with server.connect() as client:
        pair = Pair(client, f"{slug(point)}_{'spark' if spark else 'threads'}")
        pair.write()
        name = f"{slug(point)}-{spark}"
        is_in_worker = spark and point.startswith("split.")
        action = FaultAction.PAUSE if is_in_worker else FaultAction.KILL
        fault = Fault(point=point, action=action, hit=3, file=str(server.folder / f"{name}-pause"))
        job = Job(server, name, slots=2, spark=spark, faults=fault.to_text())
        try:
            wait_until(
                lambda: pair.write_unless(fault.is_reached() if is_in_worker else not job.is_alive()),
                poll_s=0.3,
                what=f"the kill at {point}",
                state=job.text,
            )
        finally:
            job.kill()
        pair.write()
        successor = Job(server, name, slots=2, spark=spark)
        try:
            pair.check(successor.text, read)
        finally:
            successor.kill()


@pytest.mark.parametrize("point", [p if p == WORST else pytest.param(p, marks=pytest.mark.soak) for p in POINTS])
def test_a_job_killed_at(point: str, quick: Server) -> None:
    kill_and_check(quick, point, spark=False)


@pytest.mark.parametrize("point", [p if p == WORST_APART else pytest.param(p, marks=pytest.mark.soak) for p in APART])
def test_a_job_whose_catalog_is_apart_killed_at(point: str, apart: Server) -> None:
    kill_and_check(apart, point, spark=False, read=lambda _, table: sql_rows(apart.folder, table))


@pytest.mark.spark
@pytest.mark.soak
@pytest.mark.parametrize("point", POINTS)
def test_a_spark_job_killed_at(point: str, quick: Server) -> None:
    kill_and_check(quick, point, spark=True)


@pytest.mark.soak
@pytest.mark.parametrize("point", POINTS)
def test_a_server_killed_at(point: str, tmp_path: Path) -> None:
    """The job waits for it; what it was doing goes on when the server is back."""
    server = Server(tmp_path / "server")
    pause = Fault(point=point, action=FaultAction.PAUSE, hit=2, file=str(tmp_path / "pause"))
    job = Job(server, "waits", slots=2, spark=False, faults=pause.to_text())
    try:
        with server.connect() as client:
            pair = Pair(client, "server")
            pair.write()
            wait_until(
                lambda: pair.write_unless(pause.is_reached()),
                poll_s=0.3,
                what=f"the pause at {point}",
                state=job.text,
            )
            server.kill()
            pause.release()
            server.start()
            pair.write()
            pair.check(job.text)
        assert job.stop() == 0, job.text()[-2000:]
    finally:
        job.kill()
        server.stop()


def paused(server: Server, name: str, folder: Path, *, spark: bool = False) -> tuple[Job, Fault]:
    fault = Fault(point="round.before-lake-commit", action=FaultAction.PAUSE, file=str(folder / f"{name}-pause"))
    return Job(server, name, slots=1, spark=spark, faults=fault.to_text()), fault


@pytest.mark.parametrize(
    "spark", [False, pytest.param(True, marks=[pytest.mark.soak, pytest.mark.spark])], ids=["threads", "spark"]
)
def test_a_zombie_wakes_after_another_job_took_its_table(quick: Server, tmp_path: Path, spark: bool) -> None:
    with quick.connect() as client:
        table = client.create_table(
            f"crash.zombie_{spark}", "id BIGINT, name STRING", primary_key="id", freshness="1 s"
        )
        other = client.create_table(f"crash.work_{spark}", "id BIGINT, name STRING", freshness="1 s")
        table.upsert(rows(0, 100))
        zombie, pause = paused(quick, f"zombie-{spark}", tmp_path, spark=spark)
        heir = None
        try:
            pause.wait_reached(120)
            zombie.send_all(signal.SIGSTOP)
            pause.release()
            heir = Job(quick, f"heir-{spark}", slots=1, spark=False)
            table.upsert(rows(50, 150, "later"))
            wait_tiered(client, table, state=heir.text)
            zombie.send_all(signal.SIGCONT)
            wait_until(
                lambda: any(words in zombie.text() for words in ("given back", "moved", "lease", "not current")),
                what="the zombie's end",
                state=zombie.text,
            )
            heir.kill()
            other.append(rows(0, 10))
            table.upsert(rows(0, 10, "last"))
            wait_tiered(client, table, other, state=zombie.text)
            assert check_exactly_once(client, table) == 150
            assert check_exactly_once(client, other) == 10
            assert zombie.is_alive()
        finally:
            zombie.kill()
            if heir is not None:
                heir.kill()


def test_a_zombie_alone_meets_the_fence_of_orphan_removal(quick: Server, tmp_path: Path) -> None:
    """Nobody takes the table over; its files are removed as orphans, behind a fencing snapshot; then it wakes up."""
    with quick.connect() as client:
        table = client.create_table("crash.alone", "id BIGINT, name STRING", freshness="1 s")
        table.append(rows(0, 100))
        zombie, pause = paused(quick, "alone", tmp_path)
        try:
            pause.wait_reached(120)
            zombie.send_all(signal.SIGSTOP)
            pause.release()
            wait_until(lambda: lake_snapshots(client, table), what="the fencing snapshot")
            zombie.send_all(signal.SIGCONT)
            wait_tiered(client, table, state=zombie.text)
            assert check_exactly_once(client, table) == 100
            assert zombie.is_alive()
        finally:
            zombie.kill()
