# SPDX-License-Identifier: Apache-2.0
"""Union reads of a warehouse on S3: by Spark itself where hadoop-aws is on its class path, else by pyarrow in Python
workers.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import lakeward.spark
from tests.kit.iceberg.s3 import S3Store, s3_store
from tests.spark.processes import Job, Process, Server, tier_now

pytestmark = [
    pytest.mark.spark,
    # Py4J leaves sockets to the garbage collector.
    pytest.mark.filterwarnings("ignore:.*socket.socket.*:pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore:.*unclosed <socket.*:ResourceWarning"),
    # mapInArrow looks for pandas, and warns of its version where it is installed.
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning"),
]

Rows = list[list[Any]]
STATE: Rows = sorted(
    [*([i, "first"] for i in range(10, 40)), *([i, "second"] for i in range(5)), *([i, "tail"] for i in range(5, 8))]
)
LOG: Rows = [[i, f"{i}"] for i in range(70)]


@pytest.fixture(scope="module")
def store() -> Iterator[S3Store]:
    with s3_store() as made, pytest.MonkeyPatch.context() as environment:
        for name, value in made.environment.items():
            environment.setenv(name, value)
        yield made


@pytest.fixture(scope="module")
def server(store: S3Store, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Two tables with history in the bucket and a hot tail on top; the PK table's lake has deletes."""
    settings = {
        f"datalake.iceberg.{key}": value for key, value in {**store.options, "warehouse": store.new_bucket()}.items()
    }
    made = Server(tmp_path_factory.mktemp("server"), settings)
    job = Job(made, "threads", spark=False)
    with made.connect() as client:
        state = client.create_table(
            "db.state", "id bigint not null, v string", primary_key="id", buckets=2, freshness="5 min"
        )
        log = client.create_table("db.log", "id bigint not null, v string", buckets=2, freshness="5 min")
        state.upsert([{"id": i, "v": "first"} for i in range(40)])
        log.append([{"id": i, "v": f"{i}"} for i in range(50)])
        tier_now(client, state)
        tier_now(client, log)
        state.upsert([{"id": i, "v": "second"} for i in range(5)])
        tier_now(client, state)
        state.upsert([{"id": i, "v": "tail"} for i in range(5, 8)])
        state.delete([{"id": 8}, {"id": 9}])
        log.append([{"id": i, "v": f"{i}"} for i in range(50, 70)])
    job.kill()
    yield made
    made.stop()


def listed(frame: Any) -> Rows:
    return sorted(list(r) for r in frame.collect())


@pytest.mark.soak
@pytest.mark.datasource
def test_without_hadoop_aws_python_workers_read_the_bucket_and_say_so(
    spark: Any, server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        state = lakeward.spark.read(spark, "db.state", server=server.url)
    assert "db.state goes through Python workers" in caplog.text
    assert "hadoop-aws" in caplog.text
    assert listed(state) == STATE
    assert listed(lakeward.spark.read(spark, "db.log", server=server.url)) == LOG
    few = lakeward.spark.read(spark, "db.log", server=server.url, filter=[("id", ">=", 45), ("v", "!=", "46")])
    assert listed(few) == [row for row in LOG if row[0] >= 45 and row[0] != 46]
    named = spark.read.format("lakeward").option("server", server.url).load("db.state")
    assert listed(named.filter("id < 12")) == [row for row in STATE if row[0] < 12]
    with server.connect() as client:
        assert sorted(map(list, zip(*client.read("db.state").to_table().to_pydict().values(), strict=True))) == STATE


@pytest.mark.soak
def test_with_hadoop_aws_spark_scans_the_bucket_itself(server: Server, store: S3Store, tmp_path: Path) -> None:
    out = tmp_path / "found.json"
    child = Process(["-m", "tests.spark.s3child", server.url, store.endpoint, str(out)], tmp_path / "child.log", {})
    try:
        assert child.wait(400) == 0, child.text()[-3000:]
    finally:
        child.kill()
    found = json.loads(out.read_text())
    assert (found["state"]["rows"], found["log"]["rows"], found["few"]["rows"]) == (STATE, LOG, LOG[60:])
    for name in ("state", "log"):
        assert found[name]["scans"] >= 1
        assert found[name]["files"]
        assert all(file.startswith("s3a://lake-") for file in found[name]["files"])
    assert found["said"] == [], "nothing to complain about"
