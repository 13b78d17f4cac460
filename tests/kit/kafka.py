# SPDX-License-Identifier: Apache-2.0
"""A Kafka broker of one process, from the jars that Maven has: broker and controller in one, without ZooKeeper."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from lakeward.config.java import load_java
from lakeward_testing.ports import free_port
from tests.kit.fluss.jars import cache_folder, load_jars, load_with_needs

VERSION = "4.1.0"
ARTIFACTS = [f"org.apache.kafka:{name}:{VERSION}" for name in ("kafka_2.13", "kafka-tools")]


class Broker:
    """Topics are made when first written to, with two partitions."""

    def __init__(self, folder: Path, jars: Path, port: int | None = None) -> None:
        folder.mkdir(parents=True)
        self.folder, self.port, control = folder, port or free_port(), free_port()
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
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
        }
        self._file = folder / "server.properties"
        self._file.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        cluster = urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        self._run("kafka.tools.StorageTool", "format", "--standalone", "-t", cluster, "-c", str(self._file))
        with (folder / "broker.log").open("wb") as log:
            self._process = subprocess.Popen(
                self._command("kafka.Kafka", str(self._file)), stdout=log, stderr=log, start_new_session=True
            )

    def tool(self, name: str, *arguments: str) -> None:
        """`TopicCommand`, `ConfigCommand` and the like."""
        self._run(f"org.apache.kafka.tools.{name}", "--bootstrap-server", self.address, *arguments)

    def restart(self) -> None:
        """After `stop`, on the same folder and port."""
        with (self.folder / "broker.log").open("ab") as log:
            self._process = subprocess.Popen(self._command("kafka.Kafka", str(self._file)), stdout=log, stderr=log)

    def offsets(self, topic: str) -> list[tuple[int, int]]:
        """Partition and offset of every message that the topic has now."""
        where = ("--bootstrap-server", self.address, "--topic", topic, "--from-beginning", "--timeout-ms", "20000")
        shown = [part for name in ("partition", "offset") for part in ("--property", f"print.{name}=true")]
        tool = "org.apache.kafka.tools.consumer.ConsoleConsumer"
        text = self._run(tool, *where, *shown, "--property", "print.value=false")
        return [(int(p), int(o)) for p, o in re.findall(r"Partition:(\d+)\s+Offset:(\d+)", text)]

    def send(self, topic: str, rows: Iterable[tuple[str, str]]) -> None:
        """Waits for the broker where it is not there yet."""
        lines = "".join(f"{key}\t{value}\n" for key, value in rows)
        where = ("--bootstrap-server", self.address, "--topic", topic)
        patient = ("--producer-property", "max.block.ms=120000")
        tool = "org.apache.kafka.tools.ConsoleProducer"
        self._run(tool, *where, *patient, "--property", "parse.key=true", text=lines)

    def send_raw(self, topic: str, rows: Iterable[tuple[bytes | None, bytes | None]]) -> None:
        """Bytes as they are, and tombstones, through the client in Spark's JVM."""
        self._produce(topic, rows, {})

    def send_transaction(self, topic: str, rows: Iterable[tuple[bytes | None, bytes | None]], *, commit: bool) -> None:
        self._produce(topic, rows, {"transactional.id": f"tests-{topic}"}, commit=commit)

    def _produce(
        self, topic: str, rows: Iterable[tuple[bytes | None, bytes | None]], more: dict[str, str], commit: bool = True
    ) -> None:
        from lakeward.source.kafka.source import open_spark

        jvm = open_spark().sparkContext._jvm
        serializer = "org.apache.kafka.common.serialization.ByteArraySerializer"
        settings = jvm.java.util.Properties()
        for key, value in {"bootstrap.servers": self.address, "key.serializer": serializer, **more}.items():
            settings.put(key, value)
        settings.put("value.serializer", serializer)
        producer = jvm.org.apache.kafka.clients.producer.KafkaProducer(settings)
        if more:
            producer.initTransactions()
            producer.beginTransaction()
        for key_bytes, value_bytes in rows:
            record = jvm.org.apache.kafka.clients.producer.ProducerRecord(topic, key_bytes, value_bytes)
            producer.send(record)
        producer.flush()
        if more:
            producer.commitTransaction() if commit else producer.abortTransaction()
        producer.close()

    @property
    def pid(self) -> int:
        return self._process.pid

    def stop(self) -> None:
        self._process.kill()
        self._process.wait(120)

    def _run(self, main: str, *arguments: str, text: str | None = None) -> str:
        command = self._command(main, *arguments)
        done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=300)
        said = done.stdout + done.stderr
        assert done.returncode == 0, said
        assert " ERROR " not in said, said  # the producer gives a message up and still ends with 0
        return done.stdout

    def _command(self, main: str, *arguments: str) -> list[str]:
        java = str(load_java().home / "bin" / "java")
        return [java, "-Xmx512m", "-XX:TieredStopAtLevel=1", "-cp", self._classes, main, *arguments]


CONNECTOR = [
    "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
    "org.apache.kafka:kafka-clients:3.9.1",
    "org.apache.commons:commons-pool2:2.12.1",
]
"""Spark's, with what it needs by name: mirrors of Maven lack some of it in its newest version."""


def connector_jars() -> str:
    """Paths for `LAKEWARD_KAFKA_JARS`."""
    return ",".join(map(str, load_jars(CONNECTOR, cache_folder().parent / "kafka", parents=())))


def main() -> int:
    folder = Path(os.environ.get("LAKEWARD_KAFKA", Path.home() / ".cache" / "lakeward" / "kafka-dev"))
    note = folder / "pid"
    if sys.argv[1:] == ["down"]:
        if note.exists():
            with suppress(ProcessLookupError):
                os.kill(int(note.read_text()), signal.SIGTERM)
        shutil.rmtree(folder, ignore_errors=True)
        print("stopped and removed")
        return 0
    broker = Broker(folder, cache_folder().parent / "kafka", port=int(os.environ.get("PORT", "9092")))
    note.write_text(str(broker.pid))
    print(f"broker at {broker.address}, in {folder}; `make kafka-down` removes it")
    print(f"export LAKEWARD_KAFKA_JARS={connector_jars()}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
