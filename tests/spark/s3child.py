# SPDX-License-Identifier: Apache-2.0
"""Union reads in a Spark of its own with hadoop-aws on the class path: `python -m tests.spark.s3child SERVER S3 OUT`.

What it read goes to OUT as JSON: rows of both tables, the files that Spark scanned itself, and what the read said."""

from __future__ import annotations

import json
import logging
import sys
from pathlib import Path
from typing import Any

import lakeward.spark
from lakeward.tiering.job.session import SessionOptions, open_session
from tests.spark.hadoopaws import load_jars


def settings(endpoint: str) -> dict[str, str]:
    return {
        "spark.jars": ",".join(map(str, load_jars())),
        "spark.hadoop.fs.s3a.endpoint": endpoint,
        "spark.hadoop.fs.s3a.endpoint.region": "us-east-1",
        "spark.hadoop.fs.s3a.path.style.access": "true",
    }


def read(spark: Any, server: str, table: str, **options: Any) -> dict[str, Any]:
    frame = lakeward.spark.read(spark, table, server=server, **options)
    plan = frame._jdf.queryExecution().executedPlan().toString()
    return {
        "rows": sorted([list(r) for r in frame.collect()]),
        "scans": plan.count("FileScan parquet"),
        "files": list(frame.inputFiles()),
    }


def main() -> None:
    server, endpoint, out = sys.argv[1:4]
    said: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: said.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("lakeward.read").addHandler(handler)
    spark = open_session(SessionOptions(master="local[2]", archive=False, conf=settings(endpoint))).spark
    found = {
        "state": read(spark, server, "db.state"),
        "log": read(spark, server, "db.log"),
        "few": read(spark, server, "db.log", filter=[("id", ">=", 60)]),
        "said": said,
    }
    Path(out).write_text(json.dumps(found))
    spark.stop()


if __name__ == "__main__":
    main()
