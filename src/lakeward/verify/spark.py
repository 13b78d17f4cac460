# SPDX-License-Identifier: Apache-2.0
"""Runs bucket checks as Spark tasks, for tables too big for one process."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from lakeward.config.java import use_java
from lakeward.errors import LakewardError, from_wire, to_wire
from lakeward.model import Bucket, OffsetRange, SideName, TableInfo
from lakeward.protocol.codec import decode, encode
from lakeward.spi import HotPlugin, LogBounds, load_hot, load_lake
from lakeward.verify.bucket import check_bucket
from lakeward.verify.certificate import BucketReport
from lakeward.verify.table import BucketRunner
from lakeward.verify.task import BucketTask


def spark_runner(master: str, plugin: HotPlugin) -> BucketRunner:
    """One task per bucket on that master; executors open their own connections. A session that runs already is used,
    and stays.
    """

    def run(tasks: Sequence[BucketTask]) -> list[BucketReport]:
        if not tasks:
            return []
        lake_name, lake_options = plugin.lake_options(tasks[0].table, tasks[0].side)
        setting = {"hot": [plugin.name, dict(plugin.options)], "lake": [lake_name, dict(lake_options)]}
        orders = [json.dumps({**setting, "task": encode(task)}) for task in tasks]
        with _session(master) as spark:
            answers = spark.sparkContext.parallelize(orders, len(orders)).map(run_order).collect()
        return [_report(json.loads(a)) for a in answers]

    return run


@contextmanager
def _session(master: str) -> Iterator[Any]:
    from pyspark.sql import SparkSession

    running = SparkSession.getActiveSession()
    if running is not None:
        yield running
        return
    use_java()
    os.environ.setdefault(
        "PYSPARK_PYTHON", sys.executable
    )  # PySpark reads the workers' Python from the environment alone
    builder = SparkSession.builder.master(master).appName("lakeward verify").config("spark.ui.enabled", "false")
    if master.startswith("local"):
        builder = builder.config("spark.driver.host", "127.0.0.1").config("spark.driver.bindAddress", "127.0.0.1")
    spark = builder.getOrCreate()
    try:
        yield spark
    finally:
        spark.stop()


def run_order(order: str) -> str:
    """In a Python worker: one bucket, in and out as JSON. An error is returned: raised, it would reach the driver as
    text only.
    """
    body = json.loads(order)
    task = _task(body["task"])
    store = load_hot(*body["hot"]).store()
    try:
        lake = load_lake(*body["lake"]).open_reader(task.lake_table)
        return json.dumps({"report": encode(check_bucket(task, store, lake))})
    except LakewardError as error:
        return json.dumps({"error": to_wire(error)})
    finally:
        store.close()


def _report(answer: dict[str, Any]) -> BucketReport:
    if "error" in answer:
        raise from_wire(answer["error"])
    return decode(BucketReport, answer["report"])


def _task(body: dict[str, Any]) -> BucketTask:
    bounds = body["bounds"]
    return BucketTask(
        table=TableInfo.from_json(body["table"]),
        bucket=Bucket.parse(body["bucket"]),
        snapshot_id=body["snapshot_id"],
        committed=body["committed"],
        expected=tuple(OffsetRange(*pair) for pair in body["expected"]),
        bounds=None if bounds is None else LogBounds(**bounds),
        deep=body["deep"],
        mixed=body["mixed"],
        sample=body["sample"],
        seed=body["seed"],
        side=SideName.parse(body["side"]),
    )
