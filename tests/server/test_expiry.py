# SPDX-License-Identifier: Apache-2.0
"""Snapshots leave with rounds' own commits, over HTTP and the REST catalog, and their files go; a killed server only
delays that.
"""

from __future__ import annotations

from pathlib import Path

from lakeward.client import Client
from lakeward.client.table import Table
from lakeward.protocol import routes
from lakeward_testing.waiting import wait_until
from tests.spark.processes import Job, Server, lake_snapshots, tier_now

PATH = "shop.state"
KEPT = {"iceberg.history.expire.max-snapshot-age-ms": "1", "iceberg.history.expire.min-snapshots-to-keep": "3"}


def versions(client: Client, table: Table) -> int:
    """How often the lake table was committed to."""
    path = table.info.path
    location: str = client.server.ask("GET", f"/iceberg/v1/namespaces/{path.database}/tables/{path.table}")[
        "metadata-location"
    ]
    return int(location.rpartition("/")[2].partition("-")[0])


def lists(server: Server) -> int:
    """Manifest lists in the warehouse: one for each snapshot whose files are still there."""
    return len(list((server.folder / "data" / "warehouse").rglob("metadata/lw-*-snap-*.avro")))


def test_rounds_expire_and_a_killed_server_deletes_later(tmp_path: Path) -> None:
    server = Server(tmp_path / "server", {"coordinator.maintenance.interval": "1 h"})
    job = Job(server, "job", spark=False)
    try:
        with server.connect() as client:
            table = client.create_table(
                PATH, "id BIGINT NOT NULL, n BIGINT", primary_key="id", freshness="1 h", properties=KEPT
            )
            before = versions(client, table)
            for n in range(8):
                table.upsert([{"id": 1, "n": n}])
                tier_now(client, table)
                assert len(lake_snapshots(client, table)) == min(n + 1, 3)
            assert versions(client, table) == before + 8, "a round is one commit, what it takes out included"
            assert lists(server) == 8, "files wait for upkeep"
        server.kill()
        server.settings["coordinator.maintenance.interval"] = "200 ms"
        server.start()
        wait_until(lambda: lists(server) == 3, what="the files of snapshots that went before the kill")
        with server.connect() as client:
            assert client.read(PATH, mode="lake").to_table().to_pylist() == [{"id": 1, "n": 7}]
            assert client.server.ask("GET", routes.TABLE_STATUS.format(table=PATH))["state"] != "Failed"
    finally:
        job.kill()
        server.kill()
