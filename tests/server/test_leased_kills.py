# SPDX-License-Identifier: Apache-2.0
"""The server dies in a leased commit: before it, between the lake commit and its report. Every row is there once."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from random import Random

import httpx
import pytest

from lakeward.model import FAULTS_ENV, SideName
from lakeward.protocol import routes
from lakeward.verify import verify_table
from lakeward_testing.faults import Fault, FaultAction
from lakeward_testing.waiting import wait_until
from tests.kit.serverprocess import ServerProcess
from tests.server.test_sides import working

MOMENTS = ("catalog.before-report", "catalog.before-swap")
SEEDED = [(moment, seed) for moment in MOMENTS for seed in range(1, 8)]


@pytest.mark.parametrize(
    ("moment", "seed"), [SEEDED[0], *(pytest.param(*case, marks=pytest.mark.soak) for case in SEEDED[1:])]
)
def test_the_next_round_finds_what_is_in_the_lake(moment: str, seed: int, tmp_path: Path) -> None:
    random, killed = Random(f"{moment} {seed}"), tmp_path / "killed"
    has_key = random.random() < 0.5
    creations = MOMENTS.index(moment)  # creating the lake table passes the second moment
    hit = 1 + creations + random.randrange(4)
    kill = Fault(point=moment, action=FaultAction.KILL, hit=hit, once=str(killed))
    server = ServerProcess(tmp_path / "data", settings={"datalake.format": "iceberg"})
    server.environment = {FAULTS_ENV: kill.to_text()}
    try:
        client = server.start().client()
        table = client.create_table(
            "d.t", "id BIGINT NOT NULL, v STRING", primary_key="id" if has_key else (), freshness="1 s"
        )
        put, written = table.upsert if has_key else table.append, 0
        reported = 0

        def is_over() -> bool:
            return killed.exists() or _lake_rows(server) == written

        with working(server) as job:
            while not killed.exists():
                reported, count = written, random.randint(1, 50)
                put([{"id": written + n, "v": str(random.random())} for n in range(count)])
                written += count
                wait_until(is_over, tolerate=(httpx.TransportError,), state=server.last_words)
            assert server.process is not None
            server.process.wait(60)
            assert _rows_in_the_lake(tmp_path / "data") == (written if moment == MOMENTS[0] else reported)
            server.environment = {}
            server.restart()
            put([{"id": written, "v": "last"}])
            client.tier_now("d.t", limit_s=120)
            lake_rows = client.read("d.t", mode="lake").to_table()
            assert sorted(lake_rows["id"].to_pylist()) == list(range(written + 1))
            certificate = verify_table(job, table.info.path, deep=True, side=SideName("default"))
            assert (certificate.holds, certificate.rows) == (True, written + 1)
    finally:
        server.close()


def _rows_in_the_lake(data: Path) -> int:
    """By the catalog's file, as the server is down."""
    with closing(sqlite3.connect(next(data.rglob("catalog.db")))) as catalog:
        ((location,),) = catalog.execute("SELECT metadata_location FROM iceberg_tables")
    metadata = json.loads(Path(location.removeprefix("file://")).read_text())
    totals = {s["snapshot-id"]: int(s["summary"]["total-records"]) for s in metadata["snapshots"]}
    return totals.get(metadata.get("current-snapshot-id"), 0)


def _lake_rows(server: ServerProcess) -> int:
    status = httpx.get(server.url + routes.TABLE_STATUS.format(table="d.t"), timeout=60)
    return int(status.json()["lake_rows"] or 0)
