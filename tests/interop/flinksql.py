# SPDX-License-Identifier: Apache-2.0
"""Flink's SQL in batch mode with Iceberg's runtime, in a Java process of its own: the other side of `FlinkSql.java`."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lakeward.config.cache import cache_folder
from lakeward.config.java import load_java
from tests.kit.fluss.jars import load_with_needs

VERSION = "1.20.3"
PARTS = (
    f"org.apache.flink:flink-clients:{VERSION}",
    f"org.apache.flink:flink-connector-base:{VERSION}",
    f"org.apache.flink:flink-connector-files:{VERSION}",
    f"org.apache.flink:flink-table-api-java-bridge:{VERSION}",
    f"org.apache.flink:flink-table-planner-loader:{VERSION}",
    f"org.apache.flink:flink-table-runtime:{VERSION}",
    "org.apache.iceberg:iceberg-flink-runtime-1.20:1.10.0",
    "io.trino.hadoop:hadoop-apache:3.3.5-2",
)
_OPENED = ("nio", "lang", "lang.invoke", "util", "io", "net", "time", "math", "util.concurrent")


class FlinkFailed(Exception):
    """What Flink said of a statement."""


class FlinkSql:
    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        assert self._hear() == {"ready": True}

    def sql(self, statement: str) -> list[list[Any]]:
        """Rows of the answer. Raises `FlinkFailed`."""
        assert self._process.stdin is not None
        self._process.stdin.write(" ".join(statement.splitlines()) + "\n")
        self._process.stdin.flush()
        answer = self._hear()
        if "error" in answer:
            raise FlinkFailed(answer["error"])
        rows: list[list[Any]] = answer["rows"]
        return rows

    def _hear(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        while line and not line.startswith("{"):
            line = self._process.stdout.readline()
        answer: dict[str, Any] = json.loads(line or '{"error": "Flink ended"}')
        return answer


@contextmanager
def start_flink(log: Path, url: str, **warehouses: str) -> Iterator[FlinkSql]:
    """`warehouses`: name of a catalog in Flink -> warehouse of the REST catalog at `url`."""
    jars = load_with_needs(f"flink-sql-{VERSION}", PARTS, cache_folder() / "flink")
    opened = [f"--add-opens=java.base/java.{name}=ALL-UNNAMED" for name in _OPENED]
    source = Path(__file__).with_name("FlinkSql.java")
    java = str(load_java().home / "bin" / "java")
    command = [
        java,
        "-Xmx900m",
        "-XX:TieredStopAtLevel=1",
        *opened,
        "-cp",
        os.pathsep.join(map(str, jars)),
        str(source),
    ]
    pipe = subprocess.PIPE
    with (
        log.open("wb") as words,
        subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=words, text=True) as process,
    ):
        try:
            flink = FlinkSql(process)
            for name, warehouse in warehouses.items():
                options = f"'type'='iceberg', 'catalog-type'='rest', 'uri'='{url}', 'warehouse'='{warehouse}'"
                flink.sql(f"CREATE CATALOG {name} WITH ({options}, 'cache-enabled'='false')")
            yield flink
        finally:
            process.kill()
