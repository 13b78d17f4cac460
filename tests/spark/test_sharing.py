# SPDX-License-Identifier: Apache-2.0
"""Several jobs, columns that appear in the middle of a round, shutdown, and a warehouse on S3."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lakeward.client import Client, Table
from lakeward.spi import load_lake
from lakeward_testing.faults import Fault, FaultAction
from lakeward_testing.ports import free_port
from lakeward_testing.waiting import wait_until
from tests.spark.processes import Job, Server, check_exactly_once, lake_snapshots, rounds, tier_now, wait_tiered


def some_rows(start: int, stop: int, name: str = "n") -> list[dict[str, Any]]:
    return [{"id": i, "name": f"{name}{i}"} for i in range(start, stop)]


@pytest.mark.soak
@pytest.mark.parametrize("spark", [False, pytest.param(True, marks=pytest.mark.spark)], ids=["threads", "spark"])
def test_two_jobs_share_ten_tables(server: Server, client: Client, spark: bool) -> None:
    tables = [client.create_table(f"share.t{n}_{spark}", "id BIGINT, name STRING", freshness="2 s") for n in range(10)]
    jobs = [Job(server, f"share{n}-{spark}", slots=3, spark=spark) for n in range(2)]
    try:
        for turn in range(2):
            for table in tables:
                table.append(some_rows(10 * turn, 10 * turn + 10))
            wait_tiered(client, *tables, state=lambda: "\n".join(j.text()[-2000:] for j in jobs))
        assert all(check_exactly_once(client, table) == 20 for table in tables)
        wait_until(lambda: all(rounds(client, t) for t in tables), what="every round's end")
        served = {r["job"] for table in tables for r in rounds(client, table)}
        assert served == {j.name for j in jobs}
    finally:
        for job in jobs:
            job.kill()


def paused_job(server: Server, folder: Path, point: str, name: str) -> tuple[Job, Fault]:
    pause = Fault(point=point, action=FaultAction.PAUSE, file=str(folder / "pause"))
    return Job(server, name, slots=1, spark=False, faults=pause.to_text()), pause


@pytest.mark.parametrize("point", ["round.planned", "round.before-lake-commit"])
def test_a_column_added_in_the_middle_of_a_round(point: str, server: Server, client: Client, tmp_path: Path) -> None:
    name = point.replace(".", "_").replace("-", "_")
    table = client.create_table(f"share.{name}", "id BIGINT, name STRING", freshness="1 s")
    table.append(some_rows(0, 10))
    job, pause = paused_job(server, tmp_path, point, name)
    try:
        pause.wait_reached(120)
        table = client.alter_table(table.path, add_columns="extra INT")
        table.append([{"id": 10, "name": "x", "extra": 7}])
        pause.release()
        wait_tiered(client, table, state=job.text)
        assert check_exactly_once(client, table) == 11
    finally:
        job.kill()


def test_sigterm_ends_running_rounds_and_gives_the_leases_back(server: Server, client: Client, tmp_path: Path) -> None:
    table = client.create_table("share.leaving", "id BIGINT, name STRING", freshness="1 s")
    table.append(some_rows(0, 10))
    job, pause = paused_job(server, tmp_path, "round.before-write", "leaving")
    try:
        pause.wait_reached(120)
        job.child.terminate()
        pause.release()
        assert job.wait(120) == 0, job.text()[-2000:]
        assert check_exactly_once(client, table) == 10
        assert len(lake_snapshots(client, table)) == 1
    finally:
        job.kill()


def test_force_finish_commits_prefixes_and_goes_on(server: Server, client: Client) -> None:
    limits = {"table.datalake.max-round-duration": "1 ms", "table.datalake.pool": "forced"}
    table = client.create_table("share.forced", "id BIGINT, name STRING", freshness="1 h", properties=limits)
    for n in range(6):
        table.append(some_rows(5_000 * n, 5_000 * n + 5_000))  # too many for two of them to travel as one batch
    job = Job(
        server,
        "forced",
        spark=False,
        settings={"LAKEWARD_TIERING__ROUND__MIN_WORK": "0 s", "LAKEWARD_TIERING__POOL": "forced"},
    )
    try:
        tier_now(client, table)
        wait_tiered(client, table, state=job.text)
        assert len(lake_snapshots(client, table)) > 1, "one round could not take all of it"
        assert check_exactly_once(client, table) == 30_000
        assert "force-finished" in {r["outcome"] for r in rounds(client, table)}
    finally:
        job.kill()


@pytest.fixture
def s3(tmp_path: Path) -> Iterator[dict[str, str]]:
    """An S3 of moto's in a process of its own; the bucket is there."""
    port = free_port()
    with (tmp_path / "s3.log").open("wb") as out:
        child = subprocess.Popen([sys.executable, "-m", "moto.server", "-p", str(port)], stdout=out, stderr=out)
    endpoint = f"http://127.0.0.1:{port}"
    keys = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_REGION": "us-east-1"}
    try:
        make_bucket(endpoint, keys)
        yield {"endpoint": endpoint, **keys}
    finally:
        child.kill()
        child.wait()


def make_bucket(endpoint: str, keys: dict[str, str]) -> None:
    import pyarrow.fs as fs

    store = fs.S3FileSystem(
        access_key=keys["AWS_ACCESS_KEY_ID"],
        secret_key=keys["AWS_SECRET_ACCESS_KEY"],
        endpoint_override=endpoint,
        region="us-east-1",
        allow_bucket_creation=True,
    )

    def made() -> bool:
        store.create_dir("lake")
        return True

    wait_until(made, what="the S3 server", tolerate=(OSError,))


def test_a_warehouse_on_s3(s3: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION"):
        monkeypatch.setenv(name, s3[name])
    server = Server(
        tmp_path / "server",
        {
            "datalake.iceberg.warehouse": "s3://lake/wh",
            "datalake.iceberg.s3.endpoint": s3["endpoint"],
            "datalake.iceberg.s3.region": "us-east-1",
        },
    )
    job = Job(server, "s3", slots=2, spark=False)
    try:
        with server.connect() as client:
            table = client.create_table("s3.t", "id BIGINT, name STRING", primary_key="id", freshness="1 h")
            table.upsert(some_rows(0, 50))
            tier_now(client, table)
            table.upsert(some_rows(10, 20, "u"))
            table.delete([{"id": 0}])
            tier_now(client, table)
            assert read_lake(client, table) == {0: None, 10: "u10", 49: "n49"}
    finally:
        job.kill()
        server.stop()
    assert os.environ["AWS_REGION"] == "us-east-1"


def read_lake(client: Client, table: Table) -> dict[int, str | None]:
    name, options = client.plugin.lake_options(table.info)
    reader = load_lake(name, options).open_reader(table.info)
    head = reader.load_base().head
    assert head is not None
    found = {r["id"]: r["name"] for batch in reader.scan(head) for r in batch.to_pylist()}
    assert len(found) == 49
    return {i: found.get(i) for i in (0, 10, 49)}
