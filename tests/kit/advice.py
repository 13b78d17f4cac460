# SPDX-License-Identifier: Apache-2.0
"""Runs the commands that messages recommend, as they are printed."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from lakeward.cli import app
from lakeward.client import Client, connect
from lakeward.lake.iceberg.plugin import IcebergLakeStorage, load
from lakeward.protocol.routes import JOBS
from lakeward_testing.waiting import wait_until
from tests.spark.processes import Job, Process, Server, Serving

COMMAND = re.compile(r"`lakeward ([^`]+)`")


def commands_of(text: str) -> list[str]:
    """What stands in backticks, without the program's name."""
    return COMMAND.findall(text)


class Operator:
    """Someone who knows the printed words alone: `call` runs a command, `follow` the one that a message names."""

    def __init__(self, server: Server, capsys: pytest.CaptureFixture[str]) -> None:
        self.server, self._capsys = server, capsys
        self.code, self.out, self.err = 0, "", ""

    def call(self, *arguments: str) -> str:
        """What it printed, on both streams."""
        self.code = app.run(arguments)
        self.out, self.err = self._capsys.readouterr()
        return self.out + self.err

    def fails(self, *arguments: str) -> str:
        printed = self.call(*arguments)
        assert self.code != 0, f"lakeward {shlex.join(arguments)}: {printed}"
        return printed

    def works(self, *arguments: str) -> str:
        printed = self.call(*arguments)
        assert self.code == 0, f"lakeward {shlex.join(arguments)}: {printed}"
        return printed

    def follow(self, text: str, begins: str, *yes: str) -> str:
        """Runs the recommended command that begins so, exactly as it is printed; `yes` answers its question."""
        named = [command for command in commands_of(text) if command.startswith(begins)]
        assert named, f"no `lakeward {begins}` in: {text}"
        return self.works(*shlex.split(named[0]), *yes)

    def findings(self, *arguments: str) -> list[dict[str, Any]]:
        app.run(["doctor", "--json", *arguments])
        found: list[dict[str, Any]] = json.loads(self._capsys.readouterr().out)["findings"]
        return found

    def mend_of(self, check: str, about: str, *arguments: str) -> str:
        """What the doctor recommends for it."""
        mends = [f["mend"] for f in self.findings(*arguments) if (f["check"], f["about"]) == (check, about)]
        assert len(mends) == 1, self.findings(*arguments)
        return str(mends[0])

    def is_well(self, check: str, about: str) -> bool:
        return not [f for f in self.findings() if (f["check"], f["about"]) == (check, about)]

    def tiles(self) -> dict[str, dict[str, Any]]:
        with self.server.connect() as client:
            return {t["key"]: t for t in client.server.ask("GET", "/api/v1/dashboard")["tiles"]}


@dataclass
class Served:
    """A server that a job is started for."""

    url: str
    folder: Path


def start_job(command: str, server: Serving) -> Process:
    """`lakeward tier ...` as it was recommended, on threads in place of Spark."""
    program, tier, *rest = shlex.split(command)
    assert (program, tier) == ("lakeward", "tier"), command
    given = dict(zip(rest[::2], rest[1::2], strict=True))
    assert given.keys() <= {"--name", "--pool", "--slots", "--server"}, command
    assert given.get("--server", server.url) == server.url
    settings = {"LAKEWARD_TIERING__POOL": given["--pool"]} if "--pool" in given else {}
    job = Job(
        server,
        given.get("--name", f"advised-{abs(hash(command)) % 10_000}"),
        slots=int(given.get("--slots", 4)),
        spark=False,
        settings=settings,
    )
    wait_for_job(server, job)
    return job


def wait_for_job(server: Serving, job: Job) -> None:
    with connect(server.url) as client:
        wait_until(
            lambda: any(j["live"] and j["name"] == job.name for j in client.server.ask("GET", JOBS)["jobs"]),
            what=f"job {job.name}",
            state=job.text,
        )


@contextmanager
def catalog_behind(server: Server) -> Iterator[IcebergLakeStorage]:
    """The server's Iceberg catalog, past the server: changes that it would refuse are possible there."""
    data: Path = server.folder / "data"
    uri = f"sqlite:///{data / 'iceberg' / 'catalog.db'}"
    storage = load({"type": "sql", "uri": uri, "warehouse": (data / "warehouse").as_uri()})
    try:
        yield storage
    finally:
        storage.connection.close()


def put(client: Client, name: str, *ids: int, tier: bool = False) -> None:
    table = client.table(name)
    rows = [{"id": i} for i in ids]
    table.upsert(rows) if table.info.descriptor.primary_key else table.append(rows)
    if tier:
        client.tier_now(name)
