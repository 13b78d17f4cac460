# SPDX-License-Identifier: Apache-2.0
"""Spark Structured Streaming into Java Iceberg, in an environment of its own: `python streaming_peer.py JAR WARM SOURCE
WAREHOUSE`.

Reads folders of Parquet files, first a small one to warm up, writes Iceberg tables of four buckets, prints as JSON what
the second cost: wall and CPU seconds of JVM and driver. Nothing of ours is importable here."""

import json
import os
import sys
import time

from pyspark.sql import SparkSession


def main(jar: str, warm: str, source: str, warehouse: str) -> None:
    settings = {
        "spark.jars": jar,
        "spark.ui.enabled": "false",
        "spark.driver.memory": "3g",
        "spark.sql.shuffle.partitions": "4",
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
    spark.sql("CREATE NAMESPACE IF NOT EXISTS lake.db")
    jvm = int(spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid())
    stream(spark, warm, "warm", warehouse)
    began, spent = time.perf_counter(), cpu_s(jvm)
    stream(spark, source, "t", warehouse)
    found = {"seconds": time.perf_counter() - began, "cpu_s": cpu_s(jvm) - spent, "peak_rss_mb": peak_mb(jvm)}
    print(json.dumps({**found, "rows": spark.table("lake.db.t").count()}), flush=True)
    spark.stop()


def stream(spark: SparkSession, source: str, table: str, warehouse: str) -> None:
    schema = spark.read.parquet(source).schema
    columns = ", ".join(f"{f.name} {f.dataType.simpleString()}" for f in schema.fields)
    spark.sql(
        f"CREATE TABLE lake.db.{table} ({columns}) USING iceberg PARTITIONED BY (bucket(4, l_orderkey)) "
        "TBLPROPERTIES ('write.parquet.compression-codec'='zstd', 'write.distribution-mode'='hash')"
    )
    frame = spark.readStream.schema(schema).option("maxFilesPerTrigger", 50).parquet(source)
    query = (
        frame.writeStream.format("iceberg")
        .trigger(availableNow=True)
        .option("checkpointLocation", f"{warehouse}/{table}-checkpoint")
    )
    query.toTable(f"lake.db.{table}").awaitTermination()


def cpu_s(pid: int) -> float:
    """User and system time of the JVM and of this process."""
    with open(f"/proc/{pid}/stat") as stat:
        fields = stat.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK") + time.process_time()


def peak_mb(pid: int) -> float:
    with open(f"/proc/{pid}/status") as status:
        (line,) = [text for text in status if text.startswith("VmHWM")]
    return int(line.split()[1]) / 1024


if __name__ == "__main__":
    main(*sys.argv[1:])
