# SPDX-License-Identifier: Apache-2.0
"""`verify` as Spark tasks gives the certificate that one process gives, right and tampered with; and the command's exit
code.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from pyiceberg.catalog import load_catalog

from lakeward.client import Client
from lakeward.protocol.codec import encode
from lakeward.verify import verify_table
from lakeward.verify.spark import spark_runner
from lakeward_testing.icebergforeign import IcebergForeignEngine
from tests.spark.processes import Job, Server, wait_tiered


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    server = Server(tmp_path_factory.mktemp("verify"))
    job = Job(server, "verify", spark=False)
    with server.connect() as made:
        log = made.create_table("v.log", "id BIGINT NOT NULL, name STRING", buckets=2, freshness="1 s")
        pk = made.create_table("v.pk", "id BIGINT NOT NULL, name STRING", primary_key="id", buckets=2, freshness="1 s")
        log.append([{"id": i, "name": f"n{i}"} for i in range(300)])
        pk.upsert([{"id": i, "name": f"n{i}"} for i in range(300)])
        pk.delete([{"id": 7}])
        wait_tiered(made, log, pk, state=job.text)
        job.kill()
        yield made
    server.stop()


@pytest.mark.spark
def test_spark_tasks_give_the_same_certificate(client: Client, spark: Any) -> None:
    for path, rows in (("v.log", 300), ("v.pk", 299)):
        table = client.table(path).info.path
        here = verify_table(client.plugin, table, deep=True)
        there = verify_table(client.plugin, table, deep=True, run=spark_runner("local[2]", client.plugin))
        assert replace(here, checked_at_ms=0) == replace(there, checked_at_ms=0)
        assert here.holds, here.all_findings
        assert (here.rows, sum(b.compared for b in here.buckets)) == (rows, rows)
    assert spark.range(3).count() == 3, "a session that ran before goes on"


@pytest.mark.soak
@pytest.mark.spark
def test_the_command_on_spark_names_a_row_that_another_engine_deleted(client: Client) -> None:
    path = client.table("v.log").info.path
    catalog = load_catalog("lake", type="rest", uri=f"{client.url}/iceberg")
    IcebergForeignEngine(catalog, path).delete("id = 11")
    here = verify_table(client.plugin, path, deep=True)
    command = [sys.executable, "-m", "lakeward.cli", "verify", "v.log", "--deep", "--spark", "local[2]", "--json"]
    done = subprocess.run([*command, "--server", client.url], capture_output=True, text=True, timeout=240)
    assert done.returncode == 1, done.stderr
    (told,) = json.loads(done.stdout)
    assert told["totals"]["gaps"] == 1
    assert told["holds"] is False
    assert {**told, "checked_at_ms": 0} == {
        **encode(replace(here, checked_at_ms=0)), "totals": here.totals, "verdict": "DOES NOT HOLD", "holds": False
    }  # fmt: skip
