# SPDX-License-Identifier: Apache-2.0
"""Fluss's own programs in Java: its tiering job, on Flink in one process, which ours takes over from and hands back to;
its client.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import psutil

from lakeward.config.java import load_java
from tests.kit.fluss.cluster import FlussCluster
from tests.kit.fluss.jars import FLINK, ICEBERG, SERVER, load_flink, load_jars, paimon_plugin

_MAIN = "org.apache.fluss.flink.tiering.FlussLakeTieringEntrypoint"
_OPENED = ("nio", "lang", "util", "io", "net", "time", "util.concurrent")


def upsert_typed(cluster: FlussCluster, database: str, table: str, count: int) -> None:
    """Fluss's Java client upserts rows of every flat type, 1 to `count`; `UpsertTyped.java` says which."""
    _run_client("UpsertTyped.java", cluster.bootstrap, database, table, str(count))


def append_events(cluster: FlussCluster, database: str, table: str, start: int, stop: int) -> None:
    """By Fluss's Java client: pyfluss writes batches of magic 0 whatever the table says. Rows are (id, name)."""
    _run_client("AppendEvents.java", cluster.bootstrap, database, table, str(start), str(stop))


def set_properties(cluster: FlussCluster, database: str, table: str, properties: Mapping[str, str]) -> None:
    """Behind Fluss's back, in its ZooKeeper, and so also those that a server of this version would not take: it tells
    clients of them all the same, as one that knows them does."""
    node = (f"127.0.0.1:{cluster.ports['zookeeper']}", f"/fluss/metadata/databases/{database}/tables/{table}")
    told = json.loads(_run_client("ZooNode.java", *node, jars=load_jars(SERVER)).splitlines()[-1])
    told["properties"].update(properties)
    _run_client("ZooNode.java", *node, json.dumps(told), jars=load_jars(SERVER))


def _run_client(program: str, *arguments: str, jars: Sequence[Path] = (), limit_s: float = 300.0) -> bytes:
    jars = jars or [*load_flink(), *load_jars(FLINK)]
    java, source = load_java().home / "bin" / "java", Path(__file__).with_name(program)
    opened = [f"--add-opens=java.base/java.{name}=ALL-UNNAMED" for name in _OPENED]
    command = [str(java), *opened, "-cp", os.pathsep.join(map(str, jars)), str(source), *arguments]
    return subprocess.run(command, timeout=limit_s, check=True, capture_output=True).stdout


class FlinkTieringJob:
    """Started by `__init__`; `stop` ends it as SIGTERM does, which gives no table back: Fluss waits for its lease to
    end.

    `is_patient`: its own parts do not take each other for dead after a pause. `classes`: a folder of classes that come
    before those of the jars. `is_measured`: with both of Java's compilers, as in production."""

    def __init__(
        self,
        cluster: FlussCluster,
        log: Path,
        *,
        is_patient: bool = False,
        is_measured: bool = False,
        classes: Path | None = None,
    ) -> None:
        lake = load_jars(paimon_plugin() if cluster.lake == "paimon" else ICEBERG)
        jars = [*([] if classes is None else [classes]), *load_flink(), *load_jars(FLINK), *lake]
        settings = {
            "fluss.bootstrap.servers": cluster.bootstrap,
            "fluss.tiering.poll.table.interval": "1s",
            **cluster.lake_settings,
        }
        command = [
            str(load_java().home / "bin" / "java"),
            "-Xmx1500m",
            *([] if is_measured else ["-XX:TieredStopAtLevel=1"]),
            *(f"--add-opens=java.base/java.{name}=ALL-UNNAMED" for name in _OPENED),
            "-cp",
            os.pathsep.join(map(str, jars)),
            str(Path(__file__).with_name("PatientFlink.java")) if is_patient else _MAIN,
            *(part for key, value in settings.items() for part in (f"--{key}", value)),
        ]
        self._out = log.open("wb")
        self.log = log
        self.process = subprocess.Popen(command, stdout=self._out, stderr=subprocess.STDOUT, cwd=log.parent)

    def pause(self) -> None:
        self.process.send_signal(signal.SIGSTOP)

    @property
    def is_paused(self) -> bool:
        return bool(psutil.Process(self.process.pid).status() == psutil.STATUS_STOPPED)

    def wake(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(120)
        finally:
            self.process.kill()
            self.process.wait(120)
            self._out.close()
