# SPDX-License-Identifier: Apache-2.0
"""Executors in other processes: a standalone cluster, one executor or Python worker killed in the middle of a round."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from lakeward.cli.sql.duckdblake import query_lake
from lakeward.client import Client
from lakeward_testing.faults import Fault, FaultAction
from lakeward_testing.waiting import wait_until
from tests.spark.cluster import Cluster
from tests.spark.processes import Job, Server, check_exactly_once, lake_snapshots, rounds, tier_now

pytestmark = [pytest.mark.soak, pytest.mark.spark]

ROWS = 400_000
SPLITS = {"LAKEWARD_TIERING__SPLIT__TARGET_BYTES": "512 kb", "LAKEWARD_TIERING__SMALL_ROUND__BYTES": "64 kb"}
CONF = {"spark.executor.memory": "512m", "spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    made = Cluster(tmp_path_factory.mktemp("cluster"))
    yield made
    made.stop()


@pytest.fixture
def cluster_job(server: Server, cluster: Cluster) -> Iterator[Job]:
    made = Job(server, "cluster", master=cluster.master, settings=SPLITS, conf=CONF)
    yield made
    made.kill()


def test_a_round_on_executors_of_other_processes(client: Client, cluster_job: Job) -> None:
    table = client.create_table("cluster.pk", "id BIGINT, name STRING", primary_key="id", buckets=2, freshness="1 h")
    table.upsert([{"id": i, "name": f"n{i}"} for i in range(100)])
    tier_now(client, table)
    table.upsert([{"id": i, "name": f"u{i}"} for i in range(50)])
    tier_now(client, table)
    assert check_exactly_once(client, table) == 100
    assert cluster_job.stop() == 0, cluster_job.text()[-2000:]  # its executors' cores are free for the next job


@pytest.mark.parametrize("victim", ["executor", "python worker"])
def test_a_round_completes_by_task_retry_alone(
    victim: str, server: Server, client: Client, cluster: Cluster, tmp_path: Path
) -> None:
    """Both executors are held in the middle of a split; one dies, and the other goes on."""
    name = victim.replace(" ", "_")
    table = client.create_table(f"cluster.{name}", "id BIGINT, name STRING", buckets=2, freshness="1 h")
    for at in range(0, ROWS, 50_000):
        table.append(pa.table({"id": range(at, at + 50_000), "name": [f"name-{i}" for i in range(50_000)]}))
    pause = Fault(point="split.batch", action=FaultAction.PAUSE, file=str(tmp_path / "pause"))
    job = Job(
        server,
        name,
        master=cluster.master,
        settings=SPLITS,
        conf={**CONF, "spark.executorEnv.LAKEWARD_FAULTS": pause.to_text()},
    )
    asking = threading.Thread(target=lambda: tier_now(client, table))
    try:
        asking.start()
        pause.wait_reached(120)
        victims = cluster.executors if victim == "executor" else cluster.python_workers
        wait_until(lambda: len(victims()) >= 2, what=victim, state=job.text)
        victims()[0].kill()
        pause.release()
        asking.join()
        (found,) = query_lake(client, table.path, "SELECT count(*) AS rows, count(DISTINCT id) AS ids FROM lake")
        assert found == {"rows": ROWS, "ids": ROWS}
        wait_until(lambda: rounds(client, table), what="the round's end")
        assert [r["outcome"] for r in rounds(client, table)] == ["done"]
        assert len(lake_snapshots(client, table)) == 1
        assert job.stop() == 0, job.text()[-2000:]
    finally:
        job.kill()
