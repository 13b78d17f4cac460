# SPDX-License-Identifier: Apache-2.0
"""Java Iceberg or Delta in Spark, in an environment of its own: JSON lines in (`{"sql": ...}` or `{"path": ...}`; with
`"select"` a list of expressions, with `"to"` a folder for a Parquet file of what was read), JSON lines out.

Run by that environment's Python: `python java_engine.py FORMAT SETTINGS`. Nothing of ours is importable there.
"""

import json
import sys
from typing import Any

from pyspark.sql import SparkSession

ALWAYS = {
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
}


def main(format: str, settings: dict[str, str]) -> None:
    builder = SparkSession.builder.master("local[2]")
    for key, value in {**ALWAYS, **settings}.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        order = json.loads(line)
        answer: dict[str, Any]
        try:
            frame = spark.read.format(format).load(order["path"]) if "path" in order else spark.sql(order["sql"])
            if "select" in order:
                frame = frame.selectExpr(*order["select"])
            if "to" in order:
                frame.write.mode("overwrite").parquet(order["to"])
                answer = {"rows": []}
            else:
                answer = {"rows": [json.loads(row) for row in frame.toJSON().collect()]}
        except Exception as error:  # noqa: BLE001 - the other side decides
            answer = {"error": str(error)[:2000]}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]))
