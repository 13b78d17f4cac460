# SPDX-License-Identifier: Apache-2.0
"""S3 as Spark is told, and as Python is told: two sets of settings for one bucket."""

from __future__ import annotations

from collections.abc import Iterator

from lakeward.cli.doctor.diagnosis import Diagnosis, Level
from lakeward.cli.doctor.facts import Facts

_PAIRS = {
    "s3.endpoint": "spark.hadoop.fs.s3a.endpoint",
    "s3.region": "spark.hadoop.fs.s3a.endpoint.region",
}


def check(facts: Facts) -> Iterator[Diagnosis]:
    for ours, sparks in _PAIRS.items():
        python, spark = facts.lake_options.get(ours), facts.here.spark_settings.get(sparks)
        if python and spark and _plain(python) != _plain(spark):
            yield Diagnosis(
                check="storage",
                level=Level.WRONG,
                about="lake",
                figure=f"{ours} is {python}, {sparks} is {spark}",
                why="Rounds write through Python and Spark reads through Hadoop: one of them looks elsewhere.",
                mend=f"the same address in spark-defaults.conf ({sparks}) and lakeward.toml (datalake.iceberg.{ours})",
            )


def _plain(address: str) -> str:
    return address.lower().removeprefix("http://").removeprefix("https://").rstrip("/")
