# SPDX-License-Identifier: Apache-2.0
"""Real processes for end-to-end tests: a server, tiering jobs, and what a test asks of them."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from lakeward.cli.sql.duckdblake import query_lake
from lakeward.client import Client, Table, connect
from lakeward.errors import LakewardError, ServerUnavailable
from lakeward.protocol import routes
from lakeward_testing.ports import free_port
from lakeward_testing.waiting import note_limit, wait_until
from lakeward_testing.warmprocess import WarmProcess, start_module

Rows = list[dict[str, Any]]

START_LIMIT_S = 120.0
ROUND_LIMIT_S = 180.0
"""A first round may wait for Spark's start on a busy machine."""


class Process:
    """A child in a process group of its own; `end` ends the whole group, JVM and Python workers included."""

    def __init__(
        self, arguments: Sequence[str], log: Path, environment: Mapping[str, str], python: str = sys.executable
    ) -> None:
        self.log = log
        self.child: subprocess.Popen[bytes] | WarmProcess
        first, *rest = arguments
        if first == "-m" and python == sys.executable:
            self.child = start_module(rest[0], rest[1:], log, environment, own_group=True)
            return
        with log.open("ab") as out:
            self.child = subprocess.Popen(
                [python, *arguments],
                stdout=out,
                stderr=subprocess.STDOUT,
                env={**os.environ, **environment},
                start_new_session=True,
            )

    def send(self, number: int) -> None:
        """To the Python process alone."""
        self.child.send_signal(number)

    def send_all(self, number: int) -> None:
        """To the whole group: a machine that stands still, or is gone."""
        os.killpg(self.child.pid, number)

    def wait(self, limit_s: float = START_LIMIT_S) -> int:
        try:
            return self.child.wait(limit_s)
        except subprocess.TimeoutExpired:
            note_limit()
            raise

    def is_alive(self) -> bool:
        return self.child.poll() is None

    def kill(self) -> None:
        """SIGKILL to all of it. Safe to repeat."""
        with contextlib.suppress(ProcessLookupError):
            self.send_all(signal.SIGKILL)
        self.child.wait(120)

    def text(self) -> str:
        return self.log.read_text(errors="replace")


class Server:
    """A server on fixed ports, so that it comes back under the same address."""

    def __init__(self, folder: Path, settings: Mapping[str, str] | None = None, python: str = sys.executable) -> None:
        self.folder, self.python = folder, python
        folder.mkdir(parents=True, exist_ok=True)
        self.port, self.flight_port = free_port(), free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.settings = {
            "datalake.format": "iceberg",
            "coordinator.tick": "50 ms",
            "coordinator.heartbeat.interval": "500 ms",
            # These tests count files and snapshots of rounds; compactions have tests of their own.
            "table.datalake.auto-compaction": "false",
            **(settings or {}),
        }
        self.process: Process | None = None
        self.start()

    def start(self, environment: Mapping[str, str] | None = None) -> None:
        arguments = ["-m", "lakeward.cli", "server", "--port", str(self.port), "--flight-port", str(self.flight_port)]
        arguments += ["--data", str(self.folder / "data")]
        arguments += [part for key, value in self.settings.items() for part in ("--set", f"{key}={value}")]
        self.process = Process(arguments, self.folder / "server.log", environment or {}, self.python)
        client = self.connect()
        wait_until(
            lambda: client.info(),
            limit_s=START_LIMIT_S,
            what="the server's start",
            tolerate=(ServerUnavailable,),
            state=self.process.text,
        )
        client.close()

    def connect(self) -> Client:
        return connect(self.url)

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()

    def stop(self) -> None:
        if self.process is not None and self.process.is_alive():
            self.process.send(signal.SIGTERM)
            self.process.wait()


class Serving(Protocol):
    """What a job asks of a server."""

    url: str
    folder: Path


class Job(Process):
    """A tiering job: `lakeward tier` in a process of its own. `spark` False: the same job on threads, quick
    to start.
    """

    def __init__(
        self,
        server: Serving,
        name: str,
        *,
        slots: int = 4,
        master: str = "local[2,4]",
        settings: Mapping[str, str] | None = None,
        conf: Mapping[str, str] | None = None,
        faults: str | None = None,
        spark: bool = True,
        python: str = sys.executable,
    ) -> None:
        self.name = name
        module = "lakeward.tiering" if spark else "tests.spark.threadjob"
        arguments = ["-m", module, "--server", server.url, "--name", name, "--slots", str(slots), "--master", master]
        arguments += [part for key, value in (conf or {}).items() for part in ("--conf", f"{key}={value}")]
        environment = {"LAKEWARD_TIERING__HEARTBEAT__INTERVAL": "200 ms", **(settings or {})}
        if faults is not None:
            environment["LAKEWARD_FAULTS"] = faults
        super().__init__(arguments, server.folder / f"job-{name}.log", environment, python)

    def stop(self, limit_s: float = START_LIMIT_S) -> int:
        """SIGTERM, as an operator would."""
        if self.is_alive():
            self.send(signal.SIGTERM)
        return self.wait(limit_s)


def tier_now(client: Client, table: Table, limit_s: float = ROUND_LIMIT_S) -> None:
    """Asks for a round at once; returns when everything acknowledged before is in the lake."""
    client.server.ask(
        "POST", routes.TIER_NOW.format(table=table.path), params={"limit_s": limit_s}, timeout_s=limit_s + 10
    )


def lake_snapshots(client: Client, table: Table) -> list[dict[str, Any]]:
    """Snapshots of the lake table, oldest first, as the catalog serves them."""
    path = table.info.path
    loaded = client.server.ask("GET", f"/iceberg/v1/namespaces/{path.database}/tables/{path.table}")
    found: list[dict[str, Any]] = loaded["metadata"].get("snapshots", [])
    return found


def rounds(client: Client, table: Table) -> list[dict[str, Any]]:
    """Rounds of the table that ended, oldest first."""
    found = client.server.ask("GET", routes.ROUNDS, params={"table": table.path})["rounds"]
    return sorted(found, key=lambda r: r["ended_at_ms"])


def status(client: Client, table: str) -> dict[str, Any]:
    found: dict[str, Any] = client.server.ask("GET", routes.TABLE_STATUS.format(table=table))
    return found


def committed(client: Client, table: str) -> dict[str, int]:
    """Bucket as text -> the coordinator's committed offset."""
    body = client.server.ask("GET", routes.COMMITTED.format(table=table))
    offsets = body["offsets"]["offsets"]
    return {f"{p}/{n}" if p else str(n): o for p, pairs in offsets.items() for n, o in pairs}


def wait_tiered(client: Client, *tables: Table, limit_s: float = ROUND_LIMIT_S, state: Any = None) -> None:
    """Until the lake has everything that the hot store holds now."""
    for table in tables:
        ends = {str(b): v.end for b, v in table.bounds().items() if v.end}

        def reached(path: str = table.path, ends: dict[str, int] = ends) -> bool:
            found = committed(client, path)
            return all(found.get(b, 0) >= end for b, end in ends.items())

        wait_until(
            reached,
            limit_s=limit_s,
            poll_s=0.1,
            what=f"{table.path} in the lake up to {ends}",
            tolerate=(LakewardError,),
            state=state or (lambda path=table.path: status(client, path)),
        )


def lake_rows(client: Client, table: Table) -> Rows:
    """Live rows as DuckDB reads them."""
    return query_lake(client, table.path, "SELECT * FROM lake")


def hot_records(table: Table) -> list[dict[str, Any]]:
    """Every record of every bucket's log, with `__bucket` and `__partition`."""
    found = []
    for bucket, bounds in table.bounds().items():
        records = table.scan(bucket, bounds.start, bounds.end).to_pylist()
        found += [{**r, "__bucket": bucket.number, "__partition": bucket.partition} for r in records]
    return found


def check_exactly_once(client: Client, table: Table, read: Callable[[Client, Table], Rows] = lake_rows) -> int:
    """The lake equals the hot store: a log table's rows by address, a PK table's changelog folded by key. Returns the
    rows. `read`: for a lake whose catalog the server does not serve.
    """
    key = table.info.descriptor.primary_key
    names = table.info.schema.names
    partition = table.info.descriptor.partition_keys
    expected: dict[Any, Any] = {}
    for record in sorted(hot_records(table), key=lambda r: (r["__partition"], r["__bucket"], r["__offset"])):
        address = (record["__partition"], record["__bucket"], record["__offset"])
        row = (*address, *(_plain(record[n]) for n in names))
        if not key:
            expected[address] = row
        elif record["__change_type"] in (1, 3):
            expected[tuple(record[k] for k in key)] = row
        elif record["__change_type"] == 4:
            expected.pop(tuple(record[k] for k in key))
    found = [
        ("$".join(str(r[k]) for k in partition), r["__bucket"], r["__offset"], *(_plain(r[n]) for n in names))
        for r in read(client, table)
    ]
    twice = [row for row, count in Counter(map(repr, found)).items() if count > 1]
    assert not twice, f"rows that are there twice: {twice[:3]}"
    assert sorted(map(repr, found)) == sorted(map(repr, expected.values()))
    return len(found)


def _plain(value: Any) -> Any:
    """What engines spell differently, made one: maps as pairs, times without a zone's object."""
    if isinstance(value, dict):
        return sorted((k, _plain(v)) for k, v in value.items())
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    if hasattr(value, "tzinfo") and value.tzinfo is not None:
        return value.timestamp()
    return value
