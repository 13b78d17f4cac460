# SPDX-License-Identifier: Apache-2.0
"""Java Iceberg and Delta in Spark 4.1, in an environment and a process of its own: the other side of
`java_engine.py`."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from fcntl import LOCK_EX, flock
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from lakeward.config.cache import cache_folder
from lakeward.config.java import load_java

PYSPARK = "pyspark==4.1.4"
ICEBERG = ("org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0",)
AWS = "org.apache.iceberg:iceberg-aws-bundle:1.12.0"
DELTA = ("io.delta:delta-spark_4.1_2.13:4.4.0", "io.delta:delta-storage:4.4.0")


class LineProcess:
    """A process that answers a line of JSON with a line of JSON."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        assert self._hear() == {"ready": True}

    @staticmethod
    @contextmanager
    def started(command: Sequence[str], variables: Mapping[str, str]) -> Iterator[subprocess.Popen[str]]:
        pipe = subprocess.PIPE
        process = subprocess.Popen(
            command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True, env=dict(variables)
        )
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield process
        finally:
            process.stdin.close()
            process.wait(120)
            process.stdout.close()

    @property
    def pid(self) -> int:
        return self._process.pid

    def _ask(self, order: dict[str, Any]) -> list[dict[str, Any]]:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        answer = self._hear()
        assert "error" not in answer, answer["error"]
        rows: list[dict[str, Any]] = answer["rows"]
        return rows

    def _hear(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        while line and not line.startswith("{"):  # what Spark says of itself
            line = self._process.stdout.readline()
        found: dict[str, Any] = json.loads(line or '{"error": "the engine ended"}')
        return found


class JavaIceberg(LineProcess):
    """The other side of `java_engine.py`."""

    def sql(self, text: str) -> list[dict[str, Any]]:
        return self._ask({"sql": text})

    def read(self, metadata_location: str) -> list[dict[str, Any]]:
        return self._ask({"path": metadata_location})

    def select(self, metadata_location: str, *expressions: str) -> list[dict[str, Any]]:
        return self._ask({"path": metadata_location, "select": list(expressions)})

    def copy(self, metadata_location: str, folder: Path) -> pa.Table:
        """What it reads, through a Parquet file: JSON has no NaN and no bytes."""
        self._ask({"path": metadata_location, "to": str(folder)})
        return pq.read_table(folder)


def environment(artifacts: Sequence[str]) -> tuple[Path, list[Path]]:
    """Python with that PySpark, and the jars; made once and kept in the cache folder."""
    folder = cache_folder() / "java-iceberg"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder.parent / "java-iceberg.lock").open("w") as lock:  # tests of two workers may want it at once
        flock(lock, LOCK_EX)
        return _make(folder, artifacts)


def _make(folder: Path, artifacts: Sequence[str]) -> tuple[Path, list[Path]]:
    python, whole = folder / "bin" / "python", folder / f"{PYSPARK}.whole"
    if not whole.exists():
        uv = shutil.which("uv") or str(Path(sys.executable).with_name("uv"))
        subprocess.run([uv, "venv", "-q", "--allow-existing", "--python", "3.11", str(folder)], check=True)
        subprocess.run([uv, "pip", "install", "-q", "--python", str(python), PYSPARK], check=True)
        whole.touch()
    jars = {a: folder / f"{'-'.join(a.split(':')[1:])}.jar" for a in artifacts}
    copy = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy"
    for artifact in (a for a, jar in jars.items() if not jar.exists()):
        subprocess.run(["mvn", "-q", "-B", copy, f"-Dartifact={artifact}", f"-DoutputDirectory={folder}"], check=True)
    return python, list(jars.values())


@contextmanager
def start_java(
    catalog: str,
    warehouse: str = "default",
    *,
    artifacts: Sequence[str] = (),
    options: Mapping[str, str] | None = None,
) -> Iterator[JavaIceberg]:
    """Java Iceberg in a process of its own. Tables can also be read by the path of their metadata, without that
    catalog. `artifacts`: more jars. `options`: of the catalog.
    """
    settings = {
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.lake.type": "rest",
        "spark.sql.catalog.lake.uri": catalog,
        "spark.sql.catalog.lake.warehouse": warehouse,
        "spark.sql.catalog.lake.cache-enabled": "false",
        **{f"spark.sql.catalog.lake.{name}": value for name, value in (options or {}).items()},
        "spark.sql.catalog.own": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.own.type": "hadoop",  # its warehouse is SET before its first use
    }
    with _engine("iceberg", (*ICEBERG, *artifacts), settings) as engine:
        yield engine


@contextmanager
def start_delta() -> Iterator[JavaIceberg]:
    """Delta's own code. Tables are named by their folder: delta.`/folder`."""
    settings = {
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.databricks.delta.snapshotPartitions": "2",
    }
    with _engine("delta", DELTA, settings) as engine:
        yield engine


@contextmanager
def _engine(format: str, artifacts: Sequence[str], settings: dict[str, str]) -> Iterator[JavaIceberg]:
    python, jars = environment(artifacts)
    variables = {
        "JAVA_HOME": str(load_java().home),
        "PATH": "/usr/bin:/bin",
        "PYSPARK_PYTHON": str(python),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    told = json.dumps({"spark.jars": ",".join(map(str, jars)), **settings})
    command = [str(python), str(Path(__file__).with_name("java_engine.py")), format, told]
    with LineProcess.started(command, variables) as process:
        yield JavaIceberg(process)
