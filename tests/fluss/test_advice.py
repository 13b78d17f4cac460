# SPDX-License-Identifier: Apache-2.0
"""Commands that are recommended for the tables of a cluster: each situation is brought about, and the printed command
is run until the situation is gone. tests/advice.md lists them."""

from __future__ import annotations

import json
import re
import shlex
import signal
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest

from lakeward.cli import app
from lakeward.protocol.heartbeat import TableFinished
from lakeward_testing.ports import free_port
from lakeward_testing.waiting import wait_until
from tests.fluss.ondemand import OnDemand
from tests.fluss.steps import DATABASE, EVENTS, USERS, Append, Delete, MakeTable, Upsert, events
from tests.fluss.world import FlussWorld
from tests.kit.advice import commands_of
from tests.spark.processes import Process

pytestmark = [pytest.mark.fluss, pytest.mark.soak]

LOG, PK = f"{DATABASE}.advised", f"{DATABASE}.advised_pk"
LIMIT_S = 240.0


class Cluster:
    """Someone who knows the printed words alone."""

    def __init__(self, world: FlussWorld, capsys: pytest.CaptureFixture[str], folder: Path) -> None:
        self.world, self.address, self._capsys, self._folder = world, world.cluster.bootstrap, capsys, folder

    def call(self, *arguments: str) -> tuple[int, str]:
        code = app.run(arguments)
        printed = self._capsys.readouterr()
        return code, printed.out + printed.err

    def works(self, command: str) -> str:
        program, *arguments = shlex.split(command)
        assert program == "lakeward"
        code, printed = self.call(*arguments)
        assert code == 0, printed
        return printed

    def mend(self, check: str, table: str) -> str | None:
        found: list[dict[str, Any]] = json.loads(self.call("doctor", "--fluss", self.address, "--json")[1])["findings"]
        return next((str(f["mend"]) for f in found if (f["check"], f["about"]) == (check, table)), None)

    def wait_mend(self, check: str, table: str) -> str:
        return str(
            wait_until(lambda: self.mend(check, table), limit_s=LIMIT_S, poll_s=1.0, what=f"the finding {check}")
        )

    def start(self, command: str) -> Process:
        program, *arguments = shlex.split(command)
        assert program == "lakeward"
        log = self._folder / f"{arguments[0]}.log"
        return Process(["-m", "lakeward.cli", *arguments], log, {}, sys.executable)


@pytest.fixture
def cluster(lone: FlussWorld, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Cluster:
    return Cluster(lone, capsys, tmp_path)


def test_a_cluster_without_a_job_gets_one(cluster: Cluster) -> None:
    """A table is late and no job has committed: the advised job, on Spark, ends that. Stopped again, the table is late
    once more: then the advice is one round."""
    world = cluster.world
    world.produce(
        MakeTable(name="advised", schema=EVENTS, buckets=1, freshness="1s"),
        Append(table="advised", rows=events(0, 10)),
    )
    command = cluster.wait_mend("freshness", LOG)
    assert command in cluster.call("jobs", "--fluss", cluster.address)[1]
    job = cluster.start(command)
    try:
        wait_until(lambda: cluster.mend("freshness", LOG) is None, limit_s=LIMIT_S, what="the round", state=job.text)
        assert LOG in cluster.works(f"lakeward jobs --fluss {cluster.address} --json")
    finally:
        job.send(signal.SIGTERM)
        job.wait()
        job.kill()
    world.produce(Append(table="advised", rows=events(10, 25)))
    command = cluster.wait_mend("freshness", LOG)
    assert command.startswith(f"lakeward tier-now {LOG}")
    assert "is in the lake" in cluster.works(command)
    assert cluster.mend("freshness", LOG) is None
    assert len(world.rows("advised")) == 25

    code, refused = cluster.call("tier-now", f"{DATABASE}.typo", "--fluss", cluster.address)
    assert code != 0
    (status,) = commands_of(refused)
    assert LOG in cluster.works(f"lakeward {status}")


def test_many_delete_files_are_merged(cluster: Cluster) -> None:
    world, rounds = cluster.world, OnDemand(cluster.world)
    world.produce(
        MakeTable(name="advised_pk", schema=USERS, primary_key=("id",), buckets=1, freshness="1h"),
        Upsert(table="advised_pk", rows=[{"id": n, "name": "first"} for n in range(40)]),
    )
    try:
        assert isinstance(rounds.run("advised_pk"), TableFinished)
        for n in range(8):
            world.produce(Delete(table="advised_pk", keys=[{"id": n}]))
            assert isinstance(rounds.run("advised_pk"), TableFinished)
    finally:
        rounds.close()
    command = cluster.mend("deletes", PK)
    assert command is not None
    assert "became" in cluster.works(command)
    assert cluster.mend("deletes", PK) is None
    assert set(world.by_key("advised_pk")) == set(range(8, 40))


def test_a_lake_that_answers_again_is_verified(cluster: Cluster) -> None:
    world, rounds = cluster.world, OnDemand(cluster.world)
    world.produce(
        MakeTable(name="advised", schema=EVENTS, buckets=1, freshness="1h"),
        Append(table="advised", rows=events(0, 10)),
    )
    try:
        assert isinstance(rounds.run("advised"), TableFinished)
    finally:
        rounds.close()
    metadata = Path(world.metadata("advised").removeprefix("file:"))
    away = metadata.rename(metadata.with_suffix(".away"))
    command = cluster.wait_mend("lake", LOG).removeprefix("once the lake answers: ")
    assert "unreadable" in cluster.call("status", "--fluss", cluster.address)[1]
    assert cluster.call(*shlex.split(command)[1:])[0] != 0, "it does not answer yet"
    away.rename(metadata)
    assert "holds" in cluster.works(command)
    assert cluster.mend("lake", LOG) is None


def test_the_page_of_a_cluster_is_served_as_a_command(cluster: Cluster) -> None:
    """`lakeward console` without a cluster says which option is missing; with it the page answers, until it ends."""
    cluster.world.produce(MakeTable(name="advised", schema=EVENTS, buckets=1, freshness="1h"))
    code, refused = cluster.call("console")
    assert (code, "--fluss" in refused) == (2, True), refused
    console = cluster.start(f"lakeward console --fluss {cluster.address} --port {free_port()}")
    try:
        (url,) = wait_until(
            lambda: re.findall(r"is at (http\S+)", console.text()),
            limit_s=LIMIT_S,
            what="the page",
            tolerate=(FileNotFoundError,),
        )
        seen = httpx.get(f"{url}/api/v1/dashboard", timeout=120).json()
        assert LOG in [t["path"] for t in seen["tables"]]
        assert "live" in httpx.get(f"{url}/iceberg/v1/config", timeout=120).text
        console.send(signal.SIGTERM)
        assert console.wait() == 0
    finally:
        console.kill()
