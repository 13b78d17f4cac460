# SPDX-License-Identifier: Apache-2.0
"""Runs bucket checks as Spark tasks, for tables too big for one process."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from lakeward.model.bucket import Bucket
from lakeward.model.offsets import OffsetRange
from lakeward.model.table import TableInfo
from lakeward.protocol.codec import decode, encode
from lakeward.spi.hot import HotPlugin, LogBounds
from lakeward.spi.registry import load_hot, load_lake
from lakeward.verify.bucket import BucketTask, check_bucket
from lakeward.verify.certificate import BucketReport
from lakeward.verify.table import BucketRunner


def spark_runner(master: str, plugin: HotPlugin) -> BucketRunner:
    """One task per bucket on that master; executors open their own connections."""
    from pyspark.sql import SparkSession

    def run(tasks: Sequence[BucketTask]) -> list[BucketReport]:
        if not tasks:
            return []
        lake_name, lake_options = plugin.lake_options(tasks[0].table)
        setting = {"hot": [plugin.name, dict(plugin.options)], "lake": [lake_name, dict(lake_options)]}
        orders = [json.dumps({**setting, "task": encode(task)}) for task in tasks]
        spark = SparkSession.builder.master(master).appName("lakeward verify").config("spark.ui.enabled", "false").getOrCreate()
        try:
            answers = spark.sparkContext.parallelize(orders, len(orders)).map(run_order).collect()
        finally:
            spark.stop()
        return [decode(BucketReport, json.loads(a)) for a in answers]

    return run


def run_order(order: str) -> str:
    """In a Python worker: one bucket, in and out as JSON."""
    body = json.loads(order)
    task = _task(body["task"])
    store = load_hot(*body["hot"]).store()
    try:
        lake = load_lake(*body["lake"]).open_reader(task.table)
        return json.dumps(encode(check_bucket(task, store, lake)))
    finally:
        store.close()


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
    )
