# SPDX-License-Identifier: Apache-2.0
"""Arrow tables of the driver as DataFrames, without Spark taking them apart row by row on the driver."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyspark

LOCAL_ROWS = 5_000
"""Up to here Spark's local relation, which needs no task. It costs a microsecond a row when it is made and again in
every query, all on the driver: 100 k rows of seven columns took 110 ms to hand over and 250 to count, and 19 and 130 as
batches for tasks."""

TAKES_ARROW = int(pyspark.__version__.partition(".")[0]) >= 4
"""Whether `createDataFrame` knows Arrow tables. PySpark 3.5 has the way there, and opens it to pandas alone."""

_THRESHOLD = "spark.sql.execution.arrow.localRelationThreshold"


def arrow_frame(spark: Any, table: pa.Table, schema: Any | None = None) -> Any:
    """A DataFrame of these rows; big tables stay Arrow batches until tasks read them."""
    if table.num_rows <= LOCAL_ROWS:
        return _frame(spark, table, schema)
    before = spark.conf.get(_THRESHOLD)
    spark.conf.set(_THRESHOLD, "0b")
    try:
        return _frame(spark, table, schema)
    finally:
        spark.conf.set(_THRESHOLD, before)


def _frame(spark: Any, table: pa.Table, schema: Any | None) -> Any:
    if not TAKES_ARROW:
        return _frame_by_stream(spark, table, schema)
    return spark.createDataFrame(table, **({} if schema is None else {"schema": schema}))


def _frame_by_stream(spark: Any, table: pa.Table, schema: Any | None) -> Any:
    """Does what PySpark 3.5 does with a pandas frame once it is Arrow. The JVM reads buffers by the types of `schema`
    without checking them, so they are cast to exactly these."""
    from pyspark.sql import DataFrame
    from pyspark.sql.pandas.serializers import ArrowStreamSerializer
    from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

    spelled = spark.createDataFrame([], from_arrow_schema(table.schema) if schema is None else schema)
    if not table.num_rows:
        return spelled
    rows_per_task = max(LOCAL_ROWS, -(-table.num_rows // spark.sparkContext.defaultParallelism))
    batches = table.cast(to_arrow_schema(spelled.schema)).combine_chunks().to_batches(rows_per_task)
    jvm = spark._jvm
    stream = spark.sparkContext._serialize_to_jvm(
        batches, ArrowStreamSerializer(), jvm.PythonSQLUtils.readArrowStreamFromFile, jvm.ArrowIteratorServer
    )
    return DataFrame(jvm.PythonSQLUtils.toDataFrame(stream, spelled.schema.json(), spark._jsparkSession), spark)
