# SPDX-License-Identifier: Apache-2.0
"""One round each on the older PySparks that are supported, in environments of their own."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from lakeward.client import Client
from tests.spark.processes import Job, Server, check_exactly_once, tier_now

pytestmark = [pytest.mark.soak, pytest.mark.spark]

ROOT = Path(__file__).parents[2]


def make_environment(folder: Path, spark: str) -> Path:
    uv = shutil.which("uv") or str(Path(sys.executable).with_name("uv"))
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    subprocess.run([uv, "venv", "--python", version, str(folder)], check=True)
    python = folder / "bin" / "python"
    subprocess.run(
        [uv, "pip", "install", "--python", str(python), f"{ROOT}[spark,iceberg]", f"pyspark=={spark}"], check=True
    )
    return python


@pytest.mark.parametrize("spark", ["3.5.*", "4.0.*", "4.1.*"])
def test_a_round_on(spark: str, server: Server, client: Client, tmp_path: Path) -> None:
    python = make_environment(tmp_path / "env", spark)
    name = spark.replace(".", "").replace("*", "")
    job = Job(server, f"spark{name}", python=str(python))
    try:
        table = client.create_table(f"versions.v{name}", "id BIGINT, name STRING", primary_key="id", freshness="1 h")
        table.upsert([{"id": i, "name": f"n{i}"} for i in range(100)])
        tier_now(client, table, 180)
        table.delete([{"id": 3}])
        tier_now(client, table)
        assert check_exactly_once(client, table) == 99
        assert job.stop() == 0, job.text()[-2000:]
    finally:
        job.kill()
