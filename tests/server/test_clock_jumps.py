# SPDX-License-Identifier: Apache-2.0
"""The server's wall clock jumps a day forth and back under leases, rounds and TTL: leases are timed by another clock,
and rows that are not in the lake yet stay."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lakeward.cli import app
from lakeward.client import Client, connect
from lakeward.errors import LakewardError
from lakeward_testing.chaos.switches import CLOCK, Switches
from lakeward_testing.ports import free_port
from lakeward_testing.waiting import wait_until
from tests.kit.advice import wait_for_job
from tests.spark.processes import Job, Process, tier_now

DAY_MS = 86_400_000
LOG, PK = "time.log", "time.pk"
SETTINGS = {
    "datalake.format": "iceberg",
    "coordinator.tick": "50 ms",
    "coordinator.heartbeat.interval": "300 ms",
    "coordinator.lease.duration": "3 s",
    "log.segment.file-size": "4kb",
    "log.retention.check-interval": "100 ms",
}


class Stepped:
    """A server whose wall clock is set by a switch, and a job on threads."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.switches = folder, Switches(folder / "switches")
        port, ready = free_port(), folder / "ready"
        self.url = f"http://127.0.0.1:{port}"
        place = {
            "server.data-dir": str(folder / "data"),
            "server.port": str(port),
            "server.flight-port": str(free_port()),
        }
        given = [str(self.switches.folder), str(ready), *(f"{k}={v}" for k, v in {**place, **SETTINGS}.items())]
        self.process = Process(["-m", "lakeward_testing.chaos.serverprocess", *given], folder / "server.log", {})
        wait_until(ready.exists, what="the server's start", state=self.process.text)
        self.job = Job(self, "hand", spark=False)
        wait_for_job(self, self.job)

    def jump(self, ms: int) -> None:
        self.switches.turn(CLOCK, str(ms))

    def close(self) -> None:
        self.job.kill()
        self.process.kill()


@pytest.fixture
def stepped(tmp_path: Path) -> Iterator[Stepped]:
    stepped = Stepped(tmp_path)
    yield stepped
    stepped.close()


def write(client: Client, first: int) -> None:
    rows = [{"id": n, "words": "w" * 100} for n in range(first, first + 100)]
    client.table(LOG).append(rows)
    client.table(PK).upsert(rows)


def ids(client: Client, path: str) -> list[int]:
    return sorted(client.read(path).to_table()["id"].to_pylist())


def test_a_day_forth_and_back(stepped: Stepped, capsys: pytest.CaptureFixture[str]) -> None:
    columns, ttl = "id bigint not null, words string", {"table.log.ttl": "2 h"}
    with connect(stepped.url) as client:
        client.create_table(LOG, columns, freshness="1 h", buckets=1, properties=ttl)
        client.create_table(PK, columns, primary_key="id", freshness="1 h", buckets=1, properties=ttl)
        stored = 0
        for offset in (0, DAY_MS, 0, -DAY_MS, 0):
            stepped.jump(offset)
            write(client, stored)
            stored += 100
            assert ids(client, LOG) == ids(client, PK) == list(range(stored)), offset
            for path in (LOG, PK):
                try_tier(client, path)
            assert ids(client, LOG) == ids(client, PK) == list(range(stored)), offset
            assert [j["name"] for j in client.server.ask("GET", "/api/v1/jobs")["jobs"] if j["live"]] == ["hand"]
        with client.read(PK) as result:
            stepped.jump(DAY_MS)
            client.table(PK).upsert([{"id": 0, "words": "new"}])
            assert result.to_table().num_rows == stored
        stepped.jump(0)
        for path in (LOG, PK):
            assert app.run(["verify", path, "--deep", "--server", stepped.url]) == 0, capsys.readouterr()
        assert app.run(["status", "--server", stepped.url]) == 0, capsys.readouterr().out


def try_tier(client: Client, path: str) -> None:
    """A round in work when the clock jumped may fail once; another goes on."""

    def is_in() -> bool:
        try:
            tier_now(client, client.table(path))
        except LakewardError:
            return False
        return True

    wait_until(is_in, what=f"{path} to be in the lake", limit_s=60, poll_s=0.2)
