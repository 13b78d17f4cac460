# SPDX-License-Identifier: Apache-2.0
"""Spark Structured Streaming into Java Iceberg, in an environment of its own: `python streaming_peer.py JAR SOURCE WAREHOUSE`.

Reads a folder of Parquet files, writes an Iceberg table of four buckets, prints the seconds as JSON. Nothing of ours is importable."""

import json
import sys
import time

from pyspark.sql import SparkSession


def main(jar: str, source: str, warehouse: str) -> None:
    settings = {
        "spark.jars": jar,
        "spark.ui.enabled": "false",
        "spark.driver.memory": "3g",
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.lake.type": "hadoop",
        "spark.sql.catalog.lake.warehouse": warehouse,
    }
    builder = SparkSession.builder.master("local[2]")
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    schema = spark.read.parquet(source).schema
    columns = ", ".join(f"{f.name} {f.dataType.simpleString()}" for f in schema.fields)
    spark.sql("CREATE NAMESPACE IF NOT EXISTS lake.db")
    spark.sql(
        f"CREATE TABLE lake.db.t ({columns}) USING iceberg PARTITIONED BY (bucket(4, l_orderkey)) "
        "TBLPROPERTIES ('write.parquet.compression-codec'='zstd', 'write.distribution-mode'='hash')"
    )
    began = time.perf_counter()
    frame = spark.readStream.schema(schema).option("maxFilesPerTrigger", 50).parquet(source)
    query = frame.writeStream.format("iceberg").trigger(availableNow=True).option("checkpointLocation", warehouse + "/checkpoint")
    query.toTable("lake.db.t").awaitTermination()
    seconds = time.perf_counter() - began
    print(json.dumps({"seconds": seconds, "rows": spark.table("lake.db.t").count()}), flush=True)
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3])
