# SPDX-License-Identifier: Apache-2.0
"""S3 settings of Spark and of Python: two sets of settings for one bucket."""

from __future__ import annotations

from collections.abc import Iterator

from lakeward.cli.doctor.diagnosis import Diagnosis, Level
from lakeward.cli.doctor.facts import Facts

_PAIRS = {
    "s3.endpoint": "spark.hadoop.fs.s3a.endpoint",
    "s3.region": "spark.hadoop.fs.s3a.endpoint.region",
    "s3.access-key-id": "spark.hadoop.fs.s3a.access.key",
}
_VIRTUAL, _PATH_STYLE = "s3.force-virtual-addressing", "spark.hadoop.fs.s3a.path.style.access"


def check(facts: Facts) -> Iterator[Diagnosis]:
    lake, spark = facts.lake_options, facts.here.spark_settings
    for ours, sparks in _PAIRS.items():
        if lake.get(ours) and spark.get(sparks) and _plain(lake[ours]) != _plain(spark[sparks]):
            yield _finding(
                f"{ours} is {_shown(ours, lake[ours])}, {sparks} is {_shown(sparks, spark[sparks])}", sparks, ours
            )
    has_own_address = lake.get("s3.endpoint") and spark.get(_PAIRS["s3.endpoint"])
    is_virtual, is_path = _is_true(lake.get(_VIRTUAL)), _is_true(spark.get(_PATH_STYLE))
    if has_own_address and is_virtual == is_path:
        figure = f"{_VIRTUAL} is {str(is_virtual).lower()}, {_PATH_STYLE} is {str(is_path).lower()}"
        yield _finding(figure, _PATH_STYLE, _VIRTUAL)


def _finding(figure: str, sparks: str, ours: str) -> Diagnosis:
    return Diagnosis(
        check="storage",
        level=Level.WRONG,
        about="lake",
        figure=figure,
        why="Rounds write through Python and Spark reads through Hadoop: one of them looks elsewhere.",
        mend=f"the same in spark-defaults.conf ({sparks}) and lakeward.toml (datalake.iceberg.{ours})",
    )


def _plain(address: str) -> str:
    return address.lower().removeprefix("http://").removeprefix("https://").rstrip("/")


def _shown(key: str, value: str) -> str:
    return f"{value[:4]}…" if "access" in key else value


def _is_true(value: str | None) -> bool:
    return (value or "").lower() == "true"
