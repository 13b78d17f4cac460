# SPDX-License-Identifier: Apache-2.0
"""The oracle with Hudi on Spark as a reader beside hudi-rs, and its services as the other engine."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from lakeward.lake.hudi.plugin import open_lake
from lakeward.model import TablePath
from lakeward_testing.oracle.engines.base import Effect, Engines, Target
from lakeward_testing.oracle.run import OracleOptions, run_oracle
from tests.hudi.engine import LOCKED

pytestmark = [
    # Py4J leaves its sockets to the garbage collector.
    pytest.mark.filterwarnings("ignore:.*socket.socket.*:pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore:.*unclosed <socket.*:ResourceWarning"),
]
MINUTES = 2
EAGER = {"hoodie.compact.inline.max.delta.commits": "1"}


def add_hudi_spark(spark: Any, engines: Engines) -> None:
    """Rows cross by Parquet files: PySpark 3.5 gives no Arrow table."""
    copies = iter(range(1_000_000))

    def root(path: str) -> str:
        return open_lake({"warehouse": str(engines.warehouse)}).table(TablePath.parse(path)).root

    def read(path: str) -> pa.Table:
        copied = engines.warehouse.parent / f"copy{next(copies)}"
        spark.catalog.clearCache()
        spark.read.format("hudi").load(root(path)).write.parquet(str(copied))
        return pq.read_table(copied)

    def compact(target: Target, chance: Random) -> None:
        if target.is_pk:
            options = ",".join(f"{k}={v}" for k, v in (LOCKED | EAGER).items())
            arguments = f"op => 'scheduleandexecute', path => '{root(target.path)}', options => '{options}'"
            spark.sql(f"CALL run_compaction({arguments})").collect()

    engines.hurt = (*engines.hurt, PySparkException, Py4JError)
    engines.read["Hudi on Spark"] = read
    engines.add(Effect.KEEPS, Hudi_on_Spark_compacts=compact)


@pytest.mark.soak
def test_hudi_on_spark_reads_what_was_written(spark: Any, tmp_path: Path, pytestconfig: pytest.Config) -> None:
    lines: list[str] = []
    options = OracleOptions(seed=pytestconfig.getoption("oracle_seed"), seconds=60 * MINUTES, format="hudi")
    report = run_oracle(tmp_path / "lab", options, lines.append, partial(add_hudi_spark, spark))
    assert not report.difference, "\n".join([*lines, report.replay])
    assert report.readers["Hudi on Spark"] > 0
