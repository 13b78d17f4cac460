# SPDX-License-Identifier: Apache-2.0
"""Broker, server, ingest process and tiering job are killed at seeded moments, and Spark's checkpoint is deleted once:
the table has each message of the topic once, in the lake too."""

from __future__ import annotations

import random
import shutil
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from lakeward.client import Client
from lakeward.errors import LakewardError
from lakeward_testing.waiting import wait_until
from tests.kit.fluss.jars import cache_folder
from tests.kit.kafka import Broker, connector_jars
from tests.spark.processes import Job, Process, Server, wait_tiered

pytestmark = [pytest.mark.soak, pytest.mark.spark]
VICTIMS = ["broker", "server", "ingest", "tiering", "checkpoint"]
TOPIC, COLUMNS = "orders", "id bigint, n bigint"


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    made = Broker(tmp_path / "broker", cache_folder().parent / "kafka")
    yield made
    made.stop()


class World:
    def __init__(self, folder: Path, broker: Broker) -> None:
        self.broker, self.folder, self.sent = broker, folder, 0
        self.scratch = folder / "scratch"
        self.scratch.mkdir()
        self.server = Server(folder / "server", {"table.datalake.freshness": "3 s"})
        self.ingest = self._start_ingest()
        self.job = Job(self.server, "a", spark=False)

    def _start_ingest(self) -> Process:
        arguments = ["ingest", f"kafka://{self.broker.address}/{TOPIC}", "--name", "k", "--table", "shop.orders"]
        arguments += ["--columns", COLUMNS, "--metadata", "--buckets", "2", "--server", self.server.url]
        environment = {
            "LAKEWARD_KAFKA_JARS": connector_jars(),
            "LAKEWARD_SPARK_MASTER": "local[2]",
            "SPARK_LOCAL_IP": "127.0.0.1",
            "TMPDIR": str(self.scratch),
        }
        return Process(["-m", "lakeward.cli", *arguments], self.folder / "ingest.log", environment)

    def hurt(self, victim: str) -> None:
        if victim == "broker":
            self.broker.stop()
            self.broker.restart()
        elif victim == "server":
            self.server.kill()
            self.server.start()
        elif victim == "ingest":
            self.ingest.kill()
        elif victim == "tiering":
            self.job.kill()
        else:
            for checkpoint in self.scratch.glob("lakeward-kafka-*"):
                shutil.rmtree(checkpoint, ignore_errors=True)
        self.ensure()

    def ensure(self) -> None:
        """What was killed, or ended by itself, is started again, as a supervisor would."""
        if not self.ingest.is_alive():
            self.ingest = self._start_ingest()
        if not self.job.is_alive():
            self.job = Job(self.server, "a", spark=False)

    def text(self) -> str:
        return (self.folder / "ingest.log").read_text(errors="replace")[-3000:]

    def close(self) -> None:
        for process in (self.ingest, self.job):
            process.kill()
        self.server.kill()


@contextmanager
def producing(world: World) -> Iterator[None]:
    """Sends messages until the end. The producer sends again what a killed broker did not confirm."""
    stop = threading.Event()

    def work() -> None:
        while not stop.is_set():
            start, world.sent = world.sent, world.sent + 400
            world.broker.send(
                TOPIC, ((f"k{n % 50}", f'{{"id": {n}, "n": {n % 7}}}') for n in range(start, start + 400))
            )

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(300)


def read_rows(client: Client, mode: str) -> Counter[tuple[int, int]]:
    table = client.read("shop.orders", columns=["_partition", "_offset"], mode=mode).to_table()
    return Counter(zip(table["_partition"].to_pylist(), table["_offset"].to_pylist(), strict=True))


@pytest.mark.parametrize("seed", [1, 2])
def test_everything_is_killed_and_each_message_is_there_once(broker: Broker, tmp_path: Path, seed: int) -> None:
    draw = random.Random(seed)
    broker.send(TOPIC, [("k", '{"id": -1, "n": 0}')])
    world = World(tmp_path, broker)
    try:
        with producing(world):
            for victim in draw.sample(VICTIMS, len(VICTIMS)):
                time.sleep(draw.uniform(1, 15))  # the moment is what the seed draws; nothing waits for anything here
                world.hurt(victim)
        expected = Counter(broker.offsets(TOPIC))
        client = world.server.connect()

        def is_whole() -> bool:
            world.ensure()
            try:
                return read_rows(client, "union").keys() >= expected.keys()
            except LakewardError:
                return False

        wait_until(is_whole, limit_s=400, poll_s=2, what="every message", state=world.text)
        assert read_rows(client, "union") == expected
        assert len(expected) > 400
        wait_tiered(client, client.table("shop.orders"), limit_s=300, state=world.job.text)
        assert read_rows(client, "lake") == expected
        client.close()
    finally:
        world.close()
