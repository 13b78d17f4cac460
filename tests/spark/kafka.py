# SPDX-License-Identifier: Apache-2.0
"""A Kafka broker of one process, from the jars that Maven has: broker and controller in one, without ZooKeeper."""

from __future__ import annotations

import os
import subprocess
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Iterable
from pathlib import Path

from lakeward.config.java import load_java
from lakeward_testing.ports import free_port
from tests.kit.fluss.jars import load_with_needs

VERSION = "4.1.0"
ARTIFACTS = [f"org.apache.kafka:{name}:{VERSION}" for name in ("kafka_2.13", "kafka-tools")]


class Broker:
    """Topics are made when first written to, with two partitions."""

    def __init__(self, folder: Path, jars: Path) -> None:
        folder.mkdir(parents=True)
        self.folder, self.port, control = folder, free_port(), free_port()
        self.address = f"127.0.0.1:{self.port}"
        self._classes = os.pathsep.join(map(str, load_with_needs(f"kafka-{VERSION}", ARTIFACTS, jars)))
        settings = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.bootstrap.servers": f"127.0.0.1:{control}",
            "controller.listener.names": "CONTROLLER",
            "listeners": f"PLAINTEXT://{self.address},CONTROLLER://127.0.0.1:{control}",
            "log.dirs": str(folder / "logs"),
            "num.partitions": "2",
            "offsets.topic.replication.factor": "1",
        }
        self._file = folder / "server.properties"
        self._file.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        cluster = urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        self._run("kafka.tools.StorageTool", "format", "--standalone", "-t", cluster, "-c", str(self._file))
        with (folder / "broker.log").open("wb") as log:
            self._process = subprocess.Popen(self._command("kafka.Kafka", str(self._file)), stdout=log, stderr=log)

    def send(self, topic: str, rows: Iterable[tuple[str, str]]) -> None:
        """Waits for the broker where it is not there yet."""
        lines = "".join(f"{key}\t{value}\n" for key, value in rows)
        where = ("--bootstrap-server", self.address, "--topic", topic)
        patient = ("--producer-property", "max.block.ms=120000")
        tool = "org.apache.kafka.tools.ConsoleProducer"
        self._run(tool, *where, *patient, "--property", "parse.key=true", text=lines)

    def stop(self) -> None:
        self._process.kill()
        self._process.wait(120)

    def _run(self, main: str, *arguments: str, text: str | None = None) -> None:
        command = self._command(main, *arguments)
        done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stdout + done.stderr

    def _command(self, main: str, *arguments: str) -> list[str]:
        java = str(load_java().home / "bin" / "java")
        return [java, "-Xmx512m", "-XX:TieredStopAtLevel=1", "-cp", self._classes, main, *arguments]
