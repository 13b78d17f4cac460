# SPDX-License-Identifier: Apache-2.0
"""A server and a job on PySpark 4 side by side with a job of pool hudi on PySpark 3.5: each has the tables of its pool.

Tables are Hudi's: rounds write them on any PySpark, and Hudi's own code reads them here. The first two live in the
environment of requirements.lock, .venv; this test and the pool's job in .venv-hudi.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from lakeward.client import Client
from lakeward_testing.waiting import wait_until
from tests.spark.processes import Job, Server, rounds, status, tier_now, wait_tiered

pytestmark = [
    pytest.mark.spark,
    pytest.mark.soak,
]

OTHER = Path(__file__).parents[2] / ".venv" / "bin" / "python"
POOL = {"LAKEWARD_TIERING__POOL": "hudi"}
START_S = 600.0
"""The start of Spark and a first round, on a machine that has much else to do."""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    made = Server(tmp_path, {"datalake.format": "hudi"}, python=str(OTHER))
    yield made
    made.stop()


@pytest.fixture
def client(server: Server) -> Iterator[Client]:
    with server.connect() as made:
        yield made


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    """`lakeward ...` where PySpark 4 is."""
    return subprocess.run(
        [str(OTHER), "-m", "lakeward.cli", *arguments],
        capture_output=True,
        text=True,
        check=False,
        env=dict(os.environ),
    )


def tiered_by(client: Client, table: str) -> set[str]:
    return {r["job"] for r in rounds(client, client.table(table))}


def rows(client: Client, table: str) -> list[tuple[int, str]]:
    found = client.read(table, mode="lake").to_table()
    return sorted(zip(found["id"].to_pylist(), found["v"].to_pylist(), strict=True))


def rows_by_hudi(spark: Any, server: Server, table: str) -> list[tuple[int, str]]:
    """As Hudi's own code reads the folder."""
    place = next(server.folder.glob(f"data/**/{table.replace('.', '/')}/.hoodie")).parent
    return sorted(map(tuple, spark.read.format("hudi").load(str(place)).select("id", "v").collect()))


def test_jobs_on_two_pysparks_have_the_tables_of_their_pools(server: Server, client: Client, spark: Any) -> None:
    of_pool = {"table.datalake.pool": "hudi"}
    plain = client.create_table("side.plain", "id bigint not null, v string", primary_key="id", freshness="1 h")
    table = client.create_table(
        "side.hudi", "id bigint not null, v string", primary_key="id", freshness="1 h", properties=of_pool
    )
    assert not status(client, table.path)["served"]
    first_rows = [(i, f"v{i}") for i in range(50)]
    for made in (plain, table):
        made.upsert([{"id": i, "v": v} for i, v in first_rows])

    refused = command("tier", "--server", server.url, "--pool", "hudi")
    assert refused.returncode == 2
    assert "pool hudi on PySpark 4." in refused.stderr
    assert "then hudi-pool/bin/lakeward tier --pool hudi" in refused.stderr

    with ExitStack() as jobs:
        everyone = Job(server, "everyone", python=str(OTHER))
        jobs.callback(everyone.kill)
        tier_now(client, plain, START_S)
        assert not status(client, table.path)["served"], "a job of another pool is none of its"
        doctor = command("doctor", "--server", server.url)
        assert "no live job serves pool hudi" in doctor.stdout
        assert "lakeward tier --pool hudi" in doctor.stdout
        assert "PySpark 3.5" in doctor.stdout

        first = Job(server, "pool", settings=POOL, python=sys.executable)
        jobs.callback(first.kill)
        wait_until(
            lambda: status(client, table.path)["served"], limit_s=START_S, what="the pool's job", state=first.text
        )
        tier_now(client, table, START_S)
        assert (tiered_by(client, "side.plain"), tiered_by(client, "side.hudi")) == ({"everyone"}, {"pool"})
        for name in ("side.plain", "side.hudi"):
            assert rows(client, name) == rows_by_hudi(spark, server, name) == first_rows

        first.kill()
        table.upsert([{"id": i, "v": "w"} for i in range(40, 60)])
        table.delete([{"id": 0}])
        wait_until(lambda: not status(client, table.path)["served"], limit_s=START_S, what="the job to be missed")
        again = Job(server, "pool", settings=POOL, python=sys.executable)
        jobs.callback(again.kill)
        tier_now(client, table, START_S)
        wait_tiered(client, table)
        last_rows = [*first_rows[1:40], *((i, "w") for i in range(40, 60))]
        assert rows(client, "side.hudi") == rows_by_hudi(spark, server, "side.hudi") == last_rows
        for job in (again, everyone):
            assert job.stop() == 0, job.text()[-3000:]
    agreed = command("verify", "side.hudi", "--deep", "--server", server.url)
    assert agreed.returncode == 0, agreed.stdout + agreed.stderr
