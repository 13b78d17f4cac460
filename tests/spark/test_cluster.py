# SPDX-License-Identifier: Apache-2.0
"""Executors in other processes: a standalone cluster, one executor or Python worker killed in the middle of a round."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from lakeward.cli.duckdblake import query_lake
from lakeward.client import Client
from lakeward.testing.waiting import wait_until
from tests.spark.cluster import Cluster
from tests.spark.processes import Job, Server, check_exactly_once, lake_snapshots, rounds, tier_now, wait_tiered

pytestmark = [pytest.mark.soak, pytest.mark.spark]

ROWS = 400_000
SPLITS = {"LAKEWARD_TIERING__SPLIT__TARGET_BYTES": "512 kb", "LAKEWARD_TIERING__SMALL_ROUND__BYTES": "64 kb"}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    made = Cluster(tmp_path_factory.mktemp("cluster"))
    yield made
    made.stop()


@pytest.fixture(scope="module")
def cluster_job(server: Server, cluster: Cluster) -> Iterator[Job]:
    conf = {"spark.executor.memory": "512m", "spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    made = Job(server, "cluster", master=cluster.master, settings=SPLITS, conf=conf)
    yield made
    assert made.stop() == 0, made.text()[-2000:]


def test_a_round_on_executors_of_other_processes(client: Client, cluster_job: Job) -> None:
    table = client.create_table("cluster.pk", "id BIGINT, name STRING", primary_key="id", buckets=2, freshness="1 h")
    table.upsert([{"id": i, "name": f"n{i}"} for i in range(100)])
    tier_now(client, table)
    table.upsert([{"id": i, "name": f"u{i}"} for i in range(50)])
    tier_now(client, table)
    assert check_exactly_once(client, table) == 100


@pytest.mark.parametrize("victim", ["executor", "python worker"])
def test_a_round_completes_by_task_retry_alone(victim: str, client: Client, cluster: Cluster, cluster_job: Job, tmp_path: Path) -> None:
    name = victim.replace(" ", "_")
    table = client.create_table(f"cluster.{name}", "id BIGINT, name STRING", buckets=2, freshness="1 s")
    for at in range(0, ROWS, 50_000):
        table.append(pa.table({"id": range(at, at + 50_000), "name": [f"name-{i}" for i in range(50_000)]}))
    victims = cluster.executors if victim == "executor" else cluster.python_workers
    wait_until(lambda: victims(), limit_s=60, what=victim, state=cluster_job.text)
    victims()[0].kill()
    wait_tiered(client, table, state=cluster_job.text)
    (found,) = query_lake(client, table.path, "SELECT count(*) AS rows, count(DISTINCT id) AS ids FROM lake")
    assert found == {"rows": ROWS, "ids": ROWS}
    wait_until(lambda: rounds(client, table), what="the round's end")
    assert {r["outcome"] for r in rounds(client, table)} <= {"done", "force-finished"}
    assert lake_snapshots(client, table)
