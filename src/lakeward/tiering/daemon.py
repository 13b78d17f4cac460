# SPDX-License-Identifier: Apache-2.0
"""PySpark's daemon with the libraries of a round loaded: workers are forked from it, also after the idle timeout of one
minute ended the last ones. Spark starts it as `python -m lakeward.tiering.daemon` (`spark.python.daemon.module`) if the
driver's Python is the workers'. A process that forks should have no threads: OpenBLAS is set to start none, and
jemalloc's thread handles forks."""

import os


def main() -> None:
    """Nothing may be printed before PySpark has told the JVM its port through standard output."""
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    import pyspark.worker  # noqa: F401 - each worker would import it after its fork
    from pyspark.daemon import manager

    from lakeward.tiering.work.preload import import_for_rounds, preloaded_hot

    import_for_rounds(preloaded_hot())
    manager()


if __name__ == "__main__":
    main()
