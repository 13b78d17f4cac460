# SPDX-License-Identifier: Apache-2.0
"""Arrow tables of the driver as DataFrames, without Spark taking them apart row by row on the driver."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

LOCAL_ROWS = 5_000
"""Up to here Spark's local relation, which needs no task. It costs a microsecond a row when it is made and again in
every query, all on the driver: 100 k rows of seven columns took 110 ms to hand over and 250 to count, and 19 and 130 as
batches for tasks."""

_THRESHOLD = "spark.sql.execution.arrow.localRelationThreshold"


def arrow_frame(spark: Any, table: pa.Table, schema: Any | None = None) -> Any:
    """A DataFrame of these rows; big tables stay Arrow batches until tasks read them."""
    schema_argument = {} if schema is None else {"schema": schema}
    if table.num_rows <= LOCAL_ROWS:
        return spark.createDataFrame(table, **schema_argument)
    before = spark.conf.get(_THRESHOLD)
    spark.conf.set(_THRESHOLD, "0b")
    try:
        return spark.createDataFrame(table, **schema_argument)
    finally:
        spark.conf.set(_THRESHOLD, before)
