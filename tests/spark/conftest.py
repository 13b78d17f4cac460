# SPDX-License-Identifier: Apache-2.0
"""One Spark session for a worker, one server and one job shared by a module; tests make tables of their own."""

from __future__ import annotations

import gc
import importlib.util
from collections.abc import Iterator
from typing import Any

import pytest

import lakeward.spark
from lakeward.client import Client
from lakeward.tiering.job.session import SessionOptions, open_session
from tests.kit.iceberg.s3 import CREDENTIALS
from tests.spark.processes import Job, Server

HAS_DATA_SOURCES = importlib.util.find_spec("pyspark.sql.datasource") is not None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """On PySpark 3.5 (`.ci/hudi tests/spark/...`) nothing is known as `format("lakeward")`, which tests/hudi shows."""
    without = [item for item in items if item.get_closest_marker("datasource") and not HAS_DATA_SOURCES]
    if without:
        config.hook.pytest_deselected(items=without)
        items[:] = [item for item in items if item not in without]


FEW_ROWS = {
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
    "spark.sql.shuffle.partitions": "2",
    "spark.python.daemon.module": "lakeward.spark.daemon",
}
"""No query of a test lives long enough for Java's second compiler, or has rows for 200 tasks."""

SMALL_SPLITS = {"LAKEWARD_TIERING__SPLIT__TARGET_BYTES": "256 kb", "LAKEWARD_TIERING__SMALL_ROUND__BYTES": "64 kb"}
"""So that a few megabytes are a big round: cut into sub-splits, in a Spark job of its own."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    made = Server(tmp_path_factory.mktemp("server"))
    yield made
    made.stop()


@pytest.fixture(scope="module")
def job(server: Server) -> Iterator[Job]:
    made = Job(server, "shared", settings=SMALL_SPLITS)
    yield made
    code = made.stop()
    assert code == 0, made.text()[-3000:]


@pytest.fixture
def client(server: Server) -> Iterator[Client]:
    with server.connect() as made:
        yield made


@pytest.fixture(scope="package")
def session() -> Iterator[Any]:
    """Its Python workers may open the buckets of a test's S3 store: they have the environment of their JVM's start."""
    with pytest.MonkeyPatch.context() as environment:
        for name, value in CREDENTIALS.items():
            environment.setenv(name, value)
        opened = open_session(SessionOptions(master="local[2]", archive=False, conf=FEW_ROWS)).spark
    if HAS_DATA_SOURCES:
        lakeward.spark.register(opened)
    yield opened
    opened.stop()


@pytest.fixture(scope="module")
def spark(session: Any) -> Iterator[Any]:
    """Py4J leaves sockets to the garbage collector: it comes by while this module's tests ignore its warnings."""
    yield session
    gc.collect()
