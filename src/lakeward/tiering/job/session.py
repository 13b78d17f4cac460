# SPDX-License-Identifier: Apache-2.0
"""The one place that makes the Spark session of a job: scheduling, retries, Python of the workers, logs, secrets, start
time.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from lakeward.config.java import Java, use_java
from lakeward.config.shown import SENSITIVE_NAMES
from lakeward.errors import SparkUnsupported, UnsafeLake
from lakeward.lake.hudi.sparkbundle import EXTENSIONS, JARS, POOL, bundle_jar, check_spark, spark_conf
from lakeward.tiering.job.classarchive import ClassArchive, find_archive
from lakeward.tiering.work.preload import PRELOAD_ENV

OLDEST = (3, 5)
FAST = (4, 2)
"""From here on a small job costs 50 ms, before it 250."""

APP_NAME = "lakeward-tiering"
_SHORT_MEMORY = {
    f"spark.{what}": "100"
    for what in ("ui.retainedJobs", "ui.retainedStages", "ui.retainedTasks", "sql.ui.retainedExecutions")
}
"""Spark remembers its last thousand jobs and 100,000 tasks: a job that runs for months has no use for them."""

_LIGHT_COMPILER = "-XX:TieredStopAtLevel=1"
"""A job's JVM only schedules: compiling its code once, lightly, halves the CPU time of its start and of each small
Spark job.
"""

_KEPT_MEMORY = {"spark.executorEnv.MIMALLOC_PURGE_DELAY": "10000"}
"""Milliseconds until memory that Arrow freed in a Python worker goes back to the kernel. By default it is 10, and the
next batch requests it again, page by page: a thirtieth of a round's CPU time. Costs about as much more memory.
"""

_LOCAL = re.compile(r"local(\[|$)")
_SAME_MACHINE = re.compile(r"local(\[|-cluster|$)|spark://(127\.|localhost|\[::1\])")


@dataclass(frozen=True, kw_only=True)
class SessionOptions:
    """`conf` is the user's and wins. `archive`: use and make the class-data archive. `hot`: the hot store
    that workers of a tiering job read; None for a session that is used for anything else. `hudi`: the jar of
    Hudi's own code, which is then part of the session."""

    master: str | None = "local[*,4]"
    conf: Mapping[str, str] | None = None
    cache_dir: Path | None = None
    archive: bool = True
    hot: str | None = None
    hudi: Path | None = None


@dataclass(frozen=True)
class Session:
    """A Spark session that this process started, and what has to be done when it ends."""

    spark: Any
    archive: ClassArchive | None
    is_submitted: bool = False

    def close(self) -> None:
        """Stops Spark; waits for a JVM that this process started, and puts the archive that it wrote at its end in
        place."""
        from py4j.protocol import Py4JError
        from pyspark import SparkContext

        gateway = SparkContext._gateway
        with contextlib.suppress(Py4JError, OSError):  # a JVM that is gone has stopped
            self.spark.stop()
        process = getattr(gateway, "proc", None)
        if process is None:
            return
        gateway.shutdown()
        if process.stdin is not None:
            process.stdin.close()
        if self.archive is not None:
            self.archive.keep(process)


def open_session(options: SessionOptions) -> Session:
    """Raises `SparkUnsupported`, `JavaNotFound`. A session of spark-submit is taken as it is, with our
    settings added.
    """
    check_versions()
    check_master(options.master, options.conf or {})
    from pyspark.sql import SparkSession

    is_submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    if is_submitted:
        options = replace(options, master=_submitted_master())
    java = None if is_submitted else use_java()
    archive = None if java is None or not options.archive else find_archive(java, options.cache_dir)
    # PySpark reads the workers' Python from the environment alone, whatever the session's settings say.
    os.environ["PYSPARK_PYTHON"] = (
        (options.conf or {}).get("spark.pyspark.python") or os.environ.get("PYSPARK_PYTHON") or sys.executable
    )
    os.environ[PRELOAD_ENV] = options.hot or ""
    builder = SparkSession.builder
    for key, value in session_conf(options, java, archive, is_submitted=is_submitted).items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    if options.hudi is not None:
        check_hudi(spark)
    return Session(spark, archive, is_submitted)


def _submitted_master() -> str | None:
    """The master that was given to spark-submit, as its JVM reports it."""
    from pyspark import SparkConf, SparkContext

    SparkContext._ensure_initialized()
    master: str | None = SparkConf().get("spark.master", None)
    return master


def session_conf(
    options: SessionOptions, java: Java | None, archive: ClassArchive | None, *, is_submitted: bool = False
) -> dict[str, str]:
    """Spark's settings for rounds; what the user gave wins, but for Java's options, which are joined."""
    extra_conf = dict(options.conf or {})
    java_options = [f"-Dlog4j2.configurationFile=file:{Path(__file__).with_name('log4j2.properties')}"]
    java_options += [] if options.hot is None or options.hudi is not None else [_LIGHT_COMPILER]
    java_options += [] if archive is None else archive.java_options
    java_options += [o for o in [extra_conf.pop("spark.driver.extraJavaOptions", "")] if o]
    conf = {
        "spark.app.name": APP_NAME,
        "spark.scheduler.mode": "FAIR",
        "spark.task.maxFailures": "4",
        "spark.python.worker.reuse": "true",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        **_SHORT_MEMORY,
        "spark.redaction.regex": SENSITIVE_NAMES,
        "spark.redaction.string.regex": SENSITIVE_NAMES,
    }
    if options.hot is not None:
        conf |= _KEPT_MEMORY
    if options.hot is not None and shares_python(options):
        conf["spark.python.daemon.module"] = "lakeward.tiering.daemon"
    if not is_submitted:
        conf["spark.driver.extraJavaOptions"] = " ".join(java_options)
        conf["spark.master"] = options.master or "local[*,4]"
        if conf["spark.master"].startswith("local"):
            conf |= {
                "spark.driver.host": "127.0.0.1",
                "spark.driver.bindAddress": "127.0.0.1",
                "spark.driver.memory": "1g",
            }
    if options.hudi is not None:
        conf |= spark_conf(options.hudi)
        extra_conf |= {key: f"{conf[key]},{extra_conf[key]}" for key in (JARS, EXTENSIONS) if key in extra_conf}
    return {**conf, **extra_conf}


def shares_python(options: SessionOptions) -> bool:
    """Whether workers run in this process's Python on this machine, so that what is installed here is there too."""
    python = (options.conf or {}).get("spark.pyspark.python") or os.environ.get("PYSPARK_PYTHON") or sys.executable
    return _LOCAL.match(options.master or "local") is not None and python == sys.executable


def load_hudi(pool: str) -> Path | None:
    """The jar of Hudi for a job of the pool that has it; None for other pools. Raises `SparkUnsupported` for a PySpark
    that Hudi has none for, `BundleNotFound`. May fetch it, which takes a minute."""
    if pool != POOL:
        return None
    check_spark(_pyspark_version())
    return bundle_jar()


def check_hudi(spark: Any) -> None:
    """Raises `SparkUnsupported` where Hudi's code is not in the session: spark-submit started its JVM before us."""
    from py4j.protocol import Py4JError

    loader = spark._jvm.java.lang.Thread.currentThread().getContextClassLoader()
    try:
        spark._jvm.java.lang.Class.forName("org.apache.hudi.HoodieSparkSqlWriter", False, loader)
    except Py4JError as error:
        conf_flags = " ".join(f"--conf {key}={value}" for key, value in spark_conf(bundle_jar()).items())
        raise SparkUnsupported(
            what=f"pool {POOL} in this Spark session", reason=f"Hudi's jar is not in it; give spark-submit {conf_flags}"
        ) from error


def check_versions() -> None:
    """Raises `SparkUnsupported` for a PySpark that is missing or too old."""
    pyspark_version = _pyspark_version()
    numbers = tuple(int(n) for n in re.findall(r"\d+", pyspark_version)[:2])
    if numbers < OLDEST:
        raise SparkUnsupported(
            what=f"PySpark {pyspark_version}",
            reason="rounds need 3.5 or newer; 4.2 or newer is five times as quick to start a job",
        )


def _pyspark_version() -> str:
    try:
        return version("pyspark")
    except PackageNotFoundError:
        return _client_version()


def _client_version() -> str:
    try:
        return version("pyspark-client")
    except PackageNotFoundError:
        raise SparkUnsupported(
            what="this Python", reason="PySpark is not installed: pip install 'lakeward[spark]'"
        ) from None


def check_master(master: str | None, conf: Mapping[str, str]) -> None:
    """Spark Connect has no RDDs, and a round is one: refused before anything is started."""
    remote = (
        conf.get("spark.remote")
        or os.environ.get("SPARK_REMOTE")
        or (master if (master or "").startswith("sc://") else None)
    )
    if remote or conf.get("spark.api.mode") == "connect":
        raise SparkUnsupported(
            what=f"Spark Connect ({remote or 'spark.api.mode=connect'})",
            reason="a round runs as an RDD job on the driver's own session; name a master such as local[*,4] or "
            "spark://host:7077",
        )


def is_same_machine(master: str | None) -> bool:
    """Whether executors see this machine's disk: local masters, and a standalone master on loopback."""
    return _SAME_MACHINE.match(master or "local") is not None


def check_location(lake: str, location: str, master: str | None) -> None:
    """Raises `UnsafeLake` if executors on other machines would write to a disk that only they see."""
    if not is_same_machine(master) and location.startswith(("file:", "/")):
        raise UnsafeLake(
            lake=f"{lake} at {location}",
            reason=f"executors of {master} run on other machines and would write to their own disks; use a warehouse "
            f"on shared storage (s3://...)",
        )
