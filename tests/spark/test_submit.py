# SPDX-License-Identifier: Apache-2.0
"""The packaged script under spark-submit: one round, then SIGTERM to the job, or to spark-submit's JVM."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator

import psutil
import pytest

from lakeward.client import Client
from lakeward.config.java import load_java
from lakeward.protocol import routes
from lakeward.tiering import submit
from lakeward_testing.waiting import wait_until
from tests.spark.cluster import SPARK_HOME, command_of
from tests.spark.processes import Process, Server, check_exactly_once, tier_now

pytestmark = [pytest.mark.soak, pytest.mark.spark]


@pytest.fixture
def submitted(server: Server) -> Iterator[Process]:
    environment = {"JAVA_HOME": str(load_java().home), "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    arguments = [
        "--master",
        "local[2,4]",
        str(submit.__file__),
        "--server",
        server.url,
        "--name",
        "submitted",
        "--slots",
        "2",
    ]
    made = Process(
        arguments, server.folder / "submitted.log", environment, python=str(SPARK_HOME / "bin" / "spark-submit")
    )
    yield made
    made.kill()


def driver_of(submitted: Process) -> psutil.Process:
    """The Python process that runs the script: a child of spark-submit's JVM."""
    below = psutil.Process(submitted.child.pid).children(recursive=True)
    return next(p for p in below if "submit.py" in " ".join(command_of(p)))


@pytest.mark.parametrize("victim", ["driver", "JVM"])
def test_a_round_under_spark_submit(victim: str, submitted: Process, client: Client) -> None:
    table = client.create_table(f"submit.{victim.lower()}", "id BIGINT, name STRING", primary_key="id", freshness="1 h")
    table.upsert([{"id": i, "name": f"n{i}"} for i in range(100)])
    tier_now(client, table)
    table.delete([{"id": 7}])
    tier_now(client, table)
    assert check_exactly_once(client, table) == 99
    driver = driver_of(submitted)
    if victim == "driver":
        driver.send_signal(signal.SIGTERM)
        assert submitted.wait(120) == 0, submitted.text()[-2000:]
    else:
        submitted.send(signal.SIGTERM)
        submitted.wait(120)
    wait_until(lambda: not driver.is_running(), what="the driver's end", state=submitted.text)
    live = {j["name"] for j in client.server.ask("GET", routes.JOBS)["jobs"] if j["live"]}
    assert "submitted" not in live, "it gave its leases back"
