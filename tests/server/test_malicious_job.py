# SPDX-License-Identifier: Apache-2.0
"""A job's token in the wrong hands. It reads what jobs read and may spoil the lake, but it changes no other job, makes
no backup, and a commit that it only claims is found and undone with every row there."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from lakeward.cli import app
from lakeward.client import Client
from lakeward.errors import Forbidden, LakewardError
from lakeward.model import Bucket, InstanceId, Intent, JobName, OffsetMap, OffsetRange, SnapshotId, new_round_id
from lakeward.protocol import routes
from lakeward.protocol.heartbeat import CommitReport, CommittedRange, HeartbeatRequest
from lakeward_testing.waiting import wait_until
from tests.kit.serverprocess import ServerProcess
from tests.spark.processes import Job

TABLE, B0 = "shop.t", Bucket("", 0)
SETTINGS = {
    "server.tokens": "boss:admin:boss-secret-0,thief:job:j1,hand:job:job-secret-2",
    "server.jobs.bound": "true",
    "datalake.format": "iceberg",
    "coordinator.tick": "50 ms",
    "coordinator.heartbeat.interval": "300 ms",
    "coordinator.lease.duration": "2 s",
}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    server = ServerProcess(tmp_path / "data", settings=SETTINGS)
    server.start()
    yield server
    server.close()


class Place:
    """What a job of tests.spark.processes asks of a server."""

    def __init__(self, server: ServerProcess, folder: Path) -> None:
        self.url, self.folder = server.url, folder


def fill(boss: Client) -> None:
    table = boss.create_table(TABLE, "id bigint not null", primary_key="id", freshness="500 ms", buckets=1)
    table.upsert([{"id": n} for n in range(10)])


def test_calls_that_a_job_may_not_make(server: ServerProcess) -> None:
    boss, thief = server.client(token="boss-secret-0"), server.client(token="j1")
    fill(boss)
    for method, path, body in (
        ("POST", routes.TABLES, {"path": "shop.u", "columns": []}),
        ("DELETE", routes.TABLE.format(table=TABLE), None),
        ("PATCH", routes.TABLE.format(table=TABLE), {"properties": {"table.log.ttl": "1 s"}}),
        ("POST", routes.PAUSE.format(table=TABLE), {}),
        ("POST", routes.RESYNC.format(table=TABLE), {"choice": "resync"}),
        ("POST", routes.REBUILD_LAKE.format(table=TABLE), {}),
        ("POST", routes.BACKUPS, {"target": str(server.data.parent / "stolen")}),
        ("POST", routes.TABLE_ROWS.format(table=TABLE), [{"id": 99}]),
    ):
        with pytest.raises(Forbidden):
            thief.server.ask(method, path, body)
    with pytest.raises(LakewardError):
        thief.table(TABLE).upsert([{"id": 99}])
    beat = HeartbeatRequest(job=JobName("hand"), instance=InstanceId("x"), room=4)
    with pytest.raises(Forbidden):
        thief.plugin.coordinator().heartbeat(beat)
    answer = httpx.get(f"{server.url}{routes.INFO}", headers={"authorization": "Bearer j1"})
    assert "job-secret-2" not in answer.text
    assert "boss-secret-0" not in answer.text


def test_a_commit_that_was_never_made(
    server: ServerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    boss = server.client(token="boss-secret-0")
    thief = server.client(token="j1").plugin.coordinator()
    fill(boss)
    me = HeartbeatRequest(job=JobName("thief"), instance=InstanceId("one"), room=1)
    (handed,) = wait_until(lambda: thief.heartbeat(me).tables, what="a table")
    round_id = new_round_id()
    intent = Intent(round_id=round_id, table_id=handed.table_id, prefix="../../", token=None, fence=0, recorded_at_ms=1)
    for prefix in ("", "/", "../../", "data/"):
        try:
            thief.record_intent(replace(intent, round_id=new_round_id(), prefix=prefix))
        except LakewardError:
            continue
    report = CommitReport(
        table_id=handed.table_id,
        round_id=round_id,
        snapshot_id=SnapshotId("1"),
        epoch=handed.epoch,
        job=me.job,
        instance=me.instance,
        offsets=OffsetMap({B0: 10}),
        ranges=(CommittedRange(bucket=B0, range=OffsetRange(0, 10), rows=10),),
    )
    beyond = CommittedRange(bucket=B0, range=OffsetRange(0, 10**12), rows=1)
    with pytest.raises(LakewardError):
        thief.commit(replace(report, offsets=OffsetMap({B0: 10**12}), ranges=(beyond,)))
    thief.commit(report)
    thief.heartbeat(replace(me, leaving=True))

    monkeypatch.setenv("LAKEWARD_TOKEN", "boss-secret-0")
    boss.table(TABLE).upsert([{"id": 10}])
    job = Job(Place(server, tmp_path), "hand", spark=False, settings={"LAKEWARD_TOKEN": "job-secret-2"})
    try:
        wait_until(
            lambda: "lake table" in status(boss) or "resync" in status(boss), what="the lie to be found", limit_s=60
        )
        assert app.run(["table", "resync", TABLE, "--wait", "100", "--server", server.url]) == 0, capsys.readouterr()
        assert sorted(boss.read(TABLE, mode="lake").to_table()["id"].to_pylist()) == list(range(11))
    finally:
        job.kill()
    assert (server.data / "warehouse").is_dir()


def status(boss: Client) -> str:
    (table,) = boss.server.ask("GET", routes.STATUS)["tables"]
    return str(table.get("reason") or "")
