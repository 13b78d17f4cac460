# SPDX-License-Identifier: Apache-2.0
"""Java Iceberg in Spark 4.1, in an environment and a process of its own: the other side of `java_engine.py`."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from lakeward.config.cache import cache_folder
from lakeward.config.java import load_java

PYSPARK = "pyspark==4.1.4"
RUNTIME = ("org.apache.iceberg", "iceberg-spark-runtime-4.1_2.13", "1.12.0")


class JavaIceberg:
    """The other side of `java_engine.py`."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        assert self._hear() == {"ready": True}

    @property
    def pid(self) -> int:
        return self._process.pid

    def sql(self, text: str) -> list[dict[str, Any]]:
        return self._ask({"sql": text})

    def read(self, metadata_location: str) -> list[dict[str, Any]]:
        return self._ask({"path": metadata_location})

    def copy(self, metadata_location: str, folder: Path) -> pa.Table:
        """What it reads, through a Parquet file: JSON has no NaN and no bytes."""
        self._ask({"path": metadata_location, "to": str(folder)})
        return pq.read_table(folder)

    def _ask(self, order: dict[str, str]) -> list[dict[str, Any]]:
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


def environment() -> tuple[Path, Path]:
    """Python with that PySpark, and the runtime's jar; made once and kept in the cache folder."""
    folder = cache_folder() / "java-iceberg"
    python, jar = folder / "bin" / "python", folder / f"{RUNTIME[1]}-{RUNTIME[2]}.jar"
    if not python.exists():
        subprocess.run(["uv", "venv", "-q", "--python", "3.11", str(folder)], check=True)
        subprocess.run(["uv", "pip", "install", "-q", "--python", str(python), PYSPARK], check=True)
    if not jar.exists():
        copy = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy"
        subprocess.run(
            ["mvn", "-q", "-B", copy, f"-Dartifact={':'.join(RUNTIME)}", f"-DoutputDirectory={folder}"], check=True
        )
    return python, jar


@contextmanager
def start_java(catalog: str) -> Iterator[JavaIceberg]:
    """Java Iceberg in a process of its own. Tables can also be read by the path of their metadata, without that
    catalog.
    """
    python, jar = environment()
    variables = {
        "JAVA_HOME": str(load_java().home),
        "PATH": "/usr/bin:/bin",
        "PYSPARK_PYTHON": str(python),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    command = [str(python), str(Path(__file__).with_name("java_engine.py")), str(jar), catalog]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=variables
    )
    try:
        yield JavaIceberg(process)
    finally:
        assert process.stdin is not None
        process.stdin.close()
        process.wait(60)
        assert process.stdout is not None
        process.stdout.close()
