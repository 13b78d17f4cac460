# SPDX-License-Identifier: Apache-2.0
"""A streaming query in a process of its own, to be killed: `python -m tests.spark.streamchild read|write SERVER TABLE
FOLDER`.

`read`: the table into Parquet files. `write`: Parquet files into the table; the first attempt of each task dies
half-way."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

import lakeward.spark
from lakeward.tiering.job.session import SessionOptions, open_session

DIES_AT = 30
"""Batches of ten rows, of fifty in a file."""


def die_once(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Passes rows on, more batches of them than a server remembers of a writer, then fails, but for tasks that are run
    again.
    """
    from pyspark import TaskContext

    attempt = TaskContext.get().attemptNumber()
    for number, batch in enumerate(batches):
        if attempt == 0 and number == DIES_AT:
            raise RuntimeError("a task that dies half-way")
        yield batch


def start(spark: Any, way: str, server: str, table: str, folder: Path) -> Any:
    if way == "read":
        source = spark.readStream.format("lakeward").option("server", server).option("max_rows", "400").load(table)
        sink = source.writeStream.format("parquet").option("path", str(folder / "out"))
        return (
            sink.option("checkpointLocation", str(folder / "check")).trigger(processingTime="200 milliseconds").start()
        )
    source = spark.readStream.schema("id long").option("maxFilesPerTrigger", "1").parquet(str(folder / "in"))
    sink = source.mapInArrow(die_once, "id long").writeStream.format("lakeward").option("server", server)
    return sink.option("checkpointLocation", str(folder / "check")).trigger(availableNow=True).start(table)


def main() -> None:
    way, server, table, folder = sys.argv[1:5]
    conf = {"spark.sql.execution.arrow.maxRecordsPerBatch": "10"}
    spark = open_session(SessionOptions(master="local[2,4]", archive=False, conf=conf)).spark
    lakeward.spark.register(spark)
    start(spark, way, server, table, Path(folder)).awaitTermination()


if __name__ == "__main__":
    main()
