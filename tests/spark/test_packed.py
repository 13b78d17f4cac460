# SPDX-License-Identifier: Apache-2.0
"""The docs' recipe for a cluster that has nothing of ours installed: a packed environment sent along with the job."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.spark.cluster import Cluster
from tests.spark.processes import Job, Server, check_exactly_once, tier_now

pytestmark = [pytest.mark.soak, pytest.mark.spark]

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Base and `iceberg`, no Spark."""
    folder = tmp_path_factory.mktemp("packed")
    uv = shutil.which("uv") or str(Path(sys.executable).with_name("uv"))
    env, archive = folder / "env", folder / "lakeward-env.tar.gz"
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    subprocess.run([uv, "venv", "--relocatable", "--python", version, str(env)], check=True)
    subprocess.run([uv, "pip", "install", "--python", str(env / "bin" / "python"), f"{ROOT}[iceberg]"], check=True)
    assert subprocess.run([env / "bin" / "python", "-c", "import pyspark"], capture_output=True).returncode != 0
    subprocess.run(["tar", "czf", str(archive), "-C", str(env), "."], check=True)
    return archive


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """Its processes see none of this project's environment."""
    bare = {"PATH": "/usr/local/bin:/usr/bin:/bin", "PYTHONPATH": "", "VIRTUAL_ENV": "", "PYSPARK_PYTHON": ""}
    made = Cluster(tmp_path / "cluster", workers=1, environment=bare)
    yield made
    made.stop()


def test_a_packed_environment_is_all_that_executors_need(packed: Path, cluster: Cluster, server: Server) -> None:
    conf = {
        "spark.archives": f"{packed}#env",
        "spark.pyspark.python": "./env/bin/python",
        "spark.executor.memory": "512m",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
    }
    job = Job(server, "packed", master=cluster.master, conf=conf)
    try:
        with server.connect() as client:
            table = client.create_table("packed.t", "id BIGINT, name STRING", primary_key="id", freshness="1 h")
            table.upsert([{"id": i, "name": f"n{i}"} for i in range(100)])
            tier_now(client, table, 180)
            table.delete([{"id": 3}])
            tier_now(client, table)
            assert check_exactly_once(client, table) == 99
        assert job.stop() == 0, job.text()[-2000:]
    finally:
        job.kill()
    assert os.environ.get("PYSPARK_PYTHON") != "./env/bin/python"
