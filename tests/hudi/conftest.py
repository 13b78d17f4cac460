# SPDX-License-Identifier: Apache-2.0
"""Tests on PySpark 3.5 with Hudi's own code: `.ci/hudi` runs them, in .venv-hudi. Elsewhere this folder is empty."""

from __future__ import annotations

import gc
import importlib.metadata
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lakeward.lake.hudi.sparkbundle import SPARK, bundle_jar
from lakeward.tiering.job.session import SessionOptions, open_session

collect_ignore_glob = [] if importlib.metadata.version("pyspark").startswith(f"{SPARK}.") else ["test_*.py"]

# Py4J leaves sockets to the garbage collector, which comes by in whichever test runs then.
LEFT_SOCKETS = (
    "ignore:.*socket.socket.*:pytest.PytestUnraisableExceptionWarning",
    "ignore:.*unclosed <socket.*:ResourceWarning",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.parent == Path(__file__).parent:
            for words in LEFT_SOCKETS:
                item.add_marker(pytest.mark.filterwarnings(words))


FEW_ROWS = {
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.memory": "1g",
    "spark.python.daemon.module": "lakeward.spark.daemon",
}


@pytest.fixture(scope="package")
def session() -> Iterator[Any]:
    opened = open_session(SessionOptions(master="local[2]", archive=False, conf=FEW_ROWS, hudi=bundle_jar()))
    yield opened.spark
    opened.close()


@pytest.fixture(scope="module")
def spark(session: Any) -> Iterator[Any]:
    """Py4J leaves sockets to the garbage collector: it comes by while this module's tests ignore its warnings."""
    yield session
    gc.collect()
