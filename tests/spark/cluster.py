# SPDX-License-Identifier: Apache-2.0
"""A standalone Spark cluster of real processes on this machine: one master, workers with one executor each."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import psutil
import pyspark

from lakeward.config.java import load_java
from lakeward_testing.ports import free_port
from lakeward_testing.waiting import wait_until

SPARK_HOME = Path(pyspark.__file__).parent


class Cluster:
    """`python` is what executors run; what they may import is that Python's business."""

    def __init__(self, folder: Path, workers: int = 2, environment: dict[str, str] | None = None) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.port = folder, free_port()
        self.master = f"spark://127.0.0.1:{self.port}"
        self._environment = {
            **os.environ,
            "JAVA_HOME": str(load_java().home),
            "SPARK_HOME": str(SPARK_HOME),
            "SPARK_LOCAL_IP": "127.0.0.1",
            **(environment or {}),
        }
        main = "org.apache.spark.deploy"
        self.processes = [
            self._start(f"{main}.master.Master", "--host", "127.0.0.1", "--port", str(self.port), "--webui-port", "0")
        ]
        for number in range(workers):
            home = folder / f"worker{number}"
            home.mkdir(parents=True)
            arguments = ("--cores", "1", "--memory", "1g", "--webui-port", "0", "--work-dir", str(home), self.master)
            self.processes.append(self._start(f"{main}.worker.Worker", *arguments))
        wait_until(lambda: self._log().count("Registering worker") >= workers, what="the workers", state=self._log)

    def _start(self, name: str, *arguments: str) -> subprocess.Popen[bytes]:
        command = [str(SPARK_HOME / "bin" / "spark-class"), name, *arguments]
        with (self.folder / "cluster.log").open("ab") as out:
            return subprocess.Popen(command, stdout=out, stderr=out, env=self._environment, start_new_session=True)

    def _log(self) -> str:
        return (self.folder / "cluster.log").read_text(errors="replace")

    def executors(self) -> list[psutil.Process]:
        """JVMs of executors, below the workers."""
        return [p for p in self._below() if "CoarseGrainedExecutorBackend" in " ".join(command_of(p))]

    def python_workers(self) -> list[psutil.Process]:
        """Python processes that run tasks: children of the daemon."""
        daemons = [p for p in self._below() if "pyspark.daemon" in " ".join(command_of(p))]
        return [p for p in daemons if "pyspark.daemon" in " ".join(command_of(p.parent()))]

    def _below(self) -> list[psutil.Process]:
        found: list[psutil.Process] = []
        for process in self.processes[1:]:
            found += psutil.Process(process.pid).children(recursive=True)
        return found

    def stop(self) -> None:
        for process in reversed(self.processes):
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
            process.wait()
        for left in self._leftovers():
            left.kill()

    def _leftovers(self) -> list[psutil.Process]:
        """Executors that outlived their worker, by the master they were told."""
        return [p for p in psutil.process_iter() if f"spark://127.0.0.1:{self.port}" in " ".join(command_of(p))]


def command_of(process: psutil.Process | None) -> list[str]:
    try:
        return [] if process is None else list(process.cmdline())
    except psutil.Error:
        return []
