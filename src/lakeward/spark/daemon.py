# SPDX-License-Identifier: Apache-2.0
"""PySpark's daemon with the libraries of a read loaded: Spark forks a Python worker for each step of planning a data
source, and each would import PySpark, pandas, Arrow and Lakeward again.

Spark starts it as `python -m lakeward.spark.daemon WORKER_MODULE` where a session asks for it by
`spark.python.daemon.module`. As in `lakeward.tiering.daemon`, what is imported starts no threads.
"""

import importlib
import importlib.util
import os
import sys


def main() -> None:
    """Nothing may be printed before PySpark has told the JVM its port through standard output."""
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    for name in (*sys.argv[1:2], "pyspark.worker", "lakeward.read.arrow"):
        importlib.import_module(name)
    if importlib.util.find_spec("pyspark.sql.datasource"):  # not in PySpark 3.5
        importlib.import_module("lakeward.spark.source")
    from pyspark.daemon import manager

    from lakeward.spi import HOT_GROUP, installed
    from lakeward.tiering.work.preload import import_for_rounds

    import_for_rounds(installed(HOT_GROUP))
    manager()


if __name__ == "__main__":
    main()
