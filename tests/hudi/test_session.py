# SPDX-License-Identifier: Apache-2.0
"""A session of pool hudi: Hudi's own code writes and reads in it, and ours reads what PySpark 3.5 lets it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import StructField, StructType

import lakeward.spark
from lakeward.errors import SparkUnsupported
from lakeward.model import TYPES, TimeType, to_arrow_type
from lakeward.read.spark.arrowframe import LOCAL_ROWS, arrow_frame
from lakeward.read.spark.schema import spark_type
from lakeward.read.spark.tailframe import spark_arrow_type

pytestmark = [
    pytest.mark.spark,
]


def test_hudi_writes_and_reads_in_a_session_of_the_pool(spark: Any, tmp_path: Path) -> None:
    options = {
        "hoodie.table.name": "t",
        "hoodie.datasource.write.recordkey.field": "id",
        "hoodie.datasource.write.precombine.field": "at",
        "hoodie.datasource.write.table.type": "MERGE_ON_READ",
        "hoodie.metadata.enable": "false",
        "hoodie.embed.timeline.server": "false",
    }
    place = str(tmp_path / "t")
    for rows in ([(1, "a", 1), (2, "b", 1)], [(2, "c", 2)]):
        frame = spark.createDataFrame(rows, "id bigint, v string, at bigint")
        frame.coalesce(1).write.format("hudi").options(**options).mode("append").save(place)
    found = spark.read.format("hudi").load(place).select("id", "v").collect()
    assert sorted(map(tuple, found)) == [(1, "a"), (2, "c")]


def test_arrow_rows_of_every_type_come_into_spark_as_they_are(spark: Any) -> None:
    """PySpark 3.5 reads the buffers by the schema that it is told, whatever they are."""
    kinds = {f"c{n}": row for n, row in enumerate(TYPES) if not isinstance(row.example, TimeType)}
    rows = max(len(row.values) for row in kinds.values()) + 1
    columns = {
        name: pa.array([*row.values, *[None] * (rows - len(row.values))], to_arrow_type(row.example)).cast(
            spark_arrow_type(to_arrow_type(row.example))
        )
        for name, row in kinds.items()
    }
    schema = StructType([StructField(name, spark_type(name, row.example)) for name, row in kinds.items()])
    frame = arrow_frame(spark, pa.table(columns), schema)
    found = pa.Table.from_batches(frame._collect_as_arrow())
    for name, column in columns.items():
        values = found[name].cast(column.type).to_pylist()
        assert repr(values) == repr(column.to_pylist()), str(kinds[name].example)


def test_many_arrow_rows_go_to_tasks_and_none_is_a_frame_too(spark: Any) -> None:
    count = LOCAL_ROWS * 3
    many = arrow_frame(spark, pa.table({"id": pa.array(range(count), pa.int64())}))
    assert many.rdd.getNumPartitions() == 2
    assert many.selectExpr("count(*)", "sum(id)").collect()[0] == (count, count * (count - 1) // 2)
    none = arrow_frame(spark, pa.table({"id": pa.array([], pa.int64())}), "id bigint not null")
    assert (none.count(), none.columns) == (0, ["id"])


def test_what_pyspark_3_has_no_way_for_is_refused_in_words(spark: Any) -> None:
    with pytest.raises(SparkUnsupported, match=r"format\('lakeward'\) on PySpark 3\.5.*lakeward\.spark\.read"):
        lakeward.spark.register(spark)
